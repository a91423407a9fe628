"""The Lua code of this version of shardq: the library, and each of its verbs as a script.

A `Script` is a plain value. Drivers send the name of its function; where no library can be loaded they send its SHA-1,
and its source if the server does not know the hash (`library.py`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from pkgutil import get_data

from shardq.protocol.library import FILE, Library, decode
from shardq.protocol.script import Script


@cache
def root() -> Path:
    """Return the folder of the Lua files. It lies beside the package in a checkout, and only there."""
    checkout = Path(__file__).resolve().parents[2] / "lua"
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError("shardq's Lua code is missing from this install; install shardq again")


@cache
def library() -> Library:
    """Return the library of this version of shardq: that of the wheel, or in a checkout what its sources give."""
    try:
        return decode(get_data(__package__, FILE) or b"")
    except FileNotFoundError:
        from shardq.protocol.sources import read  # what is installed does not need it

        return read(root())


@cache
def load(name: str) -> Script:
    """Return the verb called *name*. KeyError if there is none."""
    return library().script(name)


def names() -> list[str]:
    """Return the names of all verbs, sorted."""
    return sorted(library().verbs)

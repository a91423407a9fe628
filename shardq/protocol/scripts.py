"""The Lua code of this version of shardq: the library, and each of its verbs as a script.

A `Script` is a plain value. Drivers send the name of its function; where no library can be loaded they send its SHA-1,
and its source if the server does not know the hash (`library.py`).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from shardq.protocol.library import Library, read
from shardq.protocol.script import Script


@cache
def root() -> Traversable:
    """Return the folder of the Lua files. In an editable install it lies beside the package."""
    packaged = files("shardq").joinpath("lua")
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / "lua"
    if checkout.is_dir():
        return checkout
    raise FileNotFoundError("shardq's Lua code is missing from this install; install shardq again")


@cache
def library() -> Library:
    """Return the library of this version of shardq."""
    return read(root())


@cache
def load(name: str) -> Script:
    """Return the verb called *name*. KeyError if there is none."""
    return library().script(name)


def names() -> list[str]:
    """Return the names of all verbs, sorted."""
    return sorted(library().verbs)

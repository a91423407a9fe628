"""Files that a person names: each is read whole within a bound, and what is wrong with it is said in one line."""

from __future__ import annotations

import os
import select
import stat
import tomllib
from io import FileIO
from typing import Any, Final

from shardq.arguments import path as checked_path
from shardq.errors import ConfigError

MIB: Final = 1024 * 1024
MAX_SHOWN: Final = 200
MAX_DOTS: Final = 1_000
"""Parts of a key. The time that tomllib takes grows with the square of them: 20,000 take half a minute."""

_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # Windows has neither
PATIENCE: Final = 10.0
"""Seconds that a pipe may be silent."""


def read_file(path: str | os.PathLike[str], most: int, what: str) -> bytes:
    """Return all bytes of a file or pipe. ConfigError if it cannot be read, or has more than *most*.

    *what* says what it is, such as "the file of tokens". A pipe into which nobody writes is an error, too.
    """
    where = f"{what} {shortened(os.fspath(checked_path(what, path)))!r}"
    try:
        # A pipe without a writer would block when it is opened, for ever.
        with FileIO(os.open(path, _FLAGS)) as file:
            found = _read(file, most, where)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None
    return bounded(found, most, where)


def shortened(path: str) -> str:
    """Return a path for an error: of a long one the end."""
    return path if len(path) <= MAX_SHOWN else f"…{path[-MAX_SHOWN:]}"


def bounded(found: bytes, most: int, where: str) -> bytes:
    """Return the bytes that were *found*. ConfigError if they are more than *most*."""
    if len(found) > most:
        raise ConfigError(f"{where} has more than {most:,} bytes")
    return found


def toml(raw: bytes, where: str) -> dict[str, Any]:
    """Return the table that TOML in UTF-8 stands for. ConfigError if it is none, or is nested too deeply."""
    try:
        text = raw.decode("utf-8-sig")
        if any(line.partition("=")[0].count(".") > MAX_DOTS for line in text.splitlines()):
            raise ConfigError(f"{where} has a key of more than {MAX_DOTS:,} parts")
        return tomllib.loads(text)
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not TOML, which is UTF-8: byte {error.start:,} is none") from None
    except RecursionError:
        raise ConfigError(f"{where} is not TOML that can be read: it is nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise ConfigError(f"{where} is not TOML: {error}") from None


def _read(file: FileIO, most: int, where: str) -> bytes:
    found = bytearray()
    while len(found) <= most:
        part = file.read(min(most + 1 - len(found), MIB))
        if part:
            found += part
        elif part is not None:
            break
        elif not select.select([file], [], [], PATIENCE)[0]:
            raise ConfigError(f"{where} is a pipe into which nothing was written for {PATIENCE:g} s")
    if not found and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise ConfigError(f"{where} is a pipe or device with nothing in it")
    return bytes(found)

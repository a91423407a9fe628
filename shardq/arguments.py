"""Checks of arguments. Each returns the value, or raises a ConfigError that says what the value must be."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from reprlib import Repr
from typing import Any, Final, TypeVar
from unicodedata import category

from shardq.errors import ConfigError

T = TypeVar("T")
MAX_BLOCK = 365 * 86_400.0
"""The longest time, in seconds, for which a call may wait or a nack may delay a message."""

MAX_NAME: Final = 200
"""The longest queue name, in characters (which are bytes, since names are ASCII)."""

_ALLOWED: Final = "letters, digits and . _ - : / (ASCII)"
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9._:/-]")

MAX_PATH: Final = 4096
"""The longest path, in bytes: no system that this runs on takes longer ones, and an error would show all of it."""

_NO_LINE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""The categories of characters that no line has: those that control, halves of characters, and ends of lines."""

MIN_LEASE: Final = 0.05
MAX_LEASE: Final = 7 * 86_400
"""The shortest and the longest lease, in seconds."""


class _Short(Repr):
    def repr_instance(self, x: object, level: int) -> str:
        """Let what a repr raises through, which `shown` knows how to tell."""
        return repr(x)[:200]


_SHORT_REPR: Final = _Short()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 200
"""How values are shown: only their beginnings, however large or deep they are."""


def shown(value: object) -> str:
    """Return a short text of a refused argument for an error. It never fails; `repr` does for ints of 4,301 digits."""
    try:
        found = _SHORT_REPR.repr(value[:100] if type(value) in (bytes, bytearray) else value)  # type: ignore[index]
    except Exception:  # noqa: BLE001 - a repr may raise anything
        return f"this {type(value).__name__}"
    return found if len(found) <= 40 else f"{found[:39]}…"


def text(name: str, value: str) -> str:
    """Return *value* if it is a str; else ConfigError."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a str, not {shown(value)}")
    return value


def line(name: str, value: str, most: int) -> str:
    """Return *value* if it is a line of 1 to *most* characters, some of them visible; else ConfigError."""
    is_line = isinstance(value, str) and 1 <= len(value) <= most and not value.isspace()
    if not is_line or any(category(each) in _NO_LINE for each in value):
        raise ConfigError(
            f"{name} must be a line of 1 to {most:,} characters, without control characters, not {shown(value)}"
        )
    return value


def flag(name: str, value: bool) -> bool:
    """Return *value* if it is True or False; else ConfigError."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {shown(value)}")
    return value


def one_of(name: str, value: str, words: Collection[str]) -> str:
    """Return *value* if it is one of *words*; else ConfigError."""
    if not isinstance(value, str) or value not in words:
        raise ConfigError(f"{name} must be one of {', '.join(words)}, not {shown(value)}")
    return value


def of_type(name: str, value: T, kinds: type | tuple[type, ...], what: str) -> T:
    """Return *value* if it is of one of *kinds*; else ConfigError, in which *what* says what it must be."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} must be {what}, not {shown(value)}")
    return value


def function(name: str, value: T) -> T:
    """Return *value* if it can be called; else ConfigError."""
    if not callable(value):
        raise ConfigError(f"{name} must be a function, not {shown(value)}")
    return value


def path(name: str, value: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return *value* if it can be the path of a file; else ConfigError."""
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"{name} must be a path, not {shown(value)}")
    try:
        raw = os.fsencode(value)
    except Exception:  # noqa: BLE001 (its __fspath__ is somebody else's)
        raw = b""
    if not 1 <= len(raw) <= MAX_PATH or b"\0" in raw:
        raise ConfigError(f"{name} must be a path that this system can have, not {shown(value)}")
    return value


def check_clock(clock: Any) -> None:
    """ConfigError unless *clock* tells both times."""
    if not all(callable(getattr(clock, each, None)) for each in ("monotonic", "wall")):
        raise ConfigError(f"clock must have monotonic() and wall(), as a shardq.clock.Clock; {shown(clock)} has not")


def mapping(name: str, value: Mapping[Any, Any], kind: str) -> Mapping[Any, Any]:
    """Return *value* if it is a mapping; else ConfigError, in which *kind* says of what to what."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping of {kind}; this is of type {type(value).__name__}")
    return value


def whole(name: str, value: int, low: int, high: int, why: str = "") -> int:
    """Return *value* if it is a whole number from *low* to *high*; else ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        because = f" ({why})" if why else ""
        raise ConfigError(f"{name} must be a whole number from {low:,} to {high:,}{because}, not {shown(value)}")
    return value


def seconds(name: str, value: float, low: float, high: float) -> float:
    """Return *value* if it is a number of seconds from *low* to *high*; else ConfigError."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} must be a number of seconds from {low:,.15g} to {high:,.15g}, not {shown(value)}")
    return float(value)


def rate(name: str, value: float) -> float:
    """Return *value* if it is 0, or a number per second from 0.001 to 1,000,000; else ConfigError."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (value == 0 or 0.001 <= value <= 1_000_000):
        raise ConfigError(
            f"{name} must be a number per second from 0.001 to 1,000,000, or 0 for no limit, not {shown(value)}"
        )
    return float(value)


def lease_time(name: str, value: float) -> float:
    """Return *value* if it is a possible time of a lease, in seconds; else ConfigError."""
    return seconds(name, value, MIN_LEASE, MAX_LEASE)


def iterable(name: str, items: Iterable[T], kind: str) -> Iterable[T]:
    """Return *items* if they are iterable; else ConfigError, in which *kind* says what the items must be."""
    try:
        if isinstance(items, (str, bytes, bytearray, memoryview)):
            raise TypeError
        iter(items)
    except TypeError:
        raise ConfigError(f"{name} must be a list of {kind}; this is of type {type(items).__name__}") from None
    return items


def check_known(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """ConfigError if one of the settings *given* is not *known*. *what* has them: `Client`, `Worker`, `queue`.

    Python's own TypeError would name a class that takes the settings on, which nobody outside knows.
    """
    if unknown := [each for each in given if not isinstance(each, str) or each not in known]:
        raise ConfigError(f"unknown {what} setting {min(map(shown, unknown))}; known are {', '.join(sorted(known))}")


def check_name(name: str) -> str:
    """Return the name of a queue if it has 1 to 200 letters, digits and ``. _ - : /``; else ConfigError."""
    if not isinstance(name, str):
        raise ConfigError(f"a queue name must be a str, not {type(name).__name__}")
    if not name:
        raise ConfigError(f"a queue name must not be empty: use 1 to {MAX_NAME} of {_ALLOWED}")
    if len(name) > MAX_NAME:
        raise ConfigError(f"a queue name may have at most {MAX_NAME} characters, this one has {len(name)}")
    bad = _FORBIDDEN.search(name)
    if bad:
        raise ConfigError(f"a queue name may not hold {bad.group()!a} (at index {bad.start()}): use {_ALLOWED}")
    return name

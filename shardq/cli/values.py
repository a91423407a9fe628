"""How the words of a command line become values: numbers, times, pairs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from shardq.clock import SystemClock

TIMES: Final = "90s or 2h"
"""The form of a TIME, in the words of helps and errors."""

_TIME: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})(ms|[smhd]?)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def time(text: str) -> float:
    """A TIME in seconds: a number, with a unit or without; the library checks its bounds.

    >>> time("90"), time("15m"), time("0.5h")
    (90.0, 900.0, 1800.0)
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a time such as {TIMES}, not {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def length(text: str) -> float:
    """A TIME above 0, after which something ends."""
    value = time(text)
    if not value:
        raise argparse.ArgumentTypeError(f"must be a time above 0, such as {TIMES}, not {text!r}")
    return value


def period(text: str) -> float:
    """How often to look, in seconds: 0.05 to a day."""
    value = time(text)
    if not 0.05 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be a time from 0.05s to 1d, not {text!r}")
    return value


def moment(text: str) -> float:
    """A moment in seconds since the epoch: a date, or one with a time, in UTC; or a TIME ago.

    >>> moment("2026-11-30"), moment("2026-11-30T12:00")
    (1795996800.0, 1796040000.0)
    """
    if _TIME.fullmatch(text):
        return SystemClock().wall() - time(text)
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"must be a date, as 2026-11-30 or 2026-11-30T12:00 (UTC), or how long ago, as {TIMES}, not {text!r}"
        ) from None


def number(low: int) -> Callable[[str], int]:
    """A whole number of at least *low*."""

    def whole_number(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) or int(text) < low:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {low}, not {text!r}")
        return int(text)

    return whole_number


def numbers(low: int) -> Callable[[str], list[int]]:
    """Whole numbers of at least *low*, as 4,5,8."""
    one = number(low)
    return lambda text: [one(each) for each in text.split(",")]


def positive(text: str) -> float:
    """A number above 0."""
    if not re.fullmatch(r"\d{0,12}(\.\d{1,9})?", text, re.ASCII) or not text or not float(text):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return float(text)


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value

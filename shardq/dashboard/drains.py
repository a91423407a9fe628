"""In which time what waits is served, as scenes say it."""

from __future__ import annotations

from typing import Any, Final

from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.verdicts import tag_of

SERVED_AT_ONCE_SECONDS: Final = 1.0
"""Seconds below which what waits is served at once."""
WORDS: Final = {"empty": "-", "grows": "never: it grows", "stands": "it stands", "unknown": "not known yet"}
"""The words where there is no time to say."""


def drains(look: NumbersLook) -> dict[str, Any]:
    """Return `drains` {seconds, text, why} of a queue; and a `tag` that stands in place of it.

    It is said in seconds or in a text, and `why` is on what condition.
    """
    found = look.outlook
    seconds, text = found.drain_seconds, WORDS.get(found.drains, "")
    if found.drains == "drains" and seconds is not None and seconds < SERVED_AT_ONCE_SECONDS:
        seconds, text = None, "at once"
    if found.drains != "drains":
        seconds = None
    return {
        "drains": {"seconds": seconds, "text": text, "why": found.why if seconds is not None else ""},
        "tag": tag_of(look.verdict) if found.waits else None,
    }

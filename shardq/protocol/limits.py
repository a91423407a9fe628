"""How limits are spelled in replies."""

from __future__ import annotations

import math
from typing import Final

from shardq.model import Limits

DEFAULT = "-"


def own_limits(text: str) -> tuple[Limits | str, float]:
    """Return what `parsed_limits` does, but the name of a plan in place of its limits."""
    first, rest = text.split(" ", 1)
    if not first.startswith("="):
        return parsed_limits(text)
    return first[1:], parsed_limits(f"{DEFAULT} {rest}")[1]


def parsed_limits(text: str) -> tuple[Limits, float]:
    """Return the limits that the verb `limits` returns, and until when the shard key is paused, in ms."""
    cap, rate, burst, end = text.split(" ")
    made = Limits(
        max_in_flight=None if cap == DEFAULT else int(cap),
        rate=None if rate == DEFAULT else float(rate),
        burst=None if burst == DEFAULT else int(burst),
    )
    return made, float(end)


def end_of_pause(ms: float) -> float:
    """Return the end of a pause in seconds."""
    return math.inf if ms >= NEVER else ms / 1000


NEVER: Final = 9_000_000_000_000_000
"""The time in ms that never comes."""

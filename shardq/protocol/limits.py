"""How limits, pauses and weights are spelled in replies."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from shardq.model import Control, LimitControl, Limits, WeightControl

DEFAULT = "-"
NEVER_MS: Final = 9_000_000_000_000_000
"""The time in ms that never comes."""
NEVER_FROM_MS: Final = 9_000_000_000_000
"""Times in ms from this on never come."""


def own_limits(text: str) -> tuple[Limits | str, float]:
    """Return what `parsed_limits` does, but the name of a plan in place of its limits."""
    first, rest = text.split(" ", 1)
    if not first.startswith("="):
        return parsed_limits(text)
    return first[1:], parsed_limits(f"{DEFAULT} {rest}")[1]


def parsed_limits(text: str) -> tuple[Limits, float]:
    """Return the limits that a reply has, and until when the shard key is paused, in ms."""
    cap, rate, burst, end = text.split(" ")
    made = Limits(
        max_in_flight=None if cap == DEFAULT else int(cap),
        rate=None if rate == DEFAULT else float(rate),
        burst=None if burst == DEFAULT else int(burst),
    )
    return made, float(end)


def end_of_pause(ms: float) -> float:
    """Return the end of a pause in seconds."""
    return math.inf if ms >= NEVER_FROM_MS else ms / 1000


class Row(NamedTuple):
    """One shard key's own limits; None for those that it has not."""

    pause: Control | None
    limits: LimitControl | None
    weight: WeightControl | None


def row_of(raw: bytes) -> Row:
    """Read what the verb `limits` replies of a shard key: numbers, and a line for each thing that somebody gave."""
    numbers, *lines = raw.decode(errors="replace").split("\n")
    *own, weight, limits_end, weight_end = numbers.split(" ")
    limits, paused_until = own_limits(" ".join(own))
    whos = {line[:1]: _who(line[1:]) for line in lines}
    return Row(
        control_of(paused_until, whos.get("p")) if paused_until else None,
        None if limits == Limits() else LimitControl(limits=limits, until=_end(limits_end), **whos.get("l", {})),
        None if weight == "1" else WeightControl(weight=int(weight), until=_end(weight_end), **whos.get("w", {})),
    )


def pause_of(until: float, who: bytes) -> Control:
    """Return a pause, from its end in ms and from what is stored of who made it."""
    return control_of(until, _who(who.decode(errors="replace")))


def control_of(until: float, who: dict[str, Any] | None) -> Control:
    """Return a pause, from its end in ms."""
    return Control(until=end_of_pause(until), **(who or {}))


def _end(ms: str) -> float:
    return math.inf if ms == "0" else int(ms) / 1000


def _who(text: str) -> dict[str, Any]:
    """Return who did something, from "since", "by" and "note" with a separator between them."""
    since, _, rest = text.partition("\x1f")
    by, _, note = rest.partition("\x1f")
    return {"by": by, "note": note, "since": int(since) / 1000} if since.isdecimal() else {}

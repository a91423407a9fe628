"""When each of several backlogs is served, as if work were a fluid that flows to all of them at once.

Those that wait have equal parts for their weight, in time of work. A backlog that may have no more than a limit leaves
the rest to the others, and so does one that is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_SHARE = 0.05
"""The least part of the capacity for those that wait, however much others write meanwhile."""
_NOTHING = 1e-9


@dataclass(slots=True)
class FluidPart:
    """A backlog of `left` messages, or `count` equal ones. A message of it takes `cost` times as long as others.

    At most `top` messages a second are delivered of it, but for `credit` of them at once; and none before `free_at`
    seconds from now. It `is_paused` if that is longer than of the whole queue. `done_at` says in the end in how many
    seconds its last message is served; infinite: never.
    """

    left: float
    weight: float = 1.0
    cost: float = 1.0
    top: float = math.inf
    credit: float = 0.0
    free_at: float = 0.0
    is_paused: bool = False
    count: float = 1.0
    done_at: float = math.inf
    pace: float = 0.0

    @property
    def is_held(self) -> bool:
        """Whether it waits for a limit or a pause of its own, and not for turns alone."""
        return self.is_paused or math.isfinite(self.top)

    @property
    def most(self) -> float:
        """How many messages a second it may have now."""
        return math.inf if self.credit > _NOTHING else self.top


def flow(parts: Sequence[FluidPart], capacity: float, background: float = 0.0) -> None:
    """Work out when each of *parts* is served, at *capacity* messages a second; *background* of them are of others."""
    spare = max(capacity - background, capacity * MIN_SHARE)
    waiting = [each for each in parts if each.left > _NOTHING]
    for each in parts:
        each.done_at = 0.0 if each.left <= _NOTHING else math.inf
    now = 0.0
    # Each round one is served, uses up its credit, or may begin.
    for _ in range(3 * len(parts) + 1):
        if not waiting:
            return
        active = [each for each in waiting if each.free_at <= now + _NOTHING]
        _share(active, spare)
        step = min((_until_change(each) for each in active), default=math.inf)
        begins = min((each.free_at for each in waiting if each.free_at > now + _NOTHING), default=math.inf)
        step = min(step, begins - now)
        if not math.isfinite(step):
            return
        now += step
        for each in active:
            each.left -= each.pace * step
            if math.isfinite(each.top) and each.credit > _NOTHING:
                each.credit -= max(0.0, each.pace - each.top) * step
        waiting = _still_waiting(waiting, now)


def _until_change(part: FluidPart) -> float:
    if part.pace <= 0:
        return math.inf
    found = part.left / part.pace
    if part.credit > _NOTHING and part.pace > part.top:
        found = min(found, part.credit / (part.pace - part.top))
    return found


def _still_waiting(waiting: list[FluidPart], now: float) -> list[FluidPart]:
    found = []
    for each in waiting:
        # In large numbers less than this is lost in the last digits.
        if each.left <= _NOTHING + 1e-12 * now * max(1.0, each.pace if math.isfinite(each.pace) else 1.0):
            each.done_at = now
        else:
            found.append(each)
    return found


def _share(active: Sequence[FluidPart], spare: float) -> None:
    """Give each its pace: equal parts by weight; if some may have less, the rest goes to the others."""
    # Those that their limits stop first come first.
    order = sorted(active, key=lambda each: each.most * each.cost / each.weight)
    weights = sum(each.weight * each.count for each in order)
    for each in order:
        level = spare / weights if weights > _NOTHING else 0.0
        each.pace = min(each.most, level * each.weight / each.cost)
        spare = max(0.0, spare - each.pace * each.cost * each.count)
        weights -= each.weight * each.count

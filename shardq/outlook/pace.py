"""How fast a queue is served, and how much is written to it, by what its workers told and the minutes before."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from shardq.model.minute import Minute
from shardq.outlook.facts import Facts

MINUTE = 60.0
RECENT_SECONDS = 240.0
"""Seconds for which a minute tells of the present."""
USUAL_SECONDS = 1800.0
"""Seconds whose minutes tell what is usual."""
FULL_SHARE = 0.9
"""The share of busy slots from which on workers can do no more."""
MANY_WAITING = 20
"""Messages that wait of a shard key from which on it is one of those that make others wait."""


class DrainPace(msgspec.Struct, frozen=True):
    """How fast a queue is served. All are messages a second, or seconds; None where nobody knows.

    `rate` are done, `written` are written, both as in the last minutes. `capacity` could be done if enough waited.
    `background` are of shard keys that do not wait long: they are served beside the others. `seconds` is what a job
    takes. `is_young` says that there are too few minutes to tell what is written.
    """

    rate: float | None
    written: float | None
    capacity: float | None
    background: float
    seconds: float | None
    is_young: bool
    slots: int
    busy: float
    workers: int

    @property
    def grows(self) -> bool:
        """Whether as much or more is written than can be done."""
        return self.written is not None and self.capacity is not None and self.written > 0.98 * self.capacity


def pace_of(facts: Facts) -> DrainPace:
    """Return how fast the queue is served."""
    now = facts.now
    lately = [each for each in facts.minutes if now - each.at <= RECENT_SECONDS][-3:]
    told = _told_rate(facts)
    past = _mean([each.done / MINUTE for each in lately if each.done is not None])
    rate = max((each for each in (told, past) if each is not None), default=None)
    usual = [
        each.written / MINUTE for each in facts.minutes if each.written is not None and now - each.at <= USUAL_SECONDS
    ]
    written, is_young = _written(lately, usual, rate)
    factor = facts.worker_factor
    slots = factor * sum(each.slots for each in facts.working)
    busy = factor * sum(each.busy for each in facts.working)
    seconds = _seconds(facts, told, busy)
    capacity = _capacity(facts, lately, rate, seconds, slots, busy)
    return DrainPace(
        rate=rate,
        written=written,
        capacity=capacity,
        background=_background(facts, rate, written, usual),
        seconds=seconds,
        is_young=is_young,
        slots=round(slots),
        busy=busy,
        workers=round(factor * len(facts.working)),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _told_rate(facts: Facts) -> float | None:
    """Return how many jobs a second its workers did in their last minute, by themselves."""
    found = None
    for each in facts.working:
        # One that began less than a minute ago did them in less.
        lived = min(MINUTE, max(1.0, each.heard - each.started))
        found = (found or 0.0) + (each.done + each.failed) / lived
    return found * facts.worker_factor if found else None


def _written(lately: Sequence[Minute], usual: Sequence[float], rate: float | None) -> tuple[float | None, bool]:
    """Return how many are written a second, and whether there are too few minutes to tell.

    A minute with far more writes than others says nothing of those to come: the middle one of three counts.
    """
    counted = [each.written / MINUTE for each in lately if each.written is not None]
    if len(counted) >= 3:
        return median(counted), False
    if not counted:
        return None, True
    last = counted[-1]
    # Nobody can say whether a burst continues.
    return (None, True) if rate is not None and last >= rate and len(usual) < 3 else (last, False)


def _seconds(facts: Facts, told: float | None, busy: float) -> float | None:
    """Return the mean time of a job."""
    tasks = [each for worker in facts.working for each in worker.tasks]
    jobs = sum(each.done + each.failed for each in tasks)
    if jobs:
        return max(1e-6, sum((each.done + each.failed) * each.seconds for each in tasks) / jobs)
    # As many run at once as come in the time that one takes (Little's law).
    return busy / told if told and busy > 0.05 else None


def _capacity(
    facts: Facts, lately: Sequence[Minute], rate: float | None, seconds: float | None, slots: float, busy: float
) -> float | None:
    """Return how many could be done a second."""
    found = rate
    was_full = bool(lately) and _was_full(lately[-1])
    is_full = not slots or busy >= FULL_SHARE * slots
    if slots and not (was_full and is_full):
        # In the last minute not all slots were used, so its rate says less than what a job takes.
        found = max(rate or 0.0, slots / seconds) if seconds else (rate * slots / max(busy, 0.5) if rate else None)
    if facts.waiters.total_rate and found is not None:
        found = min(found, facts.waiters.total_rate)
    if facts.waiters.total_in_flight and seconds and found is not None:
        found = min(found, facts.waiters.total_in_flight / seconds)
    return found or None


def _was_full(minute: Minute) -> bool:
    return minute.runnable > 2 * minute.slots or minute.busy >= FULL_SHARE * minute.slots > 0


def _background(facts: Facts, rate: float | None, written: float | None, usual: Sequence[float]) -> float:
    """Return how many messages a second are of shard keys that do not wait long."""
    found = min(written or 0.0, median(usual)) if usual else written or 0.0
    rows = [each for worker in facts.working for each in worker.tenants]
    if not rows or rate is None:
        return found
    large = {each.shard_key for each in facts.waiters.rows if each.backlog >= MANY_WAITING}
    of_large = facts.worker_factor * sum(each.done for each in rows if each.shard_key in large) / MINUTE
    return min(max(0.0, rate - of_large), written if written is not None else rate)

"""The effect of a change on those that wait, before it is made: it is reckoned as the outlook is, with the change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as with_parts
from typing import Final

from msgspec.structs import replace

from shardq.model.waiter import Waiter
from shardq.model.wording import span
from shardq.outlook.crowd import Served, crowd_of, part_of
from shardq.outlook.facts import Facts
from shardq.outlook.fluid import FluidPart
from shardq.outlook.pace import pace_of

Key = str | bytes
Change = Callable[[Waiter], Waiter]

MIN_CHANGE: Final = 0.5
"""Seconds by which a wait changes at least, if that is shown."""
LONG_WAIT_SECONDS: Final = 60.0
"""Seconds from which on it is a warning that others wait longer."""


@dataclass(frozen=True, slots=True)
class Effect:
    """When waiting messages are served, before a change and after it: those of one shard key (`own`), and the others.

    All are seconds; None where nobody knows, or where it is never served as things stand. `is_known` says whether the
    queue is served at a pace that is known, so that a change of the others' wait would be seen.
    """

    is_known: bool
    own_before: float | None = None
    own_after: float | None = None
    others_before: float | None = None
    others_after: float | None = None

    @property
    def longer(self) -> float | None:
        """How many seconds longer the others wait; less than 0 if they wait shorter. None where nobody knows."""
        if self.others_before is None or self.others_after is None:
            return None
        return self.others_after - self.others_before

    def on_others(self, *, at_most: bool = False) -> str:
        """Return what it means for the others, as a sentence; '' where nobody knows. *at_most*: it may be less.

        >>> Effect(True, others_before=8.0, others_after=11.0).on_others()
        'The others wait 3.0 s longer: their messages are served in 11 s instead of 8.0 s.'
        >>> Effect(True, others_before=480.0, others_after=12.0).on_others()
        'The messages of the others are served in 12 s instead of 8 min.'
        >>> Effect(True, others_before=0.0, others_after=0.2).on_others()
        'Nobody else waits longer.'
        """
        if not self.is_known or self.longer is None:
            return ""
        if abs(self.longer) < MIN_CHANGE:
            return "Nobody else waits longer."
        times = f"served in {span(self.others_after)} instead of {span(self.others_before)}"
        if self.longer < 0:
            return f"The messages of the others are {times}."
        most = "at most " if at_most else ""
        return f"The others wait {most}{span(self.longer)} longer: their messages are {times}."


class Foresight:
    """The effects of changes on those that wait in one queue, by *facts* of one look at it."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._pace = pace_of(facts)
        self._crowd = crowd_of(facts, self._pace)

    @property
    def has_reader(self) -> bool:
        """Whether anybody reads the queue."""
        return self._facts.has_reader

    @property
    def capacity(self) -> float | None:
        """How many messages a second could be done; None where nobody knows, or nobody reads."""
        return self._pace.capacity if self._facts.has_reader else None

    @property
    def written(self) -> float | None:
        """How many messages a second are written; None where nobody knows."""
        return self._pace.written

    @property
    def spare(self) -> float | None:
        """How many messages a second could be done beside those that are written; None as of `capacity`."""
        return None if self.capacity is None else max(0.0, self.capacity - (self._pace.written or 0.0))

    def without(self, key: Key) -> Effect:
        """If nothing of *key* were delivered, as in a pause, or after a purge."""
        if (before := self._served()) is None:
            return Effect(is_known=False)
        after = self._served(without=key)
        return self._effect(key, before, after or before)

    def resumed(self, key: Key) -> Effect:
        """If *key* were not paused."""
        return self._changed(key, lambda one: replace(one, paused_until=None))

    def all_resumed(self) -> Effect:
        """If the queue were not paused: `own_after` is when all is served that waits."""
        free = replace(self._facts, stats=replace(self._facts.stats, paused_until=None))
        pace = pace_of(free)
        if not free.has_reader or not pace.capacity:
            return Effect(is_known=False)
        last = crowd_of(free, pace).served(pace.capacity, pace.background).last()
        return Effect(is_known=True, own_after=_known(last))

    def limited(self, key: Key, *, rate: float | None, max_in_flight: int | None, weight: int | None = None) -> Effect:
        """If *key* had these limits (None or 0: no such limit), and this weight (None: the one it has)."""

        def change(one: Waiter) -> Waiter:
            limits = {"rate": rate or 0.0, "max_in_flight": max_in_flight or 0, "allowance": None}
            return replace(one, **limits, weight=weight or one.weight)

        return self._changed(key, change)

    def weighed(self, key: Key, weight: int) -> Effect:
        """If *key* had this weight."""
        return self._changed(key, lambda one: replace(one, weight=weight))

    def added(self, count: int, rate: float | None) -> Effect:
        """If *count* more messages came, *rate* of them a second (None: at once), and were all served before others.

        They are served by turns, so the others wait at most so long.
        """
        if (before := self._served()) is None or not self._pace.capacity:
            return Effect(is_known=False)
        first = before.last()
        most = count / self._pace.capacity
        if rate:
            slower = self._crowd.served(self._pace.capacity, self._pace.background + rate).last()
            most = min(most, max(0.0, slower - first)) if math.isfinite(slower) else most
        return Effect(is_known=True, others_before=_known(first), others_after=_known(first + most))

    def _served(self, *, without: Key | None = None, changed: dict[Key, FluidPart] | None = None) -> Served | None:
        if not self._facts.has_reader or not self._pace.capacity or self._facts.paused_until is not None:
            return None
        return self._crowd.served(self._pace.capacity, self._pace.background, changed=changed, without=without)

    def _changed(self, key: Key, change: Change) -> Effect:
        if (before := self._served()) is None:
            return Effect(is_known=False)
        one = next((each for each, _ in self._crowd.shown if each.shard_key == key), None)
        if one is None:  # it is too small to matter
            return self._effect(key, before, before)
        part = part_of(self._facts, self._pace, change(one))
        had = next(part for each, part in self._crowd.shown if each is one)
        after = self._served(changed={key: with_parts(part, cost=had.cost)})
        return self._effect(key, before, after or before)

    def _effect(self, key: Key, before: Served, after: Served) -> Effect:
        return Effect(
            is_known=True,
            own_before=_known(before.of(key)) if key in before.own else None,
            own_after=_known(after.of(key)) if key in after.own else None,
            others_before=_known(before.last(beside=key)),
            others_after=_known(after.last(beside=key)),
        )


def _known(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None

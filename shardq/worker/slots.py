"""The slots for handlers that the queues of one worker share, by their weights.

Each queue has its part of the slots, and at least one. A queue is idle if nothing of it waited when its last read
ended. It lends its part, but for what the next message of any idle queue needs: one slot, and more if idle queues have
lately used more. So its reads have no slot while they wait. If messages come for which none is free, those are given
back, and other workers may have them.

From then on it needs its part again: it gets slots as handlers of the others end, before any of these starts another
one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from shardq.errors import ConfigError

ASKED: Final = 2
"""For how many messages a read of an idle queue asks: the next one, and one that shows that there are more."""
WAITED: Final = 0.25
"""A read that took so many seconds has waited, so its queue was empty."""
RECENT: Final = 32
"""The mean of the slots that idle queues need is that of about their last 32 messages."""


class Slots:
    """*total* slots for queues with these *weights*. Safe across threads."""

    def __init__(self, total: int, weights: Sequence[int]) -> None:
        if total < len(weights):
            raise ConfigError(f"concurrency must be at least {len(weights)}, one slot for each queue, not {total}")
        self._total, self._parts = total, parts(total, weights)
        self._taken = [0] * len(weights)  # by handlers, by messages that wait for one, and by reads
        self._is_idle = [True] * len(weights)
        self._asked = [0] * len(weights)  # for how many messages the read asks that is under way
        self._of_read = [0] * len(weights)  # how many slots it has
        self._given_back = [0] * len(weights)  # how many messages its last read brought for which there was no slot
        self._wants = [False] * len(weights)
        self._all_taken = self._all_needed = self._idle_taken = 0
        self._idle = len(weights)
        self._used = 0.0  # the mean of slots that idle queues had when a message of one came
        self._lock = threading.Lock()
        self.nudges: list[Callable[[], object]] = []
        """One for each queue, called when it may take slots now of which it got none. It must not wait for a lock."""

    def share(self, number: int) -> Share:
        """Return what queue *number* sees of the slots."""
        return Share(self, number)

    def free(self, number: int) -> int:
        """Return for how many messages a read of queue *number* may ask now."""
        with self._lock:
            return self._free(number)

    def _free(self, number: int) -> int:
        """As `free`. That it wants more is noted within the lock: else who gives some meanwhile would not tell it."""
        left = self._total - self._all_taken
        if self._is_idle[number]:
            found = ASKED if left > 0 else 0
        else:
            lent = self._total - self._all_needed + self._needed(number) - self._taken[number] - self._kept()
            found = max(0, lent, min(left, self._parts[number] - self._taken[number]))
        if not found:
            self._wants[number] = True
        return found

    def _needed(self, number: int) -> int:
        return self._taken[number] if self._is_idle[number] else max(self._taken[number], self._parts[number])

    def _kept(self) -> int:
        """Return how many slots are kept for the next messages of idle queues."""
        # As many as will do for messages that come at random: their mean number, and twice its deviation.
        needed = round(self._used + 2 * math.sqrt(self._used))
        return 1 + max(0, needed - self._idle_taken) if self._idle else 0

    def _change(self, number: int, taken: int, *, is_idle: bool) -> None:
        """Queue *number* has so many slots *taken*, and is idle or not."""
        self._count(number, -1)
        self._taken[number], self._is_idle[number] = taken, is_idle
        self._count(number, 1)

    def _count(self, number: int, sign: int) -> None:
        self._all_taken += sign * self._taken[number]
        self._all_needed += sign * self._needed(number)
        if self._is_idle[number]:
            self._idle += sign
            self._idle_taken += sign * self._taken[number]

    def take(self, number: int, wanted: int) -> int:
        """A read of queue *number* begins. Return for how many messages it may ask, of those that are *wanted*.

        That of an idle queue gets no slots.
        """
        with self._lock:
            asked = self._asked[number] = min(wanted, self._free(number))
            self._of_read[number] = 0 if self._is_idle[number] else asked
            self._change(number, self._taken[number] + self._of_read[number], is_idle=self._is_idle[number])
            return asked

    def came(self, number: int, count: int, took: float) -> int:
        """The read of queue *number* brought *count* messages in *took* seconds. Return how many have no slot.

        Each has one nevertheless until it is given back.
        """
        with self._lock:
            had, left, used = self._of_read[number], self._total - self._all_taken, self._idle_taken
            is_idle = self._is_all(number, count, took)
            self._change(number, self._taken[number] - had + count, is_idle=is_idle)
            # The first one may have a slot that is kept.
            begin = count if had else max(0, min(1, left), left - self._kept())
            over = self._given_back[number] = max(0, count - begin)
            if over:
                self._change(number, self._taken[number], is_idle=False)
            if count and not had:
                self._used += (used + over - self._used) / RECENT
            told = self._told(number)
        self._nudge(told)
        return over

    def _is_all(self, number: int, count: int, took: float) -> bool:
        """Whether the *count* messages that a read brought are most likely all that queue *number* has.

        That a read asks for one, and brings it, says nothing, unless it has waited, or that one was given back before
        and is the only one that has a slot.
        """
        if self._asked[number] > 1 or not count:
            return count < ASKED
        return took > WAITED or self._given_back[number] == self._taken[number] == 1

    def give(self, number: int, count: int) -> None:
        """Give back *count* slots of queue *number*."""
        with self._lock:
            self._change(number, self._taken[number] - count, is_idle=self._is_idle[number])
            told = self._told(number)
        self._nudge(told)

    def failed(self, number: int) -> None:
        """Give back the slots of a read that failed."""
        self.give(number, self._of_read[number])

    def _told(self, number: int) -> list[int]:
        """Return who may take slots now and could not before, other than queue *number*."""
        if self._all_taken >= self._total:
            return []
        told = [other for other, wants in enumerate(self._wants) if wants and other != number]
        for other in told:
            self._wants[other] = False
        return told

    def _nudge(self, told: Sequence[int]) -> None:
        for other in told:
            self.nudges[other]()


class Share:
    """What one queue sees of the slots that it shares with others."""

    def __init__(self, slots: Slots, number: int) -> None:
        self._slots, self._number = slots, number

    def free(self) -> int:
        """Return for how many messages a read may ask now."""
        return self._slots.free(self._number)

    def take(self, wanted: int) -> int:
        """A read begins. Return for how many messages it may ask, of those that are *wanted*."""
        return self._slots.take(self._number, wanted)

    def came(self, count: int, took: float) -> int:
        """It brought *count* messages in *took* seconds. Return how many of them have no slot: those are given back."""
        return self._slots.came(self._number, count, took)

    def failed(self) -> None:
        """It failed."""
        self._slots.failed(self._number)

    def give(self, count: int) -> None:
        """Give back *count* slots."""
        self._slots.give(self._number, count)


def shares(total: int, weights: Sequence[int]) -> tuple[Slots | None, Sequence[Share | None]]:
    """Return the slots of queues with these *weights*, and what each sees of them; None for one, which has them all."""
    if len(weights) == 1:
        return None, [None]
    slots = Slots(total, weights)
    return slots, [slots.share(number) for number in range(len(weights))]


def parts(total: int, weights: Sequence[int]) -> list[int]:
    """Divide *total* by *weights*: each has at least 1, and what is left goes to the largest remainders.

    >>> parts(10, [3, 1]), parts(3, [100, 1, 1])
    ([7, 3], [1, 1, 1])
    """
    left = total - len(weights)
    exact = [left * weight / sum(weights) for weight in weights]
    found = [1 + int(part) for part in exact]
    by_remainder = sorted(range(len(weights)), key=lambda at: int(exact[at]) - exact[at])
    for at in by_remainder[: total - sum(found)]:
        found[at] += 1
    return found

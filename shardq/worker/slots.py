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

IDLE_READ_MESSAGES: Final = 2
"""For how many messages a read of an idle queue asks: the next one, and one that shows that there are more."""
WAITED_SECONDS: Final = 0.25
"""Seconds after which a read has waited, so its queue was empty."""
RECENT_MESSAGES: Final = 32
"""Messages, the last ones, whose mean says how many slots idle queues need."""


class QueueSlots:
    """*total* slots for queues with these *weights*: each has one of the `shares`, which are safe across threads."""

    def __init__(self, total: int, weights: Sequence[int]) -> None:
        if total < len(weights):
            raise ConfigError(f"concurrency must be at least {len(weights)}, one slot for each queue, not {total}")
        self.lock = threading.Lock()
        self.total = total
        self.taken = self.needed = self.idle_taken = 0
        self.idle = 0
        """How many queues are idle."""
        self.used = 0.0
        """The mean of slots that idle queues had when a message of one came."""
        self.shares = [SlotShare(self, part) for part in parts(total, weights)]

    def kept(self) -> int:
        """Return how many slots are kept for the next messages of idle queues."""
        # As many as will do for messages that come at random: their mean number, and twice its deviation.
        needed = round(self.used + 2 * math.sqrt(self.used))
        return 1 + max(0, needed - self.idle_taken) if self.idle else 0


class SlotShare:
    """One queue's share of *slots*; *part* of them are its own."""

    def __init__(self, slots: QueueSlots, part: int) -> None:
        self._slots, self.part = slots, part
        self._taken = 0  # by handlers, by messages that wait for one, and by reads
        self._is_idle = True
        self._asked = 0  # for how many messages the read asks that is under way
        self._of_read = 0  # how many slots it has
        self._given_back = 0  # how many messages its last read brought for which there was no slot
        self._wants = False
        self.nudge: Callable[[], object] = lambda: None
        """Called when this may take slots now and got none before. It must not wait for a lock."""
        self._count(1)

    def free(self) -> int:
        """Return for how many messages a read may ask now."""
        with self._slots.lock:
            return self._free()

    def _free(self) -> int:
        """As `free`. That it wants more is noted within the lock: else who gives some meanwhile would not tell it."""
        slots = self._slots
        left = slots.total - slots.taken
        if self._is_idle:
            found = IDLE_READ_MESSAGES if left > 0 else 0
        else:
            lent = slots.total - slots.needed + self._needed - self._taken - slots.kept()
            found = max(0, lent, min(left, self.part - self._taken))
        if not found:
            self._wants = True
        return found

    @property
    def _needed(self) -> int:
        return self._taken if self._is_idle else max(self._taken, self.part)

    def _change(self, taken: int, *, is_idle: bool) -> None:
        """This many slots are *taken* now, and the queue is idle or not."""
        self._count(-1)
        self._taken, self._is_idle = taken, is_idle
        self._count(1)

    def _count(self, sign: int) -> None:
        slots = self._slots
        slots.taken += sign * self._taken
        slots.needed += sign * self._needed
        if self._is_idle:
            slots.idle += sign
            slots.idle_taken += sign * self._taken

    def take(self, wanted: int) -> int:
        """A read begins. Return for how many messages it may ask, among those that are *wanted*.

        That of an idle queue gets no slots.
        """
        with self._slots.lock:
            self._asked = min(wanted, self._free())
            self._of_read = 0 if self._is_idle else self._asked
            self._change(self._taken + self._of_read, is_idle=self._is_idle)
            return self._asked

    def came(self, count: int, took: float) -> int:
        """The read brought *count* messages in *took* seconds. Return how many have no slot: those are given back.

        Each has one nevertheless until then.
        """
        slots = self._slots
        with slots.lock:
            had, left, used = self._of_read, slots.total - slots.taken, slots.idle_taken
            self._change(self._taken - had + count, is_idle=self._is_all(count, took))
            # The first one may have a slot that is kept.
            begin = count if had else max(0, min(1, left), left - slots.kept())
            over = self._given_back = max(0, count - begin)
            if over:
                self._change(self._taken, is_idle=False)
            if count and not had:
                slots.used += (used + over - slots.used) / RECENT_MESSAGES
            told = self._told()
        _nudge(told)
        return over

    def _is_all(self, count: int, took: float) -> bool:
        """Whether the *count* messages that a read brought are most likely all that the queue has.

        That a read asks for one, and brings it, says nothing, unless it has waited, or that one was given back before
        and is the only one that has a slot.
        """
        if self._asked > 1 or not count:
            return count < IDLE_READ_MESSAGES
        return took > WAITED_SECONDS or self._given_back == self._taken == 1

    def give(self, count: int) -> None:
        """Give back *count* slots."""
        with self._slots.lock:
            self._change(self._taken - count, is_idle=self._is_idle)
            told = self._told()
        _nudge(told)

    def failed(self) -> None:
        """Give back the slots of a read that failed."""
        self.give(self._of_read)

    def _told(self) -> list[SlotShare]:
        """Return the others that may take slots now and could not before."""
        if self._slots.taken >= self._slots.total:
            return []
        told = [other for other in self._slots.shares if other._wants and other is not self]
        for other in told:
            other._wants = False
        return told


def _nudge(told: Sequence[SlotShare]) -> None:
    for each in told:
        each.nudge()


def shares(total: int, weights: Sequence[int]) -> Sequence[SlotShare | None]:
    """Return what each queue with these *weights* sees of the slots; None for a single one, which has them all."""
    return QueueSlots(total, weights).shares if len(weights) > 1 else [None]


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

"""The slots for handlers that the queues of one worker share, by their weights.

Each queue has its part of the slots, and at least one. What a queue does not need the others use: one whose last read
found nothing keeps one slot, for its next message, and lends the rest. When it finds messages again it gets its part
back as handlers of the others end, before any of these starts another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shardq.errors import ConfigError


class Slots:
    """*total* slots for queues with these *weights*. Safe across threads."""

    def __init__(self, total: int, weights: Sequence[int]) -> None:
        if total < len(weights):
            raise ConfigError(f"concurrency must be at least {len(weights)}, one slot for each queue, not {total}")
        self._total, self._parts = total, parts(total, weights)
        self._taken = [0] * len(weights)
        self._is_idle = [False] * len(weights)
        self._wants = [False] * len(weights)
        self._lock = threading.Lock()
        self.nudges: list[Callable[[], object]] = []
        """One for each queue, called when it may take slots now of which it got none. It must not wait for a lock."""

    def share(self, number: int) -> Share:
        """Return what queue *number* sees of the slots."""
        return Share(self, number)

    def free(self, number: int) -> int:
        """Return how many more slots queue *number* may take now."""
        with self._lock:
            return self._free(number)

    def _free(self, number: int) -> int:
        """As `free`. That it wants more is noted within the lock: else who gives some meanwhile would not tell it."""
        if self._is_idle[number]:
            return max(0, 1 - self._taken[number])
        others = sum(self._needed(each) for each in range(len(self._parts)) if each != number)
        found = max(0, self._total - others - self._taken[number])
        if not found:
            self._wants[number] = True
        return found

    def _needed(self, number: int) -> int:
        return max(self._taken[number], 1 if self._is_idle[number] else self._parts[number])

    def take(self, number: int, wanted: int) -> int:
        """Take up to *wanted* slots for queue *number*, and return how many it got."""
        with self._lock:
            got = min(wanted, self._free(number))
            self._taken[number] += got
            return got

    def give(self, number: int, count: int, *, is_idle: bool | None = None) -> None:
        """Give back *count* slots of queue *number*. *is_idle* says whether a read of it has found nothing."""
        with self._lock:
            self._taken[number] -= count
            if is_idle is not None:
                self._is_idle[number] = is_idle
            told = [other for other, wants in enumerate(self._wants) if wants and other != number]
            for other in told:
                self._wants[other] = False
        for other in told:
            self.nudges[other]()


class Share:
    """What one queue sees of the slots that it shares with others."""

    def __init__(self, slots: Slots, number: int) -> None:
        self._slots, self._number = slots, number

    def free(self) -> int:
        """Return how many more slots it may take now."""
        return self._slots.free(self._number)

    def take(self, wanted: int) -> int:
        """Take up to *wanted* slots, and return how many it got."""
        return self._slots.take(self._number, wanted)

    def give(self, count: int, *, is_idle: bool | None = None) -> None:
        """Give back *count* slots. *is_idle* says whether a read has found nothing."""
        self._slots.give(self._number, count, is_idle=is_idle)


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

"""Away: the partitions of a queue that do not answer one client, and that its reads leave out for now. No I/O.

A call that is late continues, and its partition is left out until it ends. A partition that fails is left out until a
probe is answered: readers send one now and then, which is later each time. If all are away, none is left out: then a
read waits for all, and says what went wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from shardq.errors import BackendError
from shardq.partitions.turns import PartitionTurns

FIRST_RETRY: Final = 0.1
MAX_RETRY: Final = 2.0
"""Seconds until a partition that failed is probed; each time twice as long."""


class Away:
    """The partitions that are away, out of *count*.

    *now* is the local clock. Not safe across threads: a client locks it.
    """

    def __init__(self, turns: PartitionTurns, partitions: int, now: Callable[[], float]) -> None:
        self._turns, self._partitions, self._now = turns, partitions, now
        self._late: dict[int, int] = {}  # how many calls are late
        self._failed: dict[
            int, tuple[BackendError, float, float]
        ] = {}  # with what, when to probe, the pause before that
        self.numbers: frozenset[int] = frozenset()

    @property
    def is_late(self) -> bool:
        """Whether a call is late."""
        return bool(self._late)

    @property
    def failure(self) -> BackendError | None:
        """The error if all partitions have failed."""
        failed = [*self._failed.values()]  # at once: another thread may hear of one meanwhile
        return failed[0][0] if len(failed) == self._partitions else None

    def late(self, number: int) -> None:
        """Note that a call is late. `ended` says how it ends."""
        self._late[number] = self._late.get(number, 0) + 1
        self._note()

    def ended(self, number: int, outcome: object) -> None:
        """Note the result, or the error, of a call that was late."""
        left = self._late.pop(number, 0) - 1
        if left > 0:
            self._late[number] = left
        self.heard(number, outcome)

    def heard(self, number: int, outcome: object) -> None:
        """Note what a call ended with: a `BackendError` says that the partition does not answer.

        An outcome of one that has left does not count: nobody could probe it.
        """
        if isinstance(outcome, BackendError) and number < self._partitions:
            _, _, pause = self._failed.get(number, (None, 0.0, FIRST_RETRY / 2))
            pause = min(MAX_RETRY, 2 * pause)
            self._failed[number] = (outcome, self._now() + pause, pause)
        else:
            self._failed.pop(number, None)
        self._note()

    def to_probe(self) -> list[int]:
        """Return which partitions to probe now; the caller tells `heard` of each what came of that."""
        now = self._now()
        found = [number for number, (_, at, _) in self._failed.items() if at <= now and number not in self._late]
        for number in found:
            error, _, pause = self._failed[number]
            self._failed[number] = (error, math.inf, pause)
        return found

    def _note(self) -> None:
        self.numbers = frozenset([*self._late, *self._failed])
        self._turns.out = self.numbers if len(self.numbers) < self._partitions else frozenset()

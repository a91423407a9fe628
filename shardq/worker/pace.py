"""How far a worker reads ahead of its handlers: it follows how long these take, and what the last read brought.

If a worker read whenever a handler ends, each job would cost a read and an ack. So behind a backlog a few messages are
read ahead: handlers that end begin with these, and the next read comes when all have begun. It is one for all these
handlers, piggybacks their acks, and leaves no slot idle.
"""

from __future__ import annotations

from typing import Final

SHORT_JOB_SECONDS: Final = 0.01
"""Seconds: while handlers take less on average, as many messages are read ahead as the program allows. One that is
read ahead waits for a handler of this worker, even if another worker is free: that is worth a round trip, and no more.
"""

LONG_JOB_SECONDS: Final = 0.5
"""Seconds: while handlers take more on average, nothing is read ahead, since reads are rare then."""

READ_AHEAD_DIVISOR: Final = 6
"""Between the two a worker reads a sixth of its slots ahead. This part of the handlers ends within a sixth of their
mean time.
"""

PART_OF_MEAN: Final = 0.25
"""The worker looks whether what was read ahead has begun after a quarter of the handlers' mean time."""

PART_OF_LEASE: Final = 1 / 12
"""It looks after a twelfth of a lease at most: acks wait for two looks, and nobody extends their leases."""

MAX_RESTS: Final = 32
"""If what was read ahead waits in vain, since all handlers began together and end together, as they do that each take
the same time, the worker reads nothing ahead while as many handlers end as it has slots; each time twice as long, and
at most for 32 times that many."""

RECENT_JOBS: Final = 16
"""Jobs, the last ones, whose mean time counts."""


class Pace:
    """The pace of one worker with *slots* slots, which may read *most* messages ahead of short handlers.

    `lasts` is for how many seconds a lease lasts.
    """

    def __init__(self, slots: int, most: int) -> None:
        self._slots, self._part, self._most = slots, slots // READ_AHEAD_DIVISOR, most
        self._mean = -1.0  # of the seconds that handlers took lately; negative before the first one
        self._asked = 0  # for how many messages the last read asks
        self._ended = 0  # how many handlers have ended since it began
        self._rest = 0  # while how many handlers end it rests, the next time that it waits in vain
        self._rests_for = 0  # of how many ends this rest still is
        self._is_full = False  # whether the last read that is over brought all that it asked for
        self.is_short = False
        """Whether handlers take so little that the program says how much is read ahead."""
        self.lasts = 0.0

    @property
    def ahead(self) -> int:
        """For how many messages a read asks beyond the free slots.

        There are never more than handlers have ended lately: those of a worker that hangs shall not wait there.
        """
        if self.is_short:
            return self._most
        return min(self._part, self._ended) if self.is_behind and not self._rests_for else 0

    @property
    def is_behind(self) -> bool:
        """Whether there is a backlog and this worker reads ahead of it: a read returns soon then."""
        return self._is_full and self._part > 0 and SHORT_JOB_SECONDS <= self._mean <= LONG_JOB_SECONDS

    @property
    def patience(self) -> float:
        """In how many seconds it is looked at what was read ahead, and at the acks that wait for a read."""
        return min(PART_OF_MEAN * min(self._mean, LONG_JOB_SECONDS), PART_OF_LEASE * self.lasts)

    def reads(self, asked: int) -> None:
        """Note that a read begins."""
        self._asked, self._ended = asked, 0

    def has_read(self, found: int) -> None:
        """Note how many messages the read brought."""
        self._is_full = found == self._asked

    def has_waited(self, *, in_vain: bool) -> None:
        """Note that what was read ahead has begun, or that nothing of it has and it is given back."""
        if in_vain:
            self._rests_for = max(self._slots, self._rest)
            self._rest = min(2 * self._rests_for, MAX_RESTS * self._slots)
        else:
            self._rest //= 2

    def has_ended(self, took: float) -> None:
        """Note that a handler has ended, which *took* this many seconds."""
        self._ended += 1
        self._rests_for = max(0, self._rests_for - 1)
        before = self._mean
        self._mean = mean = took if before < 0 else before + (took - before) / RECENT_JOBS
        self.is_short = mean < SHORT_JOB_SECONDS

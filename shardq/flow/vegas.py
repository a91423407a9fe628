"""A window that keeps a few messages queued on the way, as TCP Vegas does.

A message that meets no queue takes the base round trip. With w messages in flight and a round trip r, about w - w *
base / r messages are queued somewhere: in the network, at the gateway, before Redis. While fewer than LOW are queued,
the window grows by one in a round trip; while more than HIGH are, it shrinks by one (Brakmo, O'Malley & Peterson, "TCP
Vegas: New Techniques for Congestion Detection and Avoidance", SIGCOMM 1994). At first it doubles in each round trip.

A base that is the least of all round trips is never corrected: when the way becomes longer, everything looks queued. So
the base expires. For a round trip the window is made small enough to empty the queue, and the base is measured again,
as BBR does (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016).
"""

from __future__ import annotations

import math
from typing import Final

LOW_MARK, HIGH_MARK = 4, 8
"""How many messages should be queued: not fewer, not more. The path is never idle, and an ack waits little.

A server that takes what waits all at once needs more of them: a call's worth should wait while a call is under way.
"""

EXPIRES: Final = 5.0
"""Seconds after which the base is measured again."""


class Vegas:
    """The window of TCP Vegas, between *least* and *most* messages; *low* to *high* messages should be queued."""

    def __init__(
        self, *, first: int = 10, least: int = 4, most: int = 10_000, low: int = LOW_MARK, high: int = HIGH_MARK
    ) -> None:
        self._least, self._most = least, most
        self._low, self._high = low, high
        self._size = float(first)
        self._doubles = True
        self._base, self._base_ends = math.inf, -math.inf
        self._restores = 0.0  # the size to go back to after a measurement; 0 if none is on
        self._sum, self._count, self._round = 0.0, 0, first  # of the present round trip: acks, and how many end it
        self._shortest, self._peak = math.inf, 0  # acks come many at once, so the last one finds few in flight

    @property
    def size(self) -> int:
        """How many messages may be in flight."""
        return int(self._size)

    def acked(self, round_trip: float, in_flight: int, now: float) -> None:
        """Take a round trip; at the end of each window of acks the size changes."""
        self._sum, self._count = self._sum + round_trip, self._count + 1
        self._shortest = min(self._shortest, round_trip)
        self._base = min(self._base, round_trip)
        self._peak = max(self._peak, in_flight)
        if self._count >= self._round:
            self._end_round(now)

    def timed_out(self, now: float) -> None:
        """Halve the window, and measure the base again."""
        self._set(self._size / 2)
        self._doubles, self._base_ends, self._restores = False, now, 0.0

    def _end_round(self, now: float) -> None:
        mean = self._sum / self._count
        queued = self._size * (1 - self._base / mean) if mean > 0 else 0.0
        if self._restores:
            self._base, self._base_ends = self._shortest, now + EXPIRES
            self._set(self._restores)
            self._restores = 0.0
        elif self._base_ends == -math.inf:
            self._base_ends = now + EXPIRES
            self._change(queued)
        elif now >= self._base_ends:
            self._restores = self._size
            self._set(self._size - queued - self._high)
        else:
            self._change(queued)
        self._sum, self._count, self._round = 0.0, 0, self.size
        self._shortest, self._peak = math.inf, 0

    def _change(self, queued: float) -> None:
        if self._doubles and queued < self._low:
            if self._peak >= self._size / 2:
                self._set(2 * self._size)
        elif self._doubles:
            self._doubles = False
            self._set(self._size - queued + self._high)
        elif queued < self._low and self._peak >= self._size / 2:  # a window that nobody fills says nothing
            self._set(self._size + 1)
        elif queued > self._high:
            self._set(self._size - 1)

    def _set(self, size: float) -> None:
        self._size = min(max(size, self._least), self._most)

"""Start-time fair queueing by messages: whose turn is next if everybody gets the same share, written from the promise.

Goyal, Vin and Cheng, "Start-time Fair Queueing" (1996), with messages of length 1 and equal weights. A message's start
is the end of the one before of its tenant, but not before virtual time, which is the start of the message that is
served. The least start is served first, and of equal ones the first that came.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence


class Ideal:
    """A queue that serves one message after the other."""

    def __init__(self) -> None:
        self._virtual = 0
        self._ends: dict[str, int] = defaultdict(int)
        self._waiting: list[tuple[int, int, str]] = []
        self._came = 0

    def write(self, tenant: str) -> None:
        """A message of this tenant may be served from now on."""
        start = max(self._virtual, self._ends[tenant])
        self._ends[tenant] = start + 1
        self._came += 1
        heapq.heappush(self._waiting, (start, self._came, tenant))

    def read(self) -> str:
        """The tenant whose message is served next."""
        self._virtual, _, tenant = heapq.heappop(self._waiting)
        return tenant

    def __len__(self) -> int:
        return len(self._waiting)


def p99(waits: Sequence[float]) -> float:
    """The wait that one of a hundred is longer than."""
    return sorted(waits)[int(0.99 * len(waits))]

"""How many messages a queue can have had at a time, by its history."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Set
from typing import Final

from tests.soak.history import ENDS, History, Lease

NOBODY: Final[Set[str]] = frozenset()


class Sums:
    """Bounds of the messages that are not done. Each question takes O(log n).

    The messages that were written before a call, and were not about to be acked at its end, were there all the time.
    Those whose write was begun before its end, and that were not acked at its beginning, may have been there. *unsure*
    are the values that a promotion lost, or whose ack it lost.
    """

    def __init__(self, found: History, unsure: Set[str] = NOBODY) -> None:
        self._begun = _ordered(found.tried.values())
        ends: dict[str, tuple[float, float]] = {}
        acked = {lease.id for lease in found.leases if lease.verb == "ack" and lease.ok is not False}
        for lease in found.leases:
            if lease.verb in ENDS and lease.ok is not False:
                asked, done = ends.get(lease.id, (math.inf, math.inf))
                over = lease.settled if lease.ok else math.inf
                if lease.verb != "ack" and lease.id in acked:  # it was a dead letter for a while
                    over = math.inf
                ends[lease.id] = min(asked, _settling(lease)), min(done, over)
        values = {lease.id: lease.value for lease in found.leases}
        sure = {
            value
            for value, ids in found.ids.items()
            if value not in unsure and found.dropped.keys().isdisjoint(ids)
        }  # fmt: skip
        self._stored = _ordered(found.answered[value] for value in sure if value in found.answered)
        self._ending = _ordered(asked for each, (asked, _) in ends.items() if values[each] in sure)
        self._ended = _ordered(done for each, (_, done) in ends.items() if values[each] not in unsure)

    def undone(self, asked: float, at: float) -> tuple[int, int]:
        """The least and the most messages that a call between these times can have counted."""
        least = bisect_left(self._stored, asked) - bisect_right(self._ending, at)
        return max(0, least), bisect_right(self._begun, at) - bisect_left(self._ended, asked)


def _ordered(times: Iterable[float]) -> list[float]:
    """Times in order; one that is not known was long ago."""
    return sorted(-math.inf if math.isnan(each) else each for each in times)


def _settling(lease: Lease) -> float:
    return lease.at if lease.settling is None else lease.settling

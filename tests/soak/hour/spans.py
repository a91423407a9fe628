"""Times as intervals that may overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

Span: TypeAlias = tuple[float, float]


class Spans:
    """The union of intervals. Each question takes O(log n)."""

    def __init__(self, spans: Iterable[Span]) -> None:
        merged: list[Span] = []
        for begin, end in sorted(each for each in spans if each[0] <= each[1]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self._begins, self._ends = [each[0] for each in merged], [each[1] for each in merged]
        self._before = [0.0, *accumulate(end - begin for begin, end in merged)]

    def within(self, begin: float, end: float) -> float:
        """How much of that time is in the union."""
        return max(0.0, self._until(end) - self._until(begin))

    def touches(self, begin: float, end: float) -> bool:
        """Whether some of that time is in the union; of a time that is not known, nothing is."""
        at = bisect_right(self._begins, end)
        return at > 0 and self._ends[at - 1] >= begin

    def _until(self, time: float) -> float:
        at = bisect_right(self._begins, time)
        return self._before[at] - max(0.0, self._ends[at - 1] - time) if at else 0.0

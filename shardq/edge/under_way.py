"""How many bytes are under way, and how many should be."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from shardq.edge.parcels import Parcel

ROUND_TRIPS: Final = 2
MIN_BYTES: Final = 1024 * 1024
SPAN_SECONDS: Final = 0.5
"""Seconds in which is counted how fast acks come."""


class UnderWay:
    """The bytes under way, and how many should be while prefixes are in use: bytes that wait in the link make them old.

    That is twice what is acked in a round trip, so the link is never idle (Cardwell et al., "BBR", ACM Queue 2016).
    """

    def __init__(self) -> None:
        self._parcels = deque[Parcel]()
        self._most, self._acked, self._since, self._least = MIN_BYTES, 0, -math.inf, math.inf

    @property
    def is_full(self) -> bool:
        """Whether no more should go out now."""
        return sum(parcel.size for parcel in self._parcels if parcel.left) >= self._most

    def sent(self, parcel: Parcel) -> None:
        """Note that a parcel goes out."""
        self._parcels.append(parcel)

    def acked(self, parcel: Parcel, now: float) -> None:
        """Note that one of the messages of a parcel was acked."""
        if parcel.left == 1:
            self._acked += parcel.size
        self._least = min(self._least, now - parcel.sent_at)
        while self._parcels and not self._parcels[0].left:
            self._parcels.popleft()
        if (span := now - self._since) < SPAN_SECONDS:
            return
        rate, self._acked, self._since = self._acked / span, 0, now
        self._most = max(MIN_BYTES, round(ROUND_TRIPS * rate * self._least))

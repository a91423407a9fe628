"""Token buckets: how long a reader must wait before it may take more.

The source is Turner 1986, "New directions in communications": the leaky bucket as a meter.
"""

from __future__ import annotations

from shardq.clock import Clock
from shardq.gateway.tokens import Token


class Bucket:
    """Lets *rate* units a second through, and a burst of one second's worth. Takers may run into debt."""

    def __init__(self, rate: int | None, clock: Clock) -> None:
        self._rate, self._clock = rate, clock
        self._level, self._at = float(rate or 0), clock.monotonic()

    def take(self, amount: int) -> float:
        """Take *amount* units. Return for how many seconds to wait until the debt is paid; 0.0 without any."""
        if self._rate is None:
            return 0.0
        now = self._clock.monotonic()
        self._level = min(float(self._rate), self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)


class Rates:
    """The rates of one token. All its connections share them."""

    def __init__(self, token: Token, clock: Clock) -> None:
        self.limits = token.messages_per_second, token.bytes_per_second
        self._messages, self._bytes = (Bucket(limit, clock) for limit in self.limits)

    def take(self, size: int) -> float:
        """Count one request of *size* bytes. Return for how many seconds the reader must wait."""
        return max(self._messages.take(1), self._bytes.take(size))

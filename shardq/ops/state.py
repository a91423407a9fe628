"""What one client remembers of one queue between calls. Nothing of it is needed for correctness but the epoch.

Shared by threads: every field is replaced whole, and the pools are deques, whose ends are atomic.
"""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from dataclasses import dataclass, field

from shardq.clock import Clock
from shardq.durability import Durability
from shardq.keys import QueueKeys
from shardq.model import QueueConfig
from shardq.sharding import shard

LEGACY_TURN = "4096"


@dataclass(slots=True)
class Lane:
    """One call after the other: what makes a repeated write recognisable. Used by one write at a time."""

    name: str
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The server's clock as last seen: at local time `at` it showed `ms`."""

    ms: int
    at: float


@dataclass(slots=True)
class QueueState:
    """One queue, as one client sees it."""

    keys: QueueKeys
    requested: QueueConfig
    clock: Clock
    durability: Durability
    timeout: float
    wait_slice: float
    max_payload: int
    given: frozenset[str] = frozenset()
    config: QueueConfig = field(default_factory=QueueConfig)
    epoch: str = ""
    streams: int = 0
    wanted: int = 0
    hints: tuple[str, ...] = ()
    width: int = 16
    seen: ServerTime | None = None
    touch_at: float = 0.0
    shrink_at: float = 0.0
    producer: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    _idle: deque[Lane] = field(default_factory=deque)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def until(self, timeout: float | None = None) -> float:
        """The local time at which a call that starts now gives up."""
        return self.clock.monotonic() + (self.timeout if timeout is None else timeout)

    def shard(self, key: str | bytes) -> tuple[int, ...]:
        """The streams dealt to *key*."""
        return shard(key, self.wanted, self.config.streams_per_shard)

    def take_lane(self) -> Lane:
        """A lane that no other call uses now; give it back with `free_lane`."""
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = Lane(f"p:{self.producer}:{next(self._numbers)}")
        lane.sequence += 1
        return lane

    def free_lane(self, lane: Lane) -> None:
        """Let another call use *lane*."""
        self._idle.append(lane)

    def forked(self) -> None:
        """Become another producer: a child process must not share lanes with its parent."""
        self.producer = secrets.token_urlsafe(9)
        self._idle = deque()

    def expected_ms(self, now: float) -> str:
        """The latest that the server's clock should show now: beyond, it jumped. '' when it was never seen.

        Half as much again plus a second allows for drift and a slow network.
        """
        if self.seen is None:
            return ""
        return str(round(self.seen.ms + (now - self.seen.at) * 1500 + 1000))

    def declared(self, numbers: list[str]) -> tuple[str, ...]:
        """The keys of these streams; `l` is the legacy stream."""
        legacy = self.config.legacy_stream or ""
        return tuple(legacy if number == "l" else self.keys.stream(int(number)) for number in numbers)

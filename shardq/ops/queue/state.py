"""What one client remembers of one queue between calls. Only the epoch is needed for correctness.

Threads share it. Values that belong together are in one object, which is replaced as a whole (`QueueView`), and idle
producer sequences are in a deque, whose `pop` and `append` are atomic.
"""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shardq.arguments import MAX_BLOCK, seconds
from shardq.clock import Clock
from shardq.durability import Durability
from shardq.model import QueueConfig
from shardq.ops.queue.server_time import Jump, ServerTime
from shardq.ops.queue.view import QueueView
from shardq.protocol.keys import QueueKeys
from shardq.protocol.replies import StoredAssignment

MIN_WIDTH = 4
REMEMBERED = 64
"""So many reads a miss is remembered."""


@dataclass(slots=True)
class ProducerSequence:
    """A name and a number that counts up with each write, so that Redis recognizes a repeated write.

    `name` is the field in which Redis remembers the last call. One write at a time uses a sequence. (Source: Kafka's
    idempotent producer, KIP-98, which has a producer id and a sequence number.) `numbered_at` is when that call got its
    number, in seconds of the local monotonic clock.
    """

    name: str
    number: int = 0
    numbered_at: float = 0.0


OTHERS_WATCH: Final = -1
"""The `watch` of a reader that sleeps while others watch for what time brings."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class QueueState:
    """One queue, as one client sees it.

    `explicit` names the settings that the caller gave; a difference in these is logged. `hints` are the numbers of
    streams that the last read reported as ready; up to `width` of them, or as many as a read asks for, are declared in
    the next one. `producer` is the nonce in the names of the producer sequences. `unsure` has the lease tokens of acks
    that got no answer, so that another ack of them counts as a repetition. At local time `touch_at` the expiry of the
    keys is renewed next, and at `shrink_at` the queue may drop drained streams next. `watch` is when a read was last
    told to look again, in ms of the server's clock; 0: it was not, or `OTHERS_WATCH`. A verb keeps what it has of the
    queue under its name in `coalescers`, the callers that share its calls, and in `waiting`, those who wait for what
    comes. Writes remember their dedup keys for `remember` seconds; None means for the queue's `dedup_window`. Only a
    client that was given settings, or told so, `creates` the queue. If the queue has others, `on_mismatch` says so, or
    returns what is done about it.
    """

    keys: QueueKeys
    requested: QueueConfig
    clock: Clock
    durability: Durability
    timeout: float
    wait_slice: float
    max_payload: int
    cluster: bool = False
    client: str = ""
    explicit: frozenset[str] = frozenset()
    remember: float | None = None
    creates: bool = False
    on_mismatch: Callable[[QueueState, Any], Any] | None = None
    view: QueueView = field(default_factory=QueueView)
    legacy: str = ""
    hints: tuple[str, ...] = ()
    width: int = MIN_WIDTH
    server_time: ServerTime | None = None
    touch_at: float = 0.0
    shrink_at: float = 0.0
    bury_at: float = 0.0
    sweep_at: float = 0.0
    watch: int = 0
    opened: bool = False
    producer: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    unsure: set[str] = field(default_factory=set)
    coalescers: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, Any] = field(default_factory=dict)
    _reads_without_miss: int = 0
    _reads_after_miss: int = REMEMBERED
    _names: dict[str, str] = field(default_factory=dict)
    _idle: deque[ProducerSequence] = field(default_factory=deque)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        """Until a legacy stream is known, `legacy` is a key that nothing writes to."""
        self.legacy = f"{self.keys.prefix}legacy"

    def until(self, timeout: float | None = None) -> float:
        """Return the local time at which a call that starts now gives up. ConfigError for a bad *timeout*."""
        if timeout is None:
            return self.clock.monotonic() + self.timeout
        return self.clock.monotonic() + seconds("timeout", timeout, 0, MAX_BLOCK)

    @property
    def epoch(self) -> str:
        """The queue's epoch; '' if the queue must be looked up first."""
        return self.view.epoch

    @property
    def streams(self) -> int:
        """The number of streams to read."""
        return self.view.streams

    @property
    def wanted(self) -> int:
        """The number of streams to write to."""
        return self.view.wanted

    @property
    def config(self) -> QueueConfig:
        """The queue's settings."""
        return self.view.config

    @property
    def assigned(self) -> StoredAssignment:
        """The stored assignment."""
        return self.view.assigned

    def shard(self, key: str | bytes) -> tuple[int, ...]:
        """Return the streams that *key* may use."""
        return self.view.shard(key)

    @property
    def choices(self) -> int:
        """The largest number of streams that a message may go to."""
        return self.view.choices

    def forget(self) -> None:
        """Let the next call look the queue up, because its epoch has changed."""
        self.view = replace(self.view, epoch="")

    def take_sequence(self) -> ProducerSequence:
        """Return a sequence that no other call uses, with the number for this call. Release it with `free_sequence`."""
        try:
            sequence = self._idle.pop()
        except IndexError:
            sequence = ProducerSequence(f"p:{self.producer}:{next(self._numbers)}")
        sequence.number += 1
        return sequence

    def free_sequence(self, sequence: ProducerSequence) -> None:
        """Let another call use *sequence*."""
        self._idle.append(sequence)

    def forked(self, client: str) -> None:
        """Become a new producer named *client*: a child process shares no sequences or waiters with its parent."""
        self.client = client
        self.producer = secrets.token_urlsafe(9)
        self._idle = deque()
        self.coalescers, self.waiting = {}, {}

    def note_server_time(self, ms: int, sent: float, at: float) -> None:
        """Note that a call sent at local time *sent* saw *ms* on the server's clock, at local time *at* or later."""
        arrived, server_time = self.clock.monotonic(), self.server_time
        self.server_time = (
            ServerTime.first(ms, at, arrived) if server_time is None else server_time.then(ms, sent, at, arrived)
        )

    def reported(self, jump: Jump | None) -> None:
        """Note that *jump* was reported to the server."""
        if jump is not None and self.server_time is not None:
            self.server_time = self.server_time.reported(jump)

    @property
    def has_missed(self) -> bool:
        """Whether one of the last 64 reads missed a stream."""
        return self._reads_after_miss < REMEMBERED

    def declare_fewer(self) -> None:
        """After 64 reads without a miss, declare one stream less: each declared stream costs time on both sides."""
        self._reads_without_miss += 1
        self._reads_after_miss += 1
        if self._reads_without_miss % REMEMBERED == 0 and self.width > MIN_WIDTH:
            self.width -= 1

    def declare_more(self, declared: int) -> None:
        """After a miss, declare twice as many streams, if the call had declared as many as it could.

        Other readers may have moved on to streams that this client did not expect.
        """
        self._reads_after_miss = 0
        if declared >= self.width:
            self.width = min(max(self.streams, 1), self.width * 2)

    def declared(self, numbers: list[str]) -> tuple[str, ...]:
        """Return the keys of these streams; `l` is the legacy stream."""
        names = self._names
        return tuple([names.get(number) or self._name(number) for number in numbers])

    def _name(self, number: str) -> str:
        if number == "l":
            return self.legacy
        return self._names.setdefault(number, self.keys.stream(int(number)))

"""One client's memory of one queue between calls. Only the epoch is needed for correctness.

Threads share it. Values that belong together are in one object, which is replaced as a whole (`QueueView`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakMethod, WeakSet, ref

from shardq.arguments import MAX_BLOCK, seconds
from shardq.clock import Clock
from shardq.durability import Durability
from shardq.errors import ConfigError
from shardq.model import QueueConfig
from shardq.model.partitions import is_parted
from shardq.ops.queue.sequences import Sequences
from shardq.ops.queue.server_time import ServerTime, noted
from shardq.ops.queue.view import QueueView
from shardq.protocol.keys import QueueKeys
from shardq.protocol.replies import StoredAssignment

MIN_WIDTH = 2
READS_REMEMBERED = 64
"""Reads for which a miss is remembered."""


PLAIN_VERBS: Final = "write", "read", "settle"
"""The verbs whose plain calls declare few keys."""

OTHERS_WATCH: Final = -1
"""The `watch` of a reader that sleeps while others watch for what time brings."""


class FewKeys:
    """Whether the plain calls of one verb on one queue declare few keys: each one costs the server time.

    Only the server knows what a call needs. If it needs more, it is refused before it changes anything, and sent again
    with all; and as the next ones are likely to need them, they declare all, too. `lacking` is how many of them do.
    """

    __slots__ = ("lacking",)

    def __init__(self) -> None:
        self.lacking = 0

    def lack(self) -> None:
        """Note that the few did not do."""
        self.lacking = READS_REMEMBERED

    def lacked(self) -> bool:
        """Count one of the calls that declare all."""
        self.lacking -= 1
        return True


@dataclass(slots=True, weakref_slot=True, eq=False)
class QueueState:
    """One queue, as one client sees it. `siblings` are the states of clients beside that one, itself included.

    `explicit` names the settings that the caller gave; a difference in these is logged. `hints` are the numbers of
    streams that the last read reported as ready; up to `width` of them, or as many as a read asks for, are declared in
    the next one. `producer` is the nonce in the names of its `sequences`. `unsure` has the lease tokens of acks that
    got no answer, so that another ack of them counts as a repetition. `traced` says until when a traceback is not sent
    again, at local time. At local time `touch_at` the expiry of the keys is renewed next, and at `shrink_at` the queue
    may drop drained streams next. `watch` is when a read was last told to look again, in ms of the server's clock; 0:
    it was not, or `OTHERS_WATCH`. `turn` is when it was to look before a notification told it to watch until `watch`;
    0: none did. A verb keeps what it has of the queue under its name in `coalescers`, the callers that share its calls,
    and in `waiting`, those who wait for what comes. A `rider` goes out with the next look of a read (`riding`). `few`
    says by verb whether plain calls declare few keys. `names` has the keys of streams by their numbers, as far as they
    were asked for. Writes remember their dedup keys for `remember` seconds; None means for the queue's `dedup_window`.
    For a queue with partitions `parts` has what is known of these, and `common` what outlives each map; the state of
    one of them has its `number`, and the state of the `whole` queue. `learn` takes note of the partitions once the
    queue is seen to have some, or others. `faces` are the queues that programs have, which hear of it, too. Nonces of
    reads come from `draw`, which only a replay replaces: they decide which reads serve those who wait. Only a client
    that was given settings, or told so, `creates` the queue. Where the queue has others, `on_mismatch` says so, or
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
    draw: Callable[[int], bytes] = field(default=os.urandom)
    view: QueueView = field(default_factory=QueueView)
    siblings: list[ref[QueueState]] = field(default_factory=list)
    hints: tuple[str, ...] = ()
    width: int = MIN_WIDTH
    server_time: ServerTime | None = None
    touch_at: float = 0.0
    shrink_at: float = 0.0
    bury_at: float = 0.0
    sweep_at: float = 0.0
    watch: int = 0
    turn: int = 0
    opened: bool = False
    producer: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    unsure: set[str] = field(default_factory=set)
    traced: dict[str, float] = field(default_factory=dict)
    coalescers: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, Any] = field(default_factory=dict)
    rider: Any = None
    parts: Any = None
    common: Any = None
    number: int = 0
    whole: QueueState | None = None
    learn: WeakMethod[Callable[[QueueState], None]] | None = None
    faces: WeakSet[Any] = field(default_factory=WeakSet)
    reads_without_miss: int = 0
    reads_after_miss: int = READS_REMEMBERED
    reads_beside_streams: int = 0
    few: dict[str, FewKeys] = field(init=False)
    names: StreamNames = field(init=False)
    sequences: Sequences = field(init=False)

    def __post_init__(self) -> None:
        """Make what follows from the keys, and from the nonce."""
        self.few = {script: FewKeys() for script in PLAIN_VERBS}
        self.names = StreamNames(self.keys)
        self.sequences = Sequences(self.producer)

    def until(self, timeout: float | None = None) -> float:
        """Return the local time at which a call that starts now gives up. ConfigError for a bad *timeout*."""
        if timeout is None:
            return self.clock.monotonic() + self.timeout
        return self.clock.monotonic() + seconds("timeout", timeout, 0, MAX_BLOCK)

    def beside(self, client: str) -> QueueState:
        """Return a state for another *client* of this process, whose callers can share no calls with those of this one.

        Each of them knows of the queue whatever the other knows.
        """
        found = replace(
            self,
            client=client,
            producer=secrets.token_urlsafe(9),
            unsure=set(),
            coalescers={},
            waiting={},
            parts=None,
            common=None,
            learn=None,
            faces=WeakSet(),
        )
        found.names = self.names  # one of them has learnt the name of the legacy stream
        # All have this one list. It is replaced at once, since other threads walk through it.
        self.siblings[:] = [each for each in self.siblings or [ref(self)] if each() is not None] + [ref(found)]
        return found

    def know(self, view: QueueView) -> None:
        """Take *view* for what is known of the queue from now on; its siblings do, too."""
        parted = is_parted(view.config.partitions) and bool(view.streams)
        if parted and any(state.learn is not None and state.parts is None for state in self._all()):
            # Until all have heard of partitions, nobody makes a call to the head that this would take.
            self._tell(self._set(replace(view, epoch="")), parted=True)
        states = self._set(view)
        if view.streams:  # it is there
            self._tell(states, parted=parted)

    def _tell(self, states: Sequence[QueueState], *, parted: bool) -> None:
        try:
            for state in states:
                if (parted or state.parts is not None) and state.learn is not None and (learn := state.learn()):
                    learn(state)
        except ConfigError:  # a map of a later version, say: nobody may take the head for all of the queue
            if all(state.parts is None for state in states):
                self._set(QueueView())
            raise

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
        # The rest stays: the number of streams shows, when the queue is recreated, that there was one.
        self._set(replace(self.view, epoch=""))

    def _all(self) -> list[QueueState]:
        """Return this state and its siblings."""
        return [state for sibling in self.siblings if (state := sibling()) is not None] or [self]

    def _set(self, view: QueueView) -> list[QueueState]:
        """Take *view* for the one of this state and its siblings. Return all of them."""
        states = self._all()
        self.view = view
        for state in states:
            state.view = view
        return states

    def forked(self, client: str) -> None:
        """Become a new producer named *client*: a child process shares no sequences or waiters with its parent."""
        self.client = client
        self.producer = secrets.token_urlsafe(9)
        self.sequences = Sequences(self.producer)
        self.coalescers, self.waiting = {}, {}
        if self.parts is not None:
            self.parts.forked()

    def note_server_time(self, ms: int, sent: float, at: float) -> None:
        """Note that a call sent at local time *sent* saw *ms* on the server's clock, at local time *at* or later."""
        self.server_time = noted(self.server_time, ms, sent, at, self.clock.monotonic())

    def declared(self, numbers: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of these streams; `l` is the legacy stream."""
        names = self.names
        return tuple([names[number] for number in numbers])


class StreamNames(dict[str, str]):
    """The keys of streams by their numbers. `l` is the legacy stream: until one is known, nothing writes to its key."""

    def __init__(self, keys: QueueKeys) -> None:
        super().__init__(l=f"{keys.prefix}legacy")
        self._keys = keys

    def __missing__(self, number: str) -> str:
        """Look it up."""
        return self.setdefault(number, self._keys.stream(int(number)))

# Generated from async_client.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""`Client`, for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from shardq.client.base import queue_name
from shardq.client.queue import Queue
from shardq.client.sync_base import SyncBaseClient
from shardq.client.untold import UntoldQueue
from shardq.client.writer import Writer
from shardq.client.writing import MAX_BYTES, MAX_IN_FLIGHT
from shardq.errors import ClosedError, QueueMissing
from shardq.model import Message, QueueSettings, Received, Written
from shardq.model.declaration import Declaration, declaration_of
from shardq.model.message import OnConflict
from shardq.model.partitions import is_parted
from shardq.model.worker_status import WorkerStatus
from shardq.ops import inspect, topics
from shardq.ops.operate.declare import OnMismatch
from shardq.ops.queue import registry
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.read.look import Look
from shardq.ops.sharing.coalescing import CallPart, Coalescer
from shardq.ops.write.outgoing import Outgoing, compose_message
from shardq.ops.write.write import writes_of
from shardq.telemetry.gate import watched
from shardq.telemetry.telemetry import publishing

if TYPE_CHECKING:
    from shardq.ops.topics.bindings import RouterState
    from shardq.routing import Binding, BoundQueue, Router

I = TypeVar("I")  # noqa: E741 (an item of a call that is shared)
T = TypeVar("T")


class Client(SyncBaseClient):
    """A connection to one Redis (or Valkey, cluster, or set of sentinels). One per process is enough.

    Safe across threads and usable after a fork. Nothing is sent before the first call of a queue.

    `codecs`, `durability`, `max_connections` (of each server), `max_payload` (bytes), `spans`, `timeout` (seconds) and
    `wait_slice` (seconds) are the settings that `from_url` explains, and `clock` is what it takes the time from.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", max_deliveries=3)
    >>> message_id = queue.write({"to": "ada"}, shard_key="acme")
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queue(
        self,
        name: str | Declaration,
        *,
        create: bool | None = None,
        on_mismatch: OnMismatch = "warn",
        **settings: Unpack[QueueSettings],
    ) -> Queue:
        """Return the queue called *name*. Its first write or read creates it, if this client has settings for it.

        *name* may be a `Tasks`, which has the name and the settings of its queue, and creates it.

        Settings belong to the queue. If it exists already with others, *on_mismatch* says what its first call does:
        "warn" logs the differences, "raise" is a ConfigError, and "apply" changes the queue's settings, once.

        Without settings the queue is not created: reads wait for it, and other calls raise QueueMissing. *create* says
        otherwise: true creates a queue with the defaults (see `QueueConfig`). ConfigError for a bad name or setting.

        >>> mails = client.queue("mails", max_len=10_000, visibility_timeout=60)
        >>> mails.len()
        0
        >>> client.queue("mials").len()
        Traceback (most recent call last):
            ...
        shardq.errors.QueueMissing: ...
        """
        queue, declared, creates = declaration_of(name, settings, create)
        state = self.state_of(queue, declared, create=creates, mismatch=on_mismatch)
        return self.queue_of(state)

    def queue_of(self, state: QueueState) -> Queue:
        """Return the queue of this *state*. For the parts of shardq that use a client."""
        queue = (Queue if state.streams else UntoldQueue)(self, state)
        with self._lock:  # another thread may learn of partitions: by then this one is among the faces, or sees them
            if is_parted(state.requested.partitions) or is_parted(state.config.partitions):
                queue._spread()
            state.faces.add(queue)
        return queue

    def queues(self, *, timeout: float | None = None) -> list[str]:
        """Return the names of all queues, sorted, from the list that clients with settings keep.

        It raises only what every call may raise.

        >>> client.queues()
        ['jobs']
        """
        return self.run(registry.queue_names(self._until(timeout), self.clock))

    def workers(self, *, timeout: float | None = None) -> list[WorkerStatus]:
        """Return the workers of all queues, a row for each queue and worker: those that work first.

        It raises only what every call may raise.

        >>> [(each.queue, each.host, each.busy) for each in client.workers()]
        []
        """
        until = self._until(timeout)
        found: list[WorkerStatus] = []
        for name in self.queues(timeout=timeout):
            left = max(0.0, until - self.clock.monotonic())
            try:
                found += self.run(inspect.beats.workers(self.new_state(name, {}), left))
            except QueueMissing:  # it was deleted meanwhile
                continue
        return inspect.beats.in_order(found)

    def bind(self, pattern: str, queue: Queue | str, *, router: str = "default", timeout: float | None = None) -> bool:
        """Let messages that are published to a topic which *pattern* matches go to *queue*.

        Return False if that binding was there already. PatternError for a bad pattern.

        >>> client.bind("orders.*.created", queue)
        True
        >>> client.bind("orders.*.created", "jobs")
        False
        """
        return self.run(topics.bindings.change(self.router_state(router), "+", pattern, queue_name(queue), timeout))

    def unbind(
        self, pattern: str, queue: Queue | str, *, router: str = "default", timeout: float | None = None
    ) -> bool:
        """Remove a binding. Return False if there was none. PatternError for a bad pattern.

        >>> client.bind("orders.#", queue)
        True
        >>> client.unbind("orders.#", queue)
        True
        """
        return self.run(topics.bindings.change(self.router_state(router), "-", pattern, queue_name(queue), timeout))

    def bind_many(
        self, bindings: Iterable[tuple[str, Queue | str]], *, router: str = "default", timeout: float | None = None
    ) -> list[Binding]:
        """Bind many pairs (pattern, queue), 1,000 in a round trip. Return those that were bound already.

        All are checked before the first is sent. PartlyDone when a later thousand failed: its `done` pairs, from the
        first on, were dealt with.

        >>> client.bind_many([("orders.#", queue), ("users.*", "mails")])
        []
        """
        return self.run(topics.bindings.change_many(self.router_state(router), "+", bindings, queue_name, timeout))

    def unbind_many(
        self, bindings: Iterable[tuple[str, Queue | str]], *, router: str = "default", timeout: float | None = None
    ) -> list[Binding]:
        """Remove many bindings, 1,000 in a round trip. Return those that were not there.

        All are checked before the first is sent. PartlyDone when a later thousand failed: its `done` pairs, from the
        first on, were dealt with.

        >>> client.unbind_many([("orders.#", queue)])
        [Binding(pattern='orders.#', queue='jobs')]
        """
        return self.run(topics.bindings.change_many(self.router_state(router), "-", bindings, queue_name, timeout))

    def unbind_gone(self, *, router: str = "default", timeout: float | None = None) -> list[Binding]:
        """Remove the bindings to queues that are gone (see `bindings`). Return those that were removed.

        A queue that is made meanwhile stays bound. PartlyDone when the call failed halfway; make it again.

        >>> client.bind_many([("orders.#", queue), ("orders.#", "closed")])
        []
        >>> client.unbind_gone()
        [Binding(pattern='orders.#', queue='closed')]
        """
        return self.run(topics.gone.unbind_gone(self.router_state(router), timeout))

    def bindings(self, *, router: str = "default", timeout: float | None = None) -> list[BoundQueue]:
        """Return the bindings of a router, sorted, each with whether its queue is `gone`.

        A queue is gone if it was deleted, expired (`ttl`), or was never declared. Published messages pass over it. It
        raises only what every call may raise.

        >>> client.bind("orders.#", "closed")
        True
        >>> [(each.pattern, each.queue, each.gone) for each in client.bindings()]
        [('orders.#', 'closed', True)]
        """
        return self.run(topics.gone.bound_queues(self.router_state(router), timeout))

    def router(self, name: str = "default", *, timeout: float | None = None) -> Router:
        """Return the bindings of router *name* as they are now. The copy follows changes while this client publishes.

        To change what all clients know, call the client's `bind`; the copy's own `bind` changes only the copy.
        ConfigError for a bad name.

        >>> client.bind("orders.*.created", queue)
        True
        >>> router = client.router()
        >>> router.match("orders.eu.created")
        frozenset({'jobs'})
        """
        state = self.router_state(name)
        return self.run(topics.bindings.current(state, state.until(timeout), max_age=0))

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        shard_key: str | bytes,
        router: str = "default",
        unmatched: str = "return",
        delay: float | None = None,
        deadline: float | None = None,
        dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        unique_key: str | None = None,
        on_conflict: OnConflict = "existing",
        timeout: float | None = None,
    ) -> dict[str, Written]:
        """Write a message to each queue that *topic* goes to, in few round trips. Return the ids by queue name.

        The other arguments are those of `Queue.write`. A queue that several matching patterns name gets one copy.
        One that is gone (see `bindings`) gets none: that is logged, and no failure. If no queue matches, or all are
        gone, {} is returned, or Unrouted is raised when *unmatched* is "raise". When some writes failed,
        PartlyPublished has an id or an error for each queue that is not gone; repeating the call under its *dedup_key*
        doubles nothing. Bindings that others make are seen within a second.

        >>> client.bind("orders.*.created", queue)
        True
        >>> ids = client.publish("orders.eu.created", {"order": 7}, shard_key="acme")
        >>> [*ids]
        ['jobs']
        """
        bindings = self.router_state(router)
        names = self.run(topics.publish.match_queues(bindings, topic, unmatched, timeout))
        states = [self.state_of(name, {}) for name in names]
        queues = [self.telemetry_of(state) for state in states] if watched() else ()
        with publishing(topic, queues, self.server, self.spans, self.clock) as told:
            message = Message(payload, shard_key, delay, deadline, dedup_key, headers, unique_key, on_conflict)
            composed = [compose_message(state, self.codecs, message, told.context) for state in states]
            ids = self._publish_to(bindings, states, composed, timeout) if states else {}
            told.wrote(ids)
        if states and not ids:
            topics.publish.went_nowhere(bindings, topic, unmatched)
        return ids

    def writer(self, *, max_in_flight: int = MAX_IN_FLIGHT, max_bytes: int = MAX_BYTES) -> Writer:
        """Return a writer, for many messages whose ids are wanted later, or not at all. Use it in a `with` block.

        `write` returns once its message is accepted, with a future for its id. Messages share calls, with those of
        other callers, too. How many are under way follows from how long Redis takes (`shardq.flow.Vegas`); they are
        *max_in_flight* (at least 16) and *max_bytes* at most. While there is no room, `write` waits. The block ends
        when the outcome of each message is known, and raises PartlyWritten if some were not written for certain and
        nobody has asked their futures. An error in the block comes first; then such failures are logged. ConfigError
        for a bad number.

        >>> with client.writer() as writer:
        ...     futures = [writer.write(queue, number, shard_key="acme") for number in range(3)]
        >>> futures[0].result().is_new
        True
        """
        return Writer(self, max_in_flight=max_in_flight, max_bytes=max_bytes)

    def _publish_to(
        self, bindings: RouterState, states: Sequence[QueueState], messages: Sequence[Outgoing], timeout: float | None
    ) -> dict[str, Written]:
        """Write each message to the queue at the same index, as `store` does, together. Return the ids by queue."""
        until = states[0].until(timeout)
        if unknown := topics.publish.to_open(bindings, states):
            self.run(topics.publish.open_all(unknown, until))
        if not self._is_ready:
            self.prepare()
        parts = [
            CallPart(writes_of(state, message), message, state.keys.meta)
            for state, message in zip(states, messages, strict=True)
        ]
        ids = topics.publish.ids_of(bindings, states, self._driver.sharing.run_all(parts, until))
        if expiring := [state for state in states if state.config.ttl is not None]:
            self.run(topics.publish.upkeep_all(expiring))
        return ids

    def run(self, op: Op[T]) -> T:
        """Run one operation and return its result. For the parts of shardq that use a client."""
        if not self._is_ready:
            self.prepare()
        return self._driver.run(op)

    def look(self, look: Look) -> list[Received] | None:
        """Make the first try of a read. Return its messages; None if the operation must continue."""
        if not self._is_ready:
            self.prepare()
        driver = self._driver
        if look.coalescer is not None and not look.coalescer.enter():
            return None
        look.made = True
        try:
            outcome = driver.attempt(look.step)
        except BaseException:
            look.drop()
            raise
        finally:
            if look.coalescer is not None:
                driver.sharing.leave(look.coalescer)
        return look.rows(outcome)

    def share(self, coalescer: Coalescer[I, T], item: I, until: float) -> T:
        """Make a call for *item*, alone or with others on *coalescer*. For the parts of shardq that use a client."""
        if not self._is_ready:
            self.prepare()
        return self._driver.sharing.run(coalescer, item, until)

    def post(
        self,
        state: QueueState,
        message: Outgoing,
        until: float,
        lane: bytes,
        tell: Callable[[Written | Exception], object],
    ) -> None:
        """Store one message, after those of its *lane*. `tell` gets its id or error. For `Writer`."""
        posting = self._posting or self._start_posting()
        posting.post(writes_of(state, message), message, until, lane, tell)

    def store(self, state: QueueState, message: Outgoing, timeout: float | None) -> Written:
        """Store one message, alone or with others, and return its id. For the parts of shardq that use a client."""
        if not self._is_ready:
            self.prepare()
        until = state.clock.monotonic() + state.timeout if timeout is None else state.until(timeout)
        message_id = self._driver.sharing.run(writes_of(state, message), message, until)
        if state.view.config.ttl is not None:
            self.run(upkeep(state, state.clock.monotonic()))
        return message_id

    def prepare(self) -> None:
        """Look at the server before the first call. ClosedError if the client was closed."""
        if self._closed:
            raise ClosedError("this client was closed; make a new one with Client.from_url()")
        if not self._inspected:
            self._inspect(self._driver)
        self._is_ready = not self._closed

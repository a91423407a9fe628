"""`Client` and `Queue`, for threads. `shardq.client_async` holds their twins."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from shardq.admin import QueueAdmin
from shardq.delivery import DeliveryView
from shardq.drivers import Driver, Target
from shardq.errors import ClosedError, Empty
from shardq.face import (
    MAX_BLOCK,
    ClientSettings,
    Face,
    checked_block,
    checked_each,
    extended,
    messages_of,
    queue_name,
    received_of,
    unchanged,
    warn,
)
from shardq.model import Message, QueueSettings, Received, lease_time, seconds
from shardq.ops import routing, settle
from shardq.ops.opening import inspected
from shardq.ops.outgoing import compose, compose_all
from shardq.ops.read import checked_count, checked_stream, read
from shardq.ops.settle import LOST, Cancelled
from shardq.ops.state import QueueState
from shardq.ops.steps import Op
from shardq.ops.write import write, write_many
from shardq.routing import Binding, Router
from shardq.routing.router import bindings_of
from shardq.telemetry import Telemetry

T = TypeVar("T")
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Client(Face):
    """A connection to one Redis (or Valkey, cluster, or set of sentinels). One per process is enough.

    Safe across threads and usable after a fork. Nothing is sent before the first call of a queue.
    """

    def __init__(self, target: Target, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(target, **settings)
        self._driver = Driver(
            self._target,
            max_connections=self.max_connections,
            block=self.wait_slice,
            timeout=self.timeout,
            clock=self.clock,
        )
        _clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queue(self, name: str, **settings: Unpack[QueueSettings]) -> Queue:
        """The queue called *name*; created by its first write or read, with these settings (see `QueueConfig`).

        Settings belong to the queue: where it exists already, its own win and a difference is logged.
        """
        return Queue(self, self.state_of(name, settings))

    def bind(self, pattern: str, queue: Queue | str, *, router: str = "default", timeout: float | None = None) -> bool:
        """Let what is published to a topic that *pattern* matches go to *queue*; False if it did."""
        return self.run(routing.change(self.router_state(router), "+", pattern, queue_name(queue), timeout))

    def unbind(
        self, pattern: str, queue: Queue | str, *, router: str = "default", timeout: float | None = None
    ) -> bool:
        """Take a binding back; False if there was none."""
        return self.run(routing.change(self.router_state(router), "-", pattern, queue_name(queue), timeout))

    def bind_many(
        self, bindings: Iterable[tuple[str, Queue | str]], *, router: str = "default", timeout: float | None = None
    ) -> list[Binding]:
        """Bind many pairs (pattern, queue), 1,000 in a round trip; those that were bound already are returned.

        All are checked before the first is sent. When it raises, earlier thousands are bound; so may be all the others.
        """
        found = bindings_of(bindings, queue_name)
        return unchanged(found, self.run(routing.change_many(self.router_state(router), "+", found, timeout)))

    def unbind_many(
        self, bindings: Iterable[tuple[str, Queue | str]], *, router: str = "default", timeout: float | None = None
    ) -> list[Binding]:
        """Take many bindings back, 1,000 in a round trip, as `bind_many`; those that there were not are returned."""
        found = bindings_of(bindings, queue_name)
        return unchanged(found, self.run(routing.change_many(self.router_state(router), "-", found, timeout)))

    def router(self, name: str = "default", *, timeout: float | None = None) -> Router:
        """The bindings of router *name*, as of now; it follows changes as this client publishes.

        It is this client's copy: what all are to know is bound by the client's `bind`, not by the copy's.
        """
        state = self.router_state(name)
        return self.run(routing.current(state, state.until(timeout), max_age=0))

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
        timeout: float | None = None,
    ) -> dict[str, str]:
        """Write a message to each queue that *topic* goes to, in few round trips; its ids by queue name.

        The other arguments are those of `Queue.write`. A queue bound by several matching patterns gets one copy. With
        no queue, {} is returned, or Unrouted raised when *unmatched* is "raise". PartlyPublished has an id or an error
        for each queue when some failed. Bindings made elsewhere are seen within a second.
        """
        names = self.run(routing.matched(self.router_state(router), topic, unmatched, timeout))
        states = [self.state_of(name, {}) for name in names]
        with Telemetry(topic).writing(len(names)) as context:
            message = Message(payload, shard_key, delay, deadline, dedup_key, headers)
            composed = [compose(state, self.codecs, message, context) for state in states]
            return self.run(routing.write_all(states, composed, timeout)) if states else {}

    def close(self) -> None:
        """Close every connection, and stop the embedded server if this client started one. Idempotent."""
        self._closed = True
        self._driver.close()
        self._stop_server()

    def run(self, op: Op[T]) -> T:
        """Run one operation; for the parts of shardq that build on a client."""
        if self._closed:
            raise ClosedError("this client was closed; make a new one with Client.from_url()")
        if not self._inspected:
            self._inspect()
        return self._driver.run(op)

    def _inspect(self) -> None:
        with self._lock:
            if not self._inspected:
                warn(self._driver.run(inspected(self.clock, self.durability, self.timeout)))
                self._inspected = True

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._driver.forked()
        for state in list(self._held):
            state.forked(self.name)
        for router in self._routers.values():
            router.forked()


class Queue(QueueAdmin):
    """One queue. All times are seconds. Every call may raise BackendTimeout, OutcomeUnknown or BackendError."""

    def __init__(self, client: Client, state: QueueState) -> None:
        self._client: Client = client
        self.state = state
        self._codecs = client.codecs
        self._telemetry = Telemetry(state.keys.name)

    def __repr__(self) -> str:
        """The queue's name."""
        return f"Queue({self.name!r})"

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.state.keys.name

    def write(
        self,
        payload: Any,
        *,
        shard_key: str | bytes,
        delay: float | None = None,
        deadline: float | None = None,
        dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Store one message and return its id. Stored once, however often the connection breaks.

        *shard_key* (usually the tenant) chooses its streams. It is deliverable after *delay* and until *deadline*, both
        from now. Within the queue's dedup window a second write with the same *dedup_key* returns the first one's id.
        ConfigError, CodecError or QueueFull: nothing was written. OutcomeUnknown: it may have been.
        """
        with self._telemetry.writing(None) as context:
            message = compose(
                self.state, self._codecs, Message(payload, shard_key, delay, deadline, dedup_key, headers), context
            )
            message_id = self._client.run(write(self.state, message, timeout))
            self._telemetry.wrote(message_id)
            return message_id

    def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[str]:
        """Store many messages in few round trips and return their ids, in order.

        Each is a `Message` or a pair (payload, shard key). All are checked before the first is sent. PartlyWritten has
        an id or an error for each when a chunk of them failed.
        """
        with self._telemetry.writing(len(batch := messages_of(messages))) as context:
            composed = compose_all(self.state, self._codecs, batch, context)
            return self._client.run(write_many(self.state, composed, timeout)) if composed else []

    def read(
        self,
        *,
        block: float = 0.0,
        visibility_timeout: float | None = None,
        prefer_stream: int | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """The next message, leased for *visibility_timeout*; waits for one up to *block*, then raises Empty.

        *prefer_stream* is tried first, one turn ahead of its share at most.
        """
        found = self._read(1, block, visibility_timeout, prefer_stream, timeout, batch=False)
        if not found:
            raise Empty(f"queue {self.name!r} had nothing to deliver for {block:g} s")
        return found[0]

    def read_many(
        self,
        count: int,
        *,
        block: float = 0.0,
        visibility_timeout: float | None = None,
        prefer_stream: int | None = None,
        timeout: float | None = None,
    ) -> list[Delivery]:
        """Up to *count* messages (at most 1,000), in turns over the streams; waits up to *block* for the first.

        [] when there were none: Empty is not raised.
        """
        return self._read(checked_count(count), block, visibility_timeout, prefer_stream, timeout, batch=True)

    def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        *,
        batch: bool,
    ) -> list[Delivery]:
        checked_block(block, visibility)
        started = round(self.state.clock.wall() * 1e9)
        op = read(self.state, count, block, visibility, checked_stream(prefer), timeout)
        rows = self._client.run(op)
        self._telemetry.read(rows, started, batch=batch)
        return [Delivery(row, self) for row in rows]

    def ack_many(self, deliveries: Sequence[Delivery], *, timeout: float | None = None) -> list[Delivery]:
        """Settle many deliveries as done in few round trips; those whose lease was lost are returned."""
        received = received_of(self.name, deliveries)
        with self._telemetry.settling("ack", received):
            results = self._client.run(settle.ack(self.state, received, timeout))
        return [delivery for delivery, result in zip(deliveries, results, strict=True) if result in LOST]

    def nack_many(
        self,
        deliveries: Sequence[Delivery],
        *,
        delay: float | Sequence[float] = 0.0,
        error: str | Sequence[str] = "",
        timeout: float | None = None,
    ) -> list[Delivery]:
        """Give many deliveries back in few round trips, as `Delivery.nack`; those whose lease was lost are returned.

        *delay* and *error* are one for all, or a sequence with one for each.
        """
        received = received_of(self.name, deliveries)
        checked_each("delay", delay, len(deliveries))
        checked_each("error", error, len(deliveries))
        with self._telemetry.settling("nack", received):
            results = self._client.run(settle.nack(self.state, received, delay, error, timeout))
        return [delivery for delivery, result in zip(deliveries, results, strict=True) if result in LOST]

    def reject_many(
        self, deliveries: Sequence[Delivery], reason: str | Sequence[str], *, timeout: float | None = None
    ) -> list[Delivery]:
        """Move many deliveries to the dead letters in few round trips; those whose lease was lost are returned.

        *reason* is one for all, or a sequence with one for each.
        """
        received = received_of(self.name, deliveries)
        checked_each("reason", reason, len(deliveries))
        with self._telemetry.settling("reject", received):
            results = self._client.run(settle.reject(self.state, received, reason, timeout))
        return [delivery for delivery, result in zip(deliveries, results, strict=True) if result in LOST]

    def cancel(self, message_id: str, *, timeout: float | None = None) -> Cancelled:
        """Remove a waiting or delayed message; "removed", or "in flight" if it is being worked on.

        The holder of one in flight learns it: its next extend or ack raises MessageCancelled. MessageNotFound if the
        message is neither waiting, delayed nor in flight.
        """
        return self._client.run(settle.cancel(self.state, message_id, timeout))

    def _settle(self, verb: str, received: Received, op: Op[list[settle.Settled]]) -> None:
        with self._telemetry.settling(verb, [received]):
            self._client.run(op)[0].check()


class Delivery(DeliveryView):
    """One message, leased to you until `deadline`. Settle it: ack, nack or reject.

    LeaseLost means that it is not yours any more; MessageCancelled, that nobody wants it.
    """

    __slots__ = ("_queue",)

    def __init__(self, received: Received, queue: Queue) -> None:
        super().__init__(received, queue._codecs, queue.state.clock)
        self._queue = queue

    @property
    def queue(self) -> Queue:
        """The queue that it was read from."""
        return self._queue

    def ack(self, *, timeout: float | None = None) -> None:
        """The work is done: forget the message."""
        self._queue._settle("ack", self.received, settle.ack(self._queue.state, [self.received], timeout))

    def nack(self, *, delay: float = 0.0, error: str = "", timeout: float | None = None) -> None:
        """Give the message back, to be delivered again after *delay* seconds; *error* is kept as `last_error`.

        Past the queue's max_deliveries it goes to the dead letters.
        """
        seconds("delay", delay, 0, MAX_BLOCK)
        self._queue._settle(
            "nack", self.received, settle.nack(self._queue.state, [self.received], delay, error, timeout)
        )

    def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Move the message to the dead letters, with *reason*."""
        self._queue._settle("reject", self.received, settle.reject(self._queue.state, [self.received], reason, timeout))

    def extend(self, duration: float, *, timeout: float | None = None) -> None:
        """Let the lease end *duration* seconds from now."""
        lease_time("duration", duration)
        sent = self._clock.monotonic()
        self._queue._settle(
            "extend", self.received, settle.extend(self._queue.state, [self.received], duration, timeout)
        )
        self.received = extended(self.received, sent, duration)

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """A tracing span around the work on this delivery; settles nothing."""
        with self._queue._telemetry.processing(self.received):
            yield

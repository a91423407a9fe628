"""`AsyncClient`, `AsyncQueue` and `AsyncDelivery`, for asyncio: the twins of those in `shardq.client`.

Names, arguments and errors are the same; the methods are documented there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from shardq.admin_async import AsyncQueueAdmin
from shardq.delivery import DeliveryView
from shardq.drivers import AsyncDriver, Target
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
from shardq.ops.look import undone
from shardq.ops.opening import inspected
from shardq.ops.outgoing import compose, compose_all
from shardq.ops.read import checked_count, checked_stream, read
from shardq.ops.settle import LOST, Cancelled
from shardq.ops.state import QueueState
from shardq.ops.steps import Op
from shardq.ops.waiting import Asked
from shardq.ops.write import write, write_many
from shardq.routing import Binding, Router
from shardq.routing.router import bindings_of
from shardq.telemetry import Telemetry

T = TypeVar("T")


class AsyncClient(Face):
    """The twin of `Client` for one event loop: the first call binds it to the running loop."""

    def __init__(self, target: Target, **settings: Unpack[ClientSettings]) -> None:
        super().__init__(target, **settings)
        self._driver = AsyncDriver(
            self._target,
            max_connections=self.max_connections,
            block=self.wait_slice,
            timeout=self.timeout,
            clock=self.clock,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def queue(self, name: str, **settings: Unpack[QueueSettings]) -> AsyncQueue:
        """As `Client.queue`."""
        return AsyncQueue(self, self.state_of(name, settings))

    async def bind(
        self, pattern: str, queue: AsyncQueue | str, *, router: str = "default", timeout: float | None = None
    ) -> bool:
        """As `Client.bind`."""
        return await self.run(routing.change(self.router_state(router), "+", pattern, queue_name(queue), timeout))

    async def unbind(
        self, pattern: str, queue: AsyncQueue | str, *, router: str = "default", timeout: float | None = None
    ) -> bool:
        """As `Client.unbind`."""
        return await self.run(routing.change(self.router_state(router), "-", pattern, queue_name(queue), timeout))

    async def bind_many(
        self, bindings: Iterable[tuple[str, AsyncQueue | str]], *, router: str = "default", timeout: float | None = None
    ) -> list[Binding]:
        """As `Client.bind_many`."""
        found = bindings_of(bindings, queue_name)
        return unchanged(found, await self.run(routing.change_many(self.router_state(router), "+", found, timeout)))

    async def unbind_many(
        self, bindings: Iterable[tuple[str, AsyncQueue | str]], *, router: str = "default", timeout: float | None = None
    ) -> list[Binding]:
        """As `Client.unbind_many`."""
        found = bindings_of(bindings, queue_name)
        return unchanged(found, await self.run(routing.change_many(self.router_state(router), "-", found, timeout)))

    async def router(self, name: str = "default", *, timeout: float | None = None) -> Router:
        """As `Client.router`."""
        state = self.router_state(name)
        return await self.run(routing.current(state, state.until(timeout), max_age=0))

    async def publish(
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
        """As `Client.publish`."""
        names = await self.run(routing.matched(self.router_state(router), topic, unmatched, timeout))
        states = [self.state_of(name, {}) for name in names]
        with Telemetry(topic).writing(len(names)) as context:
            message = Message(payload, shard_key, delay, deadline, dedup_key, headers)
            composed = [compose(state, self.codecs, message, context) for state in states]
            return await self.run(routing.write_all(states, composed, timeout)) if states else {}

    async def aclose(self) -> None:
        """As `Client.close`. In a forked child nothing is closed: connections and loop are the parent's."""
        self._closed = True
        if self._pid != os.getpid():
            return
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.timeout)
        await self._driver.aclose()
        self._stop_server()

    async def run(self, op: Op[T]) -> T:
        """As `Client.run`."""
        self._check_loop()
        if not self._inspected:
            warn(await self._driver.run(inspected(self.clock, self.durability, self.timeout)))
            self._inspected = True
        return await self._driver.run(op)

    def _check_loop(self) -> None:
        if self._closed:
            raise ClosedError("this client was closed; make a new one with AsyncClient.from_url()")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop or self._pid != os.getpid():
            raise ClosedError(
                "this AsyncClient belongs to another event loop or process; make one per loop, after the fork"
            )

    def _later(self, op: Op[Any]) -> None:
        """Run *op* without anybody waiting for it; its failure only costs time."""
        task = asyncio.get_running_loop().create_task(self._driver.run(op))
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class AsyncQueue(AsyncQueueAdmin):
    """The twin of `Queue`."""

    def __init__(self, client: AsyncClient, state: QueueState) -> None:
        self._client: AsyncClient = client
        self.state = state
        self._codecs = client.codecs
        self._telemetry = Telemetry(state.keys.name)

    def __repr__(self) -> str:
        """The queue's name."""
        return f"AsyncQueue({self.name!r})"

    @property
    def name(self) -> str:
        """As `Queue.name`."""
        return self.state.keys.name

    async def write(
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
        """As `Queue.write`."""
        with self._telemetry.writing(None) as context:
            message = compose(
                self.state, self._codecs, Message(payload, shard_key, delay, deadline, dedup_key, headers), context
            )
            message_id = await self._client.run(write(self.state, message, timeout))
            self._telemetry.wrote(message_id)
            return message_id

    async def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[str]:
        """As `Queue.write_many`."""
        with self._telemetry.writing(len(batch := messages_of(messages))) as context:
            composed = compose_all(self.state, self._codecs, batch, context)
            return await self._client.run(write_many(self.state, composed, timeout)) if composed else []

    async def read(
        self,
        *,
        block: float = 0.0,
        visibility_timeout: float | None = None,
        prefer_stream: int | None = None,
        timeout: float | None = None,
    ) -> AsyncDelivery:
        """As `Queue.read`."""
        found = await self._read(1, block, visibility_timeout, prefer_stream, timeout, batch=False)
        if not found:
            raise Empty(f"queue {self.name!r} had nothing to deliver for {block:g} s")
        return found[0]

    async def read_many(
        self,
        count: int,
        *,
        block: float = 0.0,
        visibility_timeout: float | None = None,
        prefer_stream: int | None = None,
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """As `Queue.read_many`."""
        return await self._read(checked_count(count), block, visibility_timeout, prefer_stream, timeout, batch=True)

    async def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        *,
        batch: bool,
    ) -> list[AsyncDelivery]:
        checked_block(block, visibility)
        started = round(self.state.clock.wall() * 1e9)
        asked = Asked()
        op = read(self.state, count, block, visibility, checked_stream(prefer), timeout, asked)
        try:
            rows = await self._client.run(op)
        except asyncio.CancelledError:
            # A reply is lost: what it may have granted is given back, and what came before it.
            if asked.holder or asked.rows:
                self._client._later(undone(self.state, asked, self.state.until()))
            raise
        self._telemetry.read(rows, started, batch=batch)
        return [AsyncDelivery(row, self) for row in rows]

    async def ack_many(
        self, deliveries: Sequence[AsyncDelivery], *, timeout: float | None = None
    ) -> list[AsyncDelivery]:
        """As `Queue.ack_many`."""
        received = received_of(self.name, deliveries)
        with self._telemetry.settling("ack", received):
            results = await self._client.run(settle.ack(self.state, received, timeout))
        return [delivery for delivery, result in zip(deliveries, results, strict=True) if result in LOST]

    async def nack_many(
        self,
        deliveries: Sequence[AsyncDelivery],
        *,
        delay: float | Sequence[float] = 0.0,
        error: str | Sequence[str] = "",
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """As `Queue.nack_many`."""
        received = received_of(self.name, deliveries)
        checked_each("delay", delay, len(deliveries))
        checked_each("error", error, len(deliveries))
        with self._telemetry.settling("nack", received):
            results = await self._client.run(settle.nack(self.state, received, delay, error, timeout))
        return [delivery for delivery, result in zip(deliveries, results, strict=True) if result in LOST]

    async def reject_many(
        self, deliveries: Sequence[AsyncDelivery], reason: str | Sequence[str], *, timeout: float | None = None
    ) -> list[AsyncDelivery]:
        """As `Queue.reject_many`."""
        received = received_of(self.name, deliveries)
        checked_each("reason", reason, len(deliveries))
        with self._telemetry.settling("reject", received):
            results = await self._client.run(settle.reject(self.state, received, reason, timeout))
        return [delivery for delivery, result in zip(deliveries, results, strict=True) if result in LOST]

    async def cancel(self, message_id: str, *, timeout: float | None = None) -> Cancelled:
        """As `Queue.cancel`."""
        return await self._client.run(settle.cancel(self.state, message_id, timeout))

    async def _settle(self, verb: str, received: Received, op: Op[list[settle.Settled]]) -> None:
        with self._telemetry.settling(verb, [received]):
            (await self._client.run(op))[0].check()


class AsyncDelivery(DeliveryView):
    """The twin of `Delivery`."""

    __slots__ = ("_queue",)

    def __init__(self, received: Received, queue: AsyncQueue) -> None:
        super().__init__(received, queue._codecs, queue.state.clock)
        self._queue = queue

    @property
    def queue(self) -> AsyncQueue:
        """The queue that it was read from."""
        return self._queue

    async def ack(self, *, timeout: float | None = None) -> None:
        """As `Delivery.ack`."""
        await self._queue._settle("ack", self.received, settle.ack(self._queue.state, [self.received], timeout))

    async def nack(self, *, delay: float = 0.0, error: str = "", timeout: float | None = None) -> None:
        """As `Delivery.nack`."""
        seconds("delay", delay, 0, MAX_BLOCK)
        await self._queue._settle(
            "nack", self.received, settle.nack(self._queue.state, [self.received], delay, error, timeout)
        )

    async def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """As `Delivery.reject`."""
        await self._queue._settle(
            "reject", self.received, settle.reject(self._queue.state, [self.received], reason, timeout)
        )

    async def extend(self, duration: float, *, timeout: float | None = None) -> None:
        """As `Delivery.extend`."""
        lease_time("duration", duration)
        sent = self._clock.monotonic()
        await self._queue._settle(
            "extend", self.received, settle.extend(self._queue.state, [self.received], duration, timeout)
        )
        self.received = extended(self.received, sent, duration)

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """As `Delivery.processing`."""
        with self._queue._telemetry.processing(self.received):
            yield

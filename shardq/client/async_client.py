"""`AsyncClient`, for asyncio: the twin of `Client`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar, Unpack

from shardq.client.async_queue import AsyncQueue
from shardq.client.base import BaseClient, ClientSettings, queue_name, warn
from shardq.drivers import AsyncDriver, Target
from shardq.errors import ClosedError
from shardq.model import Message, QueueSettings
from shardq.ops import routing
from shardq.ops.opening import inspected
from shardq.ops.outgoing import compose
from shardq.ops.steps import Op
from shardq.routing import Binding, Router
from shardq.routing.router import bindings_of, unchanged
from shardq.telemetry import Telemetry

T = TypeVar("T")


class AsyncClient(BaseClient):
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

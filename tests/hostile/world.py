"""What entries are called on and with: clients of a server, and a good value for each parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import copy_context
from itertools import count
from pathlib import Path
from typing import Any, Final

from shardq import AsyncClient, AsyncDelivery, AsyncQueue, AsyncWriter, Client, Delivery, Queue, Where, Writer
from shardq.client.action import Action
from shardq.client.async_action import AsyncAction
from shardq.client.async_job import AsyncJob
from shardq.client.async_schedules import AsyncSchedules
from shardq.client.job import Job
from shardq.client.schedules import Schedules
from shardq.client.sync_writing import WriteFuture
from shardq.clock import SystemClock
from shardq.edge import AsyncEdge, Edge
from shardq.errors import ShardqError
from shardq.tasks import Several, Tasks
from shardq.timing import Entry as TimerEntry
from shardq.timing import LoopTimer, Operation, Timer
from tests.clients import Loop
from tests.hostile.entries import Entry
from tests.servers import Server

QUEUE: Final = "jobs"
SETTINGS: Final[Mapping[str, Any]] = {
    "streams": 8, "window": 1, "journal": 100, "result_ttl": 60.0, "max_schedules": 10,
}  # fmt: skip
TASK: Final = Tasks(QUEUE).task(name="task")(lambda: None)
MESSAGE_ID: Final = "1732150000000-42-7"
NOWHERE: Final = "127.0.0.1:1"
"""No gateway listens there."""


class Never(Operation):
    """An operation that is never ready."""

    def ready(self) -> bool:
        """Never."""
        return False


class World:
    """A server with one queue, a client and an edge producer of each kind, and what they return."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self.url, self.redis = server.url, stack.enter_context(server.client())
        self._folder, self._numbers, self._loop = folder, count(), Loop()
        stack.callback(self._loop.stop)
        self._client = stack.enter_context(Client.from_url(self.url, max_connections=4, timeout=20.0))
        self._async_client = AsyncClient.from_url(self.url, max_connections=4, timeout=20.0)
        stack.callback(lambda: self._loop.run(self._async_client.aclose()))
        edge = stack.enter_context(Edge(NOWHERE, spool=self.spool()))
        async_edge = AsyncEdge(NOWHERE, spool=self.spool())
        stack.callback(lambda: self._loop.run(async_edge.aclose()))
        self._instances: Mapping[type, Callable[[], Any]] = {
            Client: lambda: self._client,
            AsyncClient: lambda: self._async_client,
            Queue: lambda: self.queue(self._client),
            AsyncQueue: lambda: self.queue(self._async_client),
            Schedules: lambda: self.queue(self._client).schedules,
            AsyncSchedules: lambda: self.queue(self._async_client).schedules,
            Job: lambda: self.queue(self._client).job(TASK, MESSAGE_ID),
            AsyncJob: lambda: self.queue(self._async_client).job(TASK, MESSAGE_ID),
            Action: lambda: self.action(self._client),
            AsyncAction: lambda: self.action(self._async_client),
            Writer: self._client.writer,
            AsyncWriter: self._async_client.writer,
            Delivery: lambda: self.delivery(self._client),
            AsyncDelivery: lambda: self.delivery(self._async_client),
            Edge: lambda: edge,
            AsyncEdge: lambda: async_edge,
            LoopTimer: lambda: LoopTimer(self._loop._loop),
            Several: lambda: Several(Tasks(QUEUE)),
        }

    def queue(self, client: Any) -> Any:
        """The queue, with messages in it."""
        return client.queue(QUEUE, **SETTINGS)

    def fill(self) -> None:
        """Make the queue anew."""
        self.redis.flushall()
        queue = self.queue(self._client)
        queue.declare()
        queue.write_many([("good", "t")] * 5)

    def digest(self) -> bytes:
        """What stands for all that the server holds."""
        found: bytes = self.redis.execute_command("DEBUG", "DIGEST")
        return found

    def spool(self) -> Path:
        """A file that is not there yet."""
        return self._folder / f"spool-{next(self._numbers)}"

    def delivery(self, client: Any) -> Any:
        """A fresh delivery."""
        queue = self.queue(client)
        try:
            return done(queue.read(), self._loop)
        except ShardqError:  # a call before has paused, emptied or deleted it
            self.fill()
            return done(queue.read(), self._loop)

    def action(self, client: Any) -> Any:
        """A fresh action."""
        self.fill()
        return done(self.queue(client).redrive(Where(state="dead")), self._loop)

    def instance(self, owner: type) -> Any:
        """What a method of *owner* is called on."""
        maker = self._instances.get(owner)
        return maker() if maker else owner(**{name: self.good(name, owner) for name in asked_by(owner)})

    def good(self, name: str, owner: type | None) -> Any:
        """A good value for the parameter *name* of an entry of *owner*."""
        client = self._async_client if owner is not None and owner.__name__.startswith("Async") else self._client
        special: Mapping[str, Callable[[], Any]] = {
            "client": lambda: client,
            "jobs": lambda: self.queue(client),
            "deliveries": lambda: [self.delivery(client)],
            "spool": self.spool,
            "url": lambda: self.url,
            "loop": lambda: self._loop._loop,
        }
        return special[name]() if name in special else GOOD[name]()

    def prepared(self, entry: Entry, hostile: Mapping[str, Any]) -> Callable[[], Any]:
        """The call of *entry* with the *hostile* arguments, and good ones for what else it asks for."""
        owner = entry.owner or (entry.call if isinstance(entry.call, type) else None)
        given = {name: self.good(name, owner) for name in entry.asked if name not in hostile} | {**hostile}
        if entry.owner is None:
            return lambda: self._ended(entry.call(**given))
        instance = self.instance(entry.owner)
        if entry.call.endswith("="):
            return lambda: setattr(instance, entry.call[:-1], given["value"])
        return lambda: self._ended(getattr(instance, entry.call)(**given))

    def _ended(self, made: Any) -> None:
        """Wait for what a call has begun, and close what it has made."""
        made = done(made, self._loop)
        if isinstance(made, WriteFuture):
            made.result(20)
        elif isinstance(made, (AsyncClient, AsyncEdge, AsyncWriter)) and made is not self._async_client:
            self._loop.run(made.aclose())
        elif isinstance(made, (Client, Edge, Writer, Timer)) and made is not self._client:
            made.close()


def done(made: Any, loop: Loop) -> Any:
    """What *made* returns in the end."""
    return loop.run(_awaited(made)) if inspect.isawaitable(made) else made


async def _awaited(made: Any) -> Any:
    return await made


def asked_by(owner: type) -> tuple[str, ...]:
    """The parameters without which *owner* cannot be made."""
    found = inspect.signature(owner).parameters.values()
    return tuple(each.name for each in found if each.default is each.empty and each.kind in (1, 3))


GOOD: Final[Mapping[str, Callable[[], Any]]] = {
    "pattern": lambda: "orders.*", "other": lambda: "orders.#", "topic": lambda: "orders.eu", "queue": lambda: QUEUE,
    "bindings": lambda: [("orders.*", QUEUE)], "payload": lambda: "good", "shard_key": lambda: "t", "key": lambda: "t",
    "name": lambda: "jobs", "settings": dict, "duration": lambda: 5.0, "callback": lambda: print, "done": lambda: 1,
    "reason": lambda: "bad", "names": lambda: ["t"], "message_id": lambda: MESSAGE_ID, "letters": list,
    "changes": dict, "streams": lambda: 8, "streams_per_shard": lambda: 2, "max_overlap": lambda: 1, "count": lambda: 1,
    "gateway": lambda: NOWHERE, "messages": lambda: [("good", "t")], "noisy": lambda: 2, "tenants": lambda: 20,
    "isolation": lambda: 0.5, "lost": lambda: 1, "value": lambda: "t", "seconds": lambda: 1.0, "entry": TimerEntry,
    "delay": lambda: 1.0, "when": lambda: 1.0, "timer": Timer, "operation": Never, "keys": lambda: ["t"],
    "timeout": lambda: 1.0, "handle": lambda: print, "body": lambda: b"t", "listen": lambda: "127.0.0.1:0",
    "path": lambda: Path("/nowhere"), "text": lambda: MESSAGE_ID, "meta": dict, "results": list,
    "first": lambda: None, "message": lambda: "t", "result": lambda: None, "shards": dict, "limits": dict,
    "other client": lambda: None, "due": lambda: 1, "now": lambda: 1, "limit": lambda: None, "size": lambda: 8,
    "task": lambda: TASK, "clock": SystemClock, "errors": dict,
    "fresh": lambda: copy_context, "where": lambda: Where(task="t"), "action_id": lambda: "t",
    "capacity": lambda: 8, "thread": lambda: 1, "type": lambda: int, "line": lambda: "0 3 * * *",
}  # fmt: skip

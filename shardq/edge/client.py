"""`Edge`: a producer that needs no Redis, only a gateway, and not even that at once. `AsyncEdge` is its twin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from shardq.arguments import check_known, iterable
from shardq.clock import Clock, SystemClock
from shardq.codec import Codec, Codecs
from shardq.edge.compose import EdgeMessage, compose, new_id
from shardq.edge.delivering import Delivering, Progress
from shardq.edge.lock import DeliveryLock
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Spool, SpoolCounts
from shardq.errors import BackendTimeout, ClosedError

LOOK: Final = 0.02
"""Seconds between two looks at the spool while somebody waits in `flush`."""
ENDS: Final = 10.0


class EdgeStatus(NamedTuple):
    """What the spool holds, what this process's delivery is doing, and which process delivers (None: none)."""

    spool: SpoolCounts
    delivery: Progress
    delivered_by: int | None


class Producer:
    """What both kinds of producers share: settings, the spool, and the delivery."""

    def __init__(
        self,
        gateway: str,
        *,
        spool: str | os.PathLike[str],
        codec: Codec | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        check_known(type(self).__name__, settings, (*EdgeSettings.__annotations__, "codec", "clock"))
        self.settings = EdgeSettings(gateway=gateway, spool=spool, **settings)
        self._clock, self._codecs, self._pid = clock or SystemClock(), Codecs(codec), os.getpid()
        self.spool = Spool(
            spool, max_bytes=self.settings.max_bytes, drops_oldest=self.settings.on_full == "drop_oldest",
            on_disk=self.settings.durability == "disk", clock=self._clock,
        )  # fmt: skip
        self._delivering = Delivering(self.settings, self.spool, clock=self._clock)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._start()

    def _start(self) -> None:
        """Begin to deliver. `AsyncEdge` does that when its block begins, on the loop that runs then."""

    def _composed(self, messages: Iterable[EdgeMessage]) -> list[tuple[bytes, bytes]]:
        """Check and encode messages: (id, request) each."""
        self._check_open()
        found = []
        for message in iterable("messages", messages, "EdgeMessage"):
            message_id = new_id(self._clock)
            found.append((message_id, compose(message, self._codecs, self.settings.max_payload, message_id)))
        return found

    def _status(self) -> EdgeStatus:
        self._check_open()
        return EdgeStatus(self.spool.counts(), self._delivering.progress, DeliveryLock(self.spool.path).holder())

    def _closes(self) -> bool:
        """Whether this call closes the producer: it is the first, and not in a forked child."""
        was_closed, self._closed = self._closed, True
        return not was_closed and self._pid == os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this producer was closed; make a new one")
        if self._pid != os.getpid():
            raise ClosedError("this producer was made before a fork; make one in the child, after the fork")


class Edge(Producer):
    """A producer for threads. It delivers in a thread of its own.

    *gateway* is "host:port" or "unix:PATH", and *spool* the file in which messages wait. The other settings are those
    of `EdgeSettings`. Several processes may use one spool: one of them delivers for all, and another takes over when it
    ends. ConfigError for bad settings, SpoolDamaged if the file is none.
    """

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="shardq-edge", daemon=True)
        self._thread.start()

    def send(
        self,
        payload: Any,
        *,
        shard_key: str | bytes,
        queue: str = "",
        topic: str = "",
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
    ) -> str:
        """Put one message into the spool, and return its id. It is safe when this returns, and is delivered by itself.

        It goes to *queue*, or to the queues that *topic* goes to. ConfigError or CodecError if it is bad, SpoolFull if
        the spool or its disk is full: nothing was put.
        """
        return self.send_many([EdgeMessage(payload, shard_key, queue, topic, headers, delay)])[0]

    def send_many(self, messages: Iterable[EdgeMessage]) -> list[str]:
        """Put many messages into the spool at once, all or none. Return their ids."""
        composed = self._composed(messages)
        if composed:
            self.spool.put(composed)
            with contextlib.suppress(RuntimeError):  # the loop has just ended: the next process delivers
                self._loop.call_soon_threadsafe(self._delivering.wake)
        return [message_id.hex() for message_id, _ in composed]

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until the spool is empty: everything that anybody put was acked or refused. BackendTimeout."""
        until = self._clock.monotonic() + timeout
        while (left := self.status().spool.waiting) > 0:
            if self._clock.monotonic() > until:
                raise BackendTimeout(_still_waiting(left, timeout, self._delivering.progress))
            time.sleep(LOOK)

    def status(self) -> EdgeStatus:
        """Return what the spool holds and what the delivery is doing."""
        return self._status()

    def close(self) -> None:
        """End the delivery. Messages that were not acked stay in the spool. Idempotent."""
        if not self._closes():
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(ENDS)
        self.spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._task = self._loop.create_task(self._delivering.run())
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class AsyncEdge(Producer):
    """A producer for asyncio: the twin of `Edge`. Use it as an async context manager; it delivers on the same loop."""

    async def send(
        self,
        payload: Any,
        *,
        shard_key: str | bytes,
        queue: str = "",
        topic: str = "",
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
    ) -> str:
        """Put one message into the spool, and return its id. It is safe when this returns, and is delivered by itself.

        It goes to *queue*, or to the queues that *topic* goes to. ConfigError or CodecError if it is bad, SpoolFull if
        the spool or its disk is full: nothing was put.
        """
        return (await self.send_many([EdgeMessage(payload, shard_key, queue, topic, headers, delay)]))[0]

    async def send_many(self, messages: Iterable[EdgeMessage]) -> list[str]:
        """Put many messages into the spool at once, all or none. Return their ids."""
        composed = self._composed(messages)
        if composed:
            await asyncio.to_thread(self.spool.put, composed)
            self._delivering.wake()
        return [message_id.hex() for message_id, _ in composed]

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until the spool is empty: everything that anybody put was acked or refused. BackendTimeout."""
        until = self._clock.monotonic() + timeout
        while (left := (await self.status()).spool.waiting) > 0:
            if self._clock.monotonic() > until:
                raise BackendTimeout(_still_waiting(left, timeout, self._delivering.progress))
            await asyncio.sleep(LOOK)

    async def status(self) -> EdgeStatus:
        """Return what the spool holds and what the delivery is doing."""
        return await asyncio.to_thread(self._status)

    async def aclose(self) -> None:
        """End the delivery. Messages that were not acked stay in the spool. Idempotent."""
        if not self._closes():
            return
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.spool.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        if self._task is None:
            self._task = asyncio.ensure_future(self._delivering.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _still_waiting(left: int, timeout: float, progress: Progress) -> str:
    why = f" ({progress.last_error})" if progress.last_error else ""
    return f"after {timeout:g} s {left:,} messages still wait in the spool; they stay there: {progress.state}{why}"

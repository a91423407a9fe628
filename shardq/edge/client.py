"""`Edge`: a producer that needs no Redis, only a gateway, and not even that at once. `AsyncEdge` is its twin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from shardq.arguments import MAX_BLOCK, check_clock, check_known, iterable, seconds, text
from shardq.clock import Clock, SystemClock
from shardq.codec import Codec, Codecs
from shardq.edge.compose import EdgeMessage, Ids, compose
from shardq.edge.delivering import Delivering, Progress
from shardq.edge.lock import DeliveryLock
from shardq.edge.outcome import LOOK_INTERVAL, AsyncSent, Sent, refused_error
from shardq.edge.refusals import Refused, ids_of
from shardq.edge.settings import EdgeSettings
from shardq.edge.spool import Held, Spool, SpoolCounts
from shardq.errors import BackendTimeout, ClosedError, ConfigError

ENDING_SECONDS: Final = 10.0
LEAVE_SECONDS: Final = 1.0
"""Seconds in which gRPC is done with a call that was cancelled."""


class EdgeStatus(NamedTuple):
    """The state of the `spool` and of this process's `delivery`, and the process that it is `delivered_by` (or None).

    `held` says why the gateway does not take some messages for now. `Edge.status` returns one.
    """

    spool: SpoolCounts
    delivery: Progress
    delivered_by: int | None
    held: list[Held]


class Producer:
    """The base of both kinds of producers: settings, the spool, and the delivery."""

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
        self.settings: EdgeSettings = EdgeSettings(gateway=gateway, spool=spool, **settings)
        if clock is not None:
            check_clock(clock)
        self._clock, self._codecs, self._pid = clock or SystemClock(), Codecs(codec), os.getpid()
        self._ids = Ids(self._clock)
        self.spool: Spool = Spool(
            spool, max_bytes=self.settings.max_bytes, max_refused_bytes=self.settings.max_refused_bytes,
            drops_oldest=self.settings.on_full == "drop_oldest", on_disk=self.settings.durability == "disk",
            clock=self._clock,
        )  # fmt: skip
        self._flushed = self.spool.refusals.now()
        self._delivering = Delivering(self.settings, self.spool, clock=self._clock)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._start()

    def _start(self) -> None:
        """Begin to deliver. `AsyncEdge` does that when its block begins, on the loop that runs then."""

    def _composed(self, messages: Iterable[EdgeMessage]) -> list[tuple[bytes, bytes]]:
        """Check and encode messages: (id, request) each."""
        self._check_open()
        given = list(iterable("messages", messages, "EdgeMessage"))
        return [
            (message_id, compose(message, self._codecs, self.settings.max_payload, message_id))
            for message, message_id in zip(given, self._ids.take(len(given)), strict=True)
        ]

    def _status(self) -> EdgeStatus:
        self._check_open()
        counts, holder = self.spool.counts(), DeliveryLock(self.spool.path).holder()
        return EdgeStatus(counts, self._delivering.progress, holder, self.spool.held() if counts.held else [])

    def _check_refused(self) -> None:
        """MessageRefused if anything was refused since this was asked last."""
        before, self._flushed = self._flushed, self.spool.refusals.now()
        losses = self.spool.refusals.since(before)
        if losses.reasons:
            raise refused_error(losses)

    def _refused(self) -> list[Refused]:
        self._check_open()
        return self.spool.refusals.kept()

    def _resend(self, ids: Iterable[str] | None, reason: str | None) -> int:
        self._check_open()
        if reason is not None:
            text("reason", reason)
        try:
            wanted = None if ids is None else ids_of(iterable("ids", ids, "ids"))
        except (ValueError, TypeError):
            raise ConfigError("ids must be those that send returned, which are hexadecimal") from None
        return self.spool.refusals.resend(wanted, reason)

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
    ends. `settings` and `spool` are what it was made with. ConfigError for bad settings, SpoolDamaged if the file is
    none.

    >>> edge = Edge("localhost:7443", spool="edge.spool")
    >>> message_id = edge.send({"to": "ada"}, shard_key="acme", queue="mails")
    >>> edge.status().spool.waiting
    1
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
    ) -> Sent:
        """Put one message into the spool, and return its id. It is safe when this returns, and is delivered by itself.

        It goes to *queue*, or to the queues that *topic* goes to. The id knows more: `outcome` waits until the message
        is stored. ConfigError or CodecError if the message is bad, SpoolFull if the spool or its disk is full: nothing
        was put.
        """
        return self.send_many([EdgeMessage(payload, shard_key, queue, topic, headers, delay)])[0]

    def send_many(self, messages: Iterable[EdgeMessage]) -> list[Sent]:
        """Put many messages into the spool at once, all or none. Return their ids.

        Errors as of `send`; ConfigError says which message is bad.

        >>> ids = edge.send_many([EdgeMessage({"to": to}, "acme", queue="mails") for to in ("bob", "eve")])
        >>> len(ids)
        2
        """
        composed = self._composed(messages)
        if not composed:
            return []
        numbers = self.spool.put(composed)
        self._wake()
        return [
            Sent(message_id.hex(), number, self.spool, self._clock)
            for (message_id, _), number in zip(composed, numbers, strict=True)
        ]

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until the spool is empty: everything that anybody put is stored, or was refused. BackendTimeout.

        MessageRefused if some were refused, found damaged or dropped, since this producer was made or flushed last.

        >>> edge.flush(timeout=0)
        Traceback (most recent call last):
            ...
        shardq.errors.BackendTimeout: after 0 s 1 messages still wait in the spool; they stay there: ...
        """
        until = self._clock.monotonic() + seconds("timeout", timeout, 0, MAX_BLOCK)
        while (status := self.status()).spool.waiting > 0:
            if self._clock.monotonic() > until:
                raise BackendTimeout(_still_waiting(status, timeout))
            time.sleep(LOOK_INTERVAL)
        self._check_refused()

    def refused(self) -> list[Refused]:
        """Return the messages of the spool that were refused, found damaged or dropped, as far as they are kept.

        SpoolDamaged if the file cannot be read.

        >>> [(each.reason, each.text) for each in edge.refused()]
        []
        """
        return self._refused()

    def resend(self, ids: Iterable[str] | None = None, reason: str | None = None) -> int:
        """Let refused messages wait in the spool again: those with *ids*, of a *reason*, or all. Return how many.

        ConfigError for a bad id.

        >>> edge.resend(reason="too large")
        0
        """
        found = self._resend(ids, reason)
        self._wake()
        return found

    def status(self) -> EdgeStatus:
        """Return what the spool holds and what the delivery is doing. SpoolDamaged if the file cannot be read.

        >>> status = edge.status()
        >>> status.spool.waiting, status.spool.acked, status.held
        (1, 0, [])
        """
        return self._status()

    def close(self) -> None:
        """End the delivery. Messages that were not acked stay in the spool. Idempotent. It raises nothing.

        >>> edge.close()
        """
        if not self._closes():
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(ENDING_SECONDS)
        self.spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._task = self._loop.create_task(self._delivering.run())
            self._loop.run_until_complete(self._task)
        if rest := asyncio.all_tasks(self._loop):  # gRPC's own; one of them waits for the end of the call
            self._loop.run_until_complete(asyncio.wait(rest, timeout=LEAVE_SECONDS))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has just ended: the next process delivers
            self._loop.call_soon_threadsafe(self._delivering.wake)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class AsyncEdge(Producer):
    """A producer for asyncio: the twin of `Edge`. Use it as an async context manager; it delivers on the same loop.

    `settings` and `spool` are what it was made with.

    >>> edge = AsyncEdge("localhost:7443", spool="edge.spool")
    >>> message_id = await edge.send({"to": "ada"}, shard_key="acme", queue="mails")
    >>> status = await edge.status()
    >>> status.spool.waiting
    1
    """

    async def send(
        self,
        payload: Any,
        *,
        shard_key: str | bytes,
        queue: str = "",
        topic: str = "",
        headers: Mapping[str, str] | None = None,
        delay: float = 0.0,
    ) -> AsyncSent:
        """Put one message into the spool, and return its id. It is safe when this returns, and is delivered by itself.

        It goes to *queue*, or to the queues that *topic* goes to. The id knows more: `outcome` waits until the message
        is stored. ConfigError or CodecError if the message is bad, SpoolFull if the spool or its disk is full: nothing
        was put.
        """
        return (await self.send_many([EdgeMessage(payload, shard_key, queue, topic, headers, delay)]))[0]

    async def send_many(self, messages: Iterable[EdgeMessage]) -> list[AsyncSent]:
        """Put many messages into the spool at once, all or none. Return their ids.

        Errors as of `send`; ConfigError says which message is bad.

        >>> ids = await edge.send_many([EdgeMessage({"to": to}, "acme", queue="mails") for to in ("bob", "eve")])
        >>> len(ids)
        2
        """
        composed = self._composed(messages)
        if not composed:
            return []
        numbers = await asyncio.to_thread(self.spool.put, composed)
        self._delivering.wake()
        return [
            AsyncSent(message_id.hex(), number, self.spool, self._clock)
            for (message_id, _), number in zip(composed, numbers, strict=True)
        ]

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until the spool is empty: everything that anybody put is stored, or was refused. BackendTimeout.

        MessageRefused if some were refused, found damaged or dropped, since this producer was made or flushed last.

        >>> await edge.flush(timeout=0)
        Traceback (most recent call last):
            ...
        shardq.errors.BackendTimeout: after 0 s 1 messages still wait in the spool; they stay there: ...
        """
        until = self._clock.monotonic() + seconds("timeout", timeout, 0, MAX_BLOCK)
        while (status := await self.status()).spool.waiting > 0:
            if self._clock.monotonic() > until:
                raise BackendTimeout(_still_waiting(status, timeout))
            await asyncio.sleep(LOOK_INTERVAL)
        await asyncio.to_thread(self._check_refused)

    async def refused(self) -> list[Refused]:
        """Return the messages of the spool that were refused, found damaged or dropped, as far as they are kept.

        SpoolDamaged if the file cannot be read.

        >>> [(each.reason, each.text) for each in await edge.refused()]
        []
        """
        return await asyncio.to_thread(self._refused)

    async def resend(self, ids: Iterable[str] | None = None, reason: str | None = None) -> int:
        """Let refused messages wait in the spool again: those with *ids*, of a *reason*, or all. Return how many.

        ConfigError for a bad id.

        >>> await edge.resend(reason="too large")
        0
        """
        found = await asyncio.to_thread(self._resend, ids, reason)
        self._delivering.wake()
        return found

    async def status(self) -> EdgeStatus:
        """Return what the spool holds and what the delivery is doing. SpoolDamaged if the file cannot be read.

        >>> status = await edge.status()
        >>> status.spool.waiting, status.held
        (1, [])
        """
        return await asyncio.to_thread(self._status)

    async def aclose(self) -> None:
        """End the delivery. Messages that were not acked stay in the spool. Idempotent. It raises nothing.

        >>> await edge.aclose()
        """
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


def _still_waiting(status: EdgeStatus, timeout: float) -> str:
    progress = status.delivery
    why = f" ({progress.last_error})" if progress.last_error else ""
    held = "".join(f"; {each.messages:,} are held: {each.reason}: {each.text}" for each in status.held[:3])
    return (
        f"after {timeout:g} s {status.spool.waiting:,} messages still wait in the spool; they stay there: "
        f"{progress.state}{why}{held}"
    )

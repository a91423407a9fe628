"""`AsyncWriter`, for asyncio: the twin of `Writer`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shardq.client.async_queue import AsyncQueue
from shardq.client.writing import MAX_BYTES, MAX_IN_FLIGHT, NO_ROOM, BaseWriter, Order, end_span, was_answered
from shardq.errors import BackendTimeout
from shardq.flow import Limit
from shardq.model import Written
from shardq.model.message import OnConflict
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.sharing.caller import copied
from shardq.ops.write.outgoing import weight
from shardq.ops.write.window import Place

if TYPE_CHECKING:
    from shardq.client.async_client import AsyncClient


class AsyncWriteFuture(asyncio.Future[Written]):
    """The future of one message: its id, or the error with which its write ended."""

    asked = False
    error: Exception | None = None

    def result(self) -> Written:
        """Return the message's id, or raise its error."""
        self.asked = True
        return super().result()

    def exception(self) -> BaseException | None:
        """Return the message's error; None if it was written."""
        self.asked = True
        return super().exception()

    def __await__(self) -> Generator[Any, None, Written]:
        """Wait for the message's id."""
        self.asked = True
        return super().__await__()


class AsyncWriter(BaseWriter):
    """Writes many messages with a window of them under way. Make one with `AsyncClient.writer`, which explains it."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_bytes: int = MAX_BYTES,
        limit: Limit | None = None,
    ) -> None:
        super().__init__(client, max_in_flight=max_in_flight, max_bytes=max_bytes, limit=limit)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(error)

    async def write(
        self,
        queue: AsyncQueue | str,
        payload: Any,
        *,
        shard_key: str | bytes,
        delay: float | None = None,
        deadline: float | None = None,
        dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        unique_key: str | None = None,
        on_conflict: OnConflict = "existing",
        timeout: float | None = None,
    ) -> AsyncWriteFuture:
        """Take a message into the window, and return a future, which gets its id or its error.

        The arguments are those of `Queue.write`, which says what errors there are, and a queue or its name. While the
        window is full, the call waits for room. Messages of one shard key get into a queue in the order of their calls;
        only one whose outcome is unknown may get there later. *timeout* is for all of it, from this call on.

        ConfigError and CodecError are raised at once. BackendTimeout: there was no room in time. Then nothing was
        accepted.
        """
        options = (delay, deadline, dedup_key, headers, unique_key)
        order = self._order(queue, payload, shard_key, options, on_conflict, timeout)
        try:
            return await self._accept(order)
        except BaseException as error:
            end_span(order.span, error)
            raise

    async def flush(self) -> None:
        """Wait until the outcome of each message that was accepted so far is known.

        PartlyWritten if some were not written for certain and nobody has asked their futures.
        """
        await self._flush()
        self._report()

    async def aclose(self) -> None:
        """Accept no more messages, and `flush`. Idempotent; the end of a `with` block does it, too."""
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        self._closed = True
        await self._flush()
        self._report(error)

    async def _accept(self, order: Order) -> AsyncWriteFuture:
        await self._client.prepare()
        if order.state.config.ttl is not None:
            await self._client.run(upkeep(order.state, order.state.clock.monotonic()))
        place, written = await self._enter(order), AsyncWriteFuture()
        self._client.post(
            order.state, order.message, order.until, order.lane, partial(self._told, order, place, written)
        )
        return written

    async def _flush(self) -> None:
        done = asyncio.get_running_loop().create_future()
        if not self._window.flush(partial(_resolve, done)):
            await done
        for state in list(self._states.values()):
            if state.config.ttl is not None:
                await self._client.run(upkeep(state, state.clock.monotonic()))

    async def _enter(self, order: Order) -> Place:
        """Return a place in the window once there is room. BackendTimeout if there is none in time."""
        place, clock = Place(weight(order.message)), self._client.clock
        if self._window.enter(place, clock.monotonic()):
            return place
        turn = asyncio.get_running_loop().create_future()
        if not self._window.must_wait(place, partial(_resolve, turn)):
            return place
        alarm = self._client.timer.call_at(order.until, _resolve, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._window.give_up(place, clock.monotonic()):
                self._window.free(place, clock.monotonic(), answered=None)
            raise
        finally:
            alarm.cancel()
        if self._window.give_up(place, clock.monotonic()):
            raise BackendTimeout(NO_ROOM)
        return place

    def _told(self, order: Order, place: Place, written: AsyncWriteFuture, result: Written | Exception) -> None:
        end_span(order.span, result)
        if isinstance(result, Written):
            if not written.done():
                written.set_result(result)
        else:
            self._fail(written, result)
        self._window.free(place, self._client.clock.monotonic(), answered=was_answered(result))

    def _fail(self, written: AsyncWriteFuture, result: Exception) -> None:
        if written.cancelled():
            return
        error = copied(result)
        written.set_exception(error)
        asyncio.Future.exception(written)  # nobody needs asyncio's own log line of errors that nobody asked for
        written.error = error
        self._note_failure(written)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

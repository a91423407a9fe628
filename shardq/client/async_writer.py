"""`AsyncWriter`, for asyncio (`make twins` makes the one for threads)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shardq.client.async_queue import AsyncQueue
from shardq.client.async_writing import AsyncTurn, AsyncWriteFuture
from shardq.client.writing import MAX_BYTES, MAX_IN_FLIGHT, NO_ROOM, BaseWriter, Order, end_write, was_answered
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


class AsyncWriter(BaseWriter):
    """Writes many messages with a window of them under way. Make one with `AsyncClient.writer`, which explains it.

    >>> client = AsyncClient.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", create=True)
    >>> writer = client.writer(max_in_flight=1_000)
    """

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

        The arguments are those of `AsyncQueue.write`, which says what errors there are, and a queue or its name. While
        the window is full, the call waits for room. Messages of one shard key get into a queue in the order of their
        calls; only one whose outcome is unknown may get there later. *timeout* is for all of it, from this call on.

        ConfigError and CodecError are raised at once. BackendTimeout: there was no room in time. Then nothing was
        accepted.

        >>> async with writer:
        ...     future = await writer.write(queue, {"to": "ada"}, shard_key="acme")
        >>> future.result().is_new
        True
        """
        options = (delay, deadline, dedup_key, headers, unique_key)
        order = self._order(queue, payload, shard_key, options, on_conflict, timeout)
        try:
            return await self._accept(order)
        except BaseException as error:
            end_write(order.told, error)
            raise

    async def flush(self) -> None:
        """Wait until the outcome of each message that was accepted so far is known.

        PartlyWritten if some were not written for certain and nobody has asked their futures.

        >>> futures = [await writer.write("jobs", number, shard_key="acme") for number in range(3)]
        >>> await writer.flush()
        >>> all(each.done() for each in futures)
        True
        """
        await self._flush()
        self._report()

    async def aclose(self) -> None:
        """Accept no more messages, and `flush`. Idempotent; the end of a `with` block does it, too.

        PartlyWritten as of `flush`.

        >>> await writer.aclose()
        """
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        self._closed = True
        await self._flush()
        self._report(error)

    async def _accept(self, order: Order) -> AsyncWriteFuture:
        await self._client.prepare()
        if self._unopened:
            await self._client.run(self._opened(order.state, order.until))
        if order.state.config.ttl is not None:
            await self._client.run(upkeep(order.state, order.state.clock.monotonic()))
        place, written = await self._enter(order), AsyncWriteFuture()
        self._client.post(
            order.state, order.message, order.until, order.lane, partial(self._told, order, place, written)
        )
        return written

    async def _flush(self) -> None:
        done = AsyncTurn()
        if not self._window.flush(done.come):
            await done.wait()
        for state in list(self._states.values()):
            if state.config.ttl is not None:
                await self._client.run(upkeep(state, state.clock.monotonic()))

    async def _enter(self, order: Order) -> Place:
        """Return a place in the window once there is room. BackendTimeout if there is none in time."""
        place, clock = Place(weight(order.message)), self._client.clock
        if self._window.enter(place, clock.monotonic()):
            return place
        turn = AsyncTurn()
        if not self._window.must_wait(place, turn.come):
            return place
        try:
            await turn.wait_until(order.until, self._client)
        except BaseException:  # such as a cancellation, or KeyboardInterrupt
            if not self._window.give_up(place, clock.monotonic()):
                self._window.free(place, clock.monotonic(), answered=None)
            raise
        if self._window.give_up(place, clock.monotonic()):
            raise BackendTimeout(NO_ROOM)
        return place

    def _told(self, order: Order, place: Place, written: AsyncWriteFuture, result: Written | Exception) -> None:
        end_write(order.told, result)
        if isinstance(result, Written):
            written.set_result(result)
        else:
            written.fail(copied(result), self._note_failure)
        self._window.free(place, self._client.clock.monotonic(), answered=was_answered(result))

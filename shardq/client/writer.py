# Generated from async_writer.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""`Writer`, for threads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shardq.client.queue import Queue
from shardq.client.sync_writing import Turn, WriteFuture
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
    from shardq.client.client import Client


class Writer(BaseWriter):
    """Writes many messages with a window of them under way. Make one with `Client.writer`, which explains it.

    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", create=True)
    >>> writer = client.writer(max_in_flight=1_000)
    """

    def __init__(
        self,
        client: Client,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_bytes: int = MAX_BYTES,
        limit: Limit | None = None,
    ) -> None:
        super().__init__(client, max_in_flight=max_in_flight, max_bytes=max_bytes, limit=limit)
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(error)

    def write(
        self,
        queue: Queue | str,
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
    ) -> WriteFuture:
        """Take a message into the window, and return a future, which gets its id or its error.

        The arguments are those of `Queue.write`, which says what errors there are, and a queue or its name. While
        the window is full, the call waits for room. Messages of one shard key get into a queue in the order of their
        calls; only one whose outcome is unknown may get there later. *timeout* is for all of it, from this call on.

        ConfigError and CodecError are raised at once. BackendTimeout: there was no room in time. Then nothing was
        accepted.

        >>> with writer:
        ...     future = writer.write(queue, {"to": "ada"}, shard_key="acme")
        >>> future.result().is_new
        True
        """
        options = (delay, deadline, dedup_key, headers, unique_key)
        order = self._order(queue, payload, shard_key, options, on_conflict, timeout)
        try:
            return self._accept(order)
        except BaseException as error:
            end_write(order.told, error)
            raise

    def flush(self) -> None:
        """Wait until the outcome of each message that was accepted so far is known.

        PartlyWritten if some were not written for certain and nobody has asked their futures.

        >>> futures = [writer.write("jobs", number, shard_key="acme") for number in range(3)]
        >>> writer.flush()
        >>> all(each.done() for each in futures)
        True
        """
        self._flush()
        self._report()

    def close(self) -> None:
        """Accept no more messages, and `flush`. Idempotent; the end of a `with` block does it, too.

        PartlyWritten as of `flush`.

        >>> writer.close()
        """
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        self._closed = True
        self._flush()
        self._report(error)

    def _accept(self, order: Order) -> WriteFuture:
        self._client.prepare()
        if self._unopened:
            self._client.run(self._opened(order.state, order.until))
        if order.state.config.ttl is not None:
            self._client.run(upkeep(order.state, order.state.clock.monotonic()))
        place, written = self._enter(order), WriteFuture()
        self._client.post(
            order.state, order.message, order.until, order.lane, partial(self._told, order, place, written)
        )
        return written

    def _flush(self) -> None:
        done = Turn()
        if not self._window.flush(done.come):
            done.wait()
        for state in list(self._states.values()):
            if state.config.ttl is not None:
                self._client.run(upkeep(state, state.clock.monotonic()))

    def _enter(self, order: Order) -> Place:
        """Return a place in the window once there is room. BackendTimeout if there is none in time."""
        place, clock = Place(weight(order.message)), self._client.clock
        if self._window.enter(place, clock.monotonic()):
            return place
        turn = Turn()
        if not self._window.must_wait(place, turn.come):
            return place
        try:
            turn.wait_until(order.until, self._client)
        except BaseException:  # such as a cancellation, or KeyboardInterrupt
            if not self._window.give_up(place, clock.monotonic()):
                self._window.free(place, clock.monotonic(), answered=None)
            raise
        if self._window.give_up(place, clock.monotonic()):
            raise BackendTimeout(NO_ROOM)
        return place

    def _told(self, order: Order, place: Place, written: WriteFuture, result: Written | Exception) -> None:
        end_write(order.told, result)
        if isinstance(result, Written):
            written.set_result(result)
        else:
            written.fail(copied(result), self._note_failure)
        self._window.free(place, self._client.clock.monotonic(), answered=was_answered(result))

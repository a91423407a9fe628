"""`AsyncPartitionedQueue`, for asyncio (`make twins` makes the one for threads)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from shardq.client.async_delivery import AsyncDelivery
from shardq.client.async_job import AsyncJob
from shardq.client.async_queue import AsyncQueue
from shardq.client.async_stands import AsyncStands
from shardq.client.leases import delivered
from shardq.client.work import Work
from shardq.errors import ConfigError
from shardq.model import (
    DeadLetter,
    Limits,
    Message,
    MessageStatus,
    Purged,
    QueueConfig,
    QueueStats,
    Received,
    Tenant,
    Where,
    Written,
)
from shardq.model.delivery import DeliveryView
from shardq.model.failed import Problem
from shardq.model.message import messages_of
from shardq.ops import inspect, operate
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.who import Who
from shardq.ops.read.give_back import give_back_all
from shardq.ops.read.read import checked_count, checked_wanted
from shardq.ops.settle.settle import checked_each
from shardq.ops.write.outgoing import compose_all
from shardq.partitions.parts import Parts, open_parts
from shardq.partitions.reads import Granted, Rows, read_turns
from shardq.partitions.sums import sum_of
from shardq.partitions.writes import write_dealt
from shardq.protocol.ids import split, with_partition

if TYPE_CHECKING:
    from shardq.client.async_client import AsyncClient

T = TypeVar("T")

UNBUILT: Final = (
    "actions", "assign", "assignment", "controls", "delete_dead", "failures", "history", "journal", "outlook", "peek",
    "plans", "redrive", "resize", "retry_now", "stop_action", "take_over", "tenants", "unassign", "verdict", "workers",
)  # fmt: skip
"""Methods that a queue with partitions has not yet."""


class AsyncPartDelivery(AsyncDelivery):
    """A delivery of one partition of a queue. It counts as in flight there until it was settled, or nobody holds it."""

    __slots__ = ("_counts",)

    _queue: AsyncPartition

    def __init__(self, received: Received, queue: AsyncPartition, work: Work) -> None:
        super().__init__(received, queue, work)
        self._counts = True

    @property
    def message_id(self) -> str:
        """The id that `write` returned, which says which partition has the message."""
        return with_partition(self.received.message_id, self._queue.number)

    def _note(self, *, lost: bool) -> None:
        super()._note(lost=lost)
        if self._counts:
            self._counts = False
            self._queue.settled(self)

    def __del__(self) -> None:
        """Let go of what was never settled: its lease ends by itself."""
        if getattr(self, "_counts", False):
            self._queue.let_go()


class AsyncPartition(AsyncQueue):
    """One partition of *whole*, as its deliveries know it: settled there. What is written goes to the whole."""

    def __init__(self, whole: AsyncPartitionedQueue, parts: Parts, number: int) -> None:
        super().__init__(whole.client, parts.states[number])
        self._telemetry = whole._telemetry
        self._whole, self._parts, self.number = whole, parts, number

    async def write(self, payload: Any, **options: Any) -> Any:
        """Store one message in the queue, in the partition of its shard key: see `AsyncQueue.write`."""
        return await self._whole.write(payload, **options)

    async def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in the queue, in the partitions of their shard keys: see `AsyncQueue.write_many`."""
        return await self._whole.write_many(messages, timeout=timeout)

    def settled(self, delivery: AsyncPartDelivery) -> None:
        """Note that one of its deliveries is not in flight any more, and what the work on it took."""
        took = delivery.took
        if took is None:
            took = self.state.clock.monotonic() - delivery.work.since
        with self._parts.lock:
            self._parts.turns.settled(self.number, took)

    def let_go(self) -> None:
        """Note that nobody holds one of its deliveries any more."""
        with self._parts.lock:
            self._parts.turns.left(self.number, 1)


class AsyncPartitionedQueue(AsyncQueue):
    """A queue that is spread over the nodes of a cluster, used as any other one.

    A shard key has its home in one of the partitions. There it is served as in a queue of one part. Deliveries have the
    partition as their `queue`, and ids of messages end in its number.
    """

    def __init__(self, client: AsyncClient, state: QueueState) -> None:
        super().__init__(client, state)
        self._known: Parts | None = None
        self._each: tuple[AsyncPartition, ...] = ()

    async def _parts(self, timeout: float | None = None) -> Parts:
        """Return what is known of the partitions. The first call looks them up, or makes them."""
        if self._known is None:
            until = self.state.until(timeout)
            parts = await self._client.run(open_parts(self.state, self._client.state_of_part, until))
            self._each = tuple([AsyncPartition(self, parts, number) for number in range(parts.map.read)])
            with parts.lock:
                parts.stands = parts.stands or AsyncStands(self._client, parts)
            self._known = parts
        return self._known

    async def _everywhere(self, op: Callable[[QueueState], Op[T]], timeout: float | None) -> list[T]:
        parts = await self._parts(timeout)
        return await self._client.run(parts.everywhere(op))

    async def _of(self, message_id: str, timeout: float | None) -> tuple[AsyncPartition, str]:
        """Return the partition that has a message, and the message's id in it."""
        inner, number = split(message_id)
        parts = await self._parts(timeout)
        parts.of(number)
        return self._each[number], inner

    # --- by shard key ----------------------------------------------------------------------------------------------

    async def write(self, payload: Any, **options: Any) -> Any:
        """Store one message in the home of its shard key: see `AsyncQueue.write`."""
        await self._parts(options.get("timeout"))
        written = await super().write(payload, **options)
        return AsyncPartJob.of(self, written, written._returns) if isinstance(written, AsyncJob) else written

    async def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in the homes of their shard keys, at once: see `AsyncQueue.write_many`."""
        parts = await self._parts(timeout)
        with self._telemetry.writing(len(batch := messages_of(messages))) as told:
            composed = compose_all(self.state, self._codecs, batch, told.context)
            ids = await self._client.run(write_dealt(parts, composed, timeout)) if composed else []
            told.wrote(ids)
            return ids

    async def tenant(self, shard_key: str | bytes, *, neighbours: bool = False, timeout: float | None = None) -> Tenant:
        """Return what one shard key has in its home: see `AsyncQueue.tenant`."""
        home = (await self._parts(timeout)).home_of(shard_key)
        return await self._client.run(inspect.tenants.tenant(home, shard_key, timeout, neighbours=neighbours))

    # --- read ------------------------------------------------------------------------------------------------------

    async def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        ack: AsyncDelivery | Sequence[AsyncDelivery] | None,
        *,
        batch: bool,
    ) -> list[AsyncDelivery]:
        checked_wanted(block, visibility, prefer)
        checked_count(count)
        parts = await self._parts(timeout)
        clock = self.state.clock
        until = clock.monotonic() + block
        call_until = max(until, self.state.until(timeout))
        if ack is not None:
            await self._ack_first(ack, timeout)
        while True:
            rows = await self._read_now(parts, count, visibility, call_until)
            waited: Rows | None = rows
            if not rows and clock.monotonic() < until:
                waited = await parts.stands.wait(count, visibility, until)
            if waited:
                return self._delivered(waited)
            if waited is None or clock.monotonic() >= until:
                return []

    async def _read_now(self, parts: Parts, count: int, visibility: float | None, until: float) -> Rows:
        granted: Granted = {}
        try:
            return await self._client.run(read_turns(parts, count, visibility, until, granted))
        except asyncio.CancelledError:
            for number, each in granted.items():
                if each.holder or each.rows:
                    state = parts.states[number]
                    self._client._run_in_background(give_back_all(state, each, state.until()))
            raise

    def _delivered(self, rows: Rows) -> list[AsyncDelivery]:
        return [
            each for number, some in rows.items() for each in delivered(AsyncPartDelivery, some, self._each[number])
        ]

    async def _ack_first(self, ack: AsyncDelivery | Sequence[AsyncDelivery], timeout: float | None) -> None:
        """Settle what a read is to ack. What has its answer is not acked again, and a lost lease is noted on it."""
        given = [ack] if isinstance(ack, DeliveryView) else ack
        await self.ack_many([each for each in given if not each.answered], timeout=timeout)

    # --- by delivery -----------------------------------------------------------------------------------------------

    def _by_part(self, deliveries: Sequence[AsyncDelivery]) -> dict[AsyncQueue, list[int]]:
        """Return the indexes of *deliveries* by the partitions that they were read from. ConfigError for others."""
        found: dict[AsyncQueue, list[int]] = {}
        for at, each in enumerate(deliveries):
            queue = getattr(each, "queue", None)
            if not isinstance(queue, AsyncPartition) or queue._whole.name != self.name:
                raise ConfigError(f"{each!r} is not of queue {self.name!r}: settle it where it was read")
            found.setdefault(queue, []).append(at)
        return found

    async def ack_many(
        self,
        deliveries: Sequence[AsyncDelivery],
        *,
        results: Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """Settle many deliveries as done, in their partitions: see `AsyncQueue.ack_many`."""
        late: list[AsyncDelivery] = []
        for queue, every in self._by_part(deliveries).items():
            kept = None if results is None else [results[at] for at in every]
            late += await queue.ack_many([deliveries[at] for at in every], results=kept, timeout=timeout)
        return late

    async def nack_many(
        self,
        deliveries: Sequence[AsyncDelivery],
        *,
        delay: float | Sequence[float] = 0.0,
        error: Problem | Sequence[Problem] = "",
        counted: bool = True,
        timeout: float | None = None,
    ) -> list[AsyncDelivery]:
        """Give many deliveries back, in their partitions: see `AsyncQueue.nack_many`."""
        checked_each("delay", delay, len(deliveries))
        checked_each("error", error, len(deliveries))
        late: list[AsyncDelivery] = []
        for queue, every in self._by_part(deliveries).items():
            late += await queue.nack_many(
                [deliveries[at] for at in every],
                delay=_of_these(delay, every),
                error=_of_these(error, every),
                counted=counted,
                timeout=timeout,
            )
        return late

    async def reject_many(
        self, deliveries: Sequence[AsyncDelivery], reason: Problem | Sequence[Problem], *, timeout: float | None = None
    ) -> list[AsyncDelivery]:
        """Move many deliveries to the dead letters of their partitions: see `AsyncQueue.reject_many`."""
        checked_each("reason", reason, len(deliveries))
        late: list[AsyncDelivery] = []
        for queue, every in self._by_part(deliveries).items():
            reasons = _of_these(reason, every)
            late += await queue.reject_many([deliveries[at] for at in every], reasons, timeout=timeout)
        return late

    # --- by id -----------------------------------------------------------------------------------------------------

    async def cancel(self, message_id: str | Where, **options: Any) -> Any:
        """Remove a message from its partition: see `AsyncQueue.cancel`. Not by a `Where` yet."""
        if isinstance(message_id, Where):
            _refuse("cancel by a Where")
        queue, inner = await self._of(message_id, options.get("timeout"))
        return await queue.cancel(inner, **options)

    async def result(self, message_id: str, *, timeout: float | None = None) -> Any:
        """Return the result of a message, as `AsyncQueue.result` does."""
        queue, inner = await self._of(message_id, timeout)
        return await queue.result(inner, timeout=timeout)

    async def status(self, message_id: str, *, timeout: float | None = None) -> MessageStatus:
        """Tell where a message is: see `AsyncQueue.status`."""
        queue, inner = await self._of(message_id, timeout)
        return await queue.status(inner, timeout=timeout)

    # --- everywhere ------------------------------------------------------------------------------------------------

    async def len(self, *, timeout: float | None = None) -> int:
        """Return how many messages ask for work in all partitions: see `AsyncQueue.len`.

        A message that is there all the time of the call counts once, and one that is never there does not count.
        """
        return sum(await self._everywhere(lambda state: inspect.stats.length(state, timeout), timeout))

    async def stats(self, *, timeout: float | None = None) -> QueueStats:
        """Return the numbers of all partitions together: see `AsyncQueue.stats`. Each is of an instant of its own."""
        found = await self._everywhere(lambda state: inspect.stats.statistics(state, timeout), timeout)
        return sum_of(self.name, found)

    async def declare(self, *, timeout: float | None = None) -> QueueConfig:
        """Create the queue and its partitions if they do not exist, and return the queue's settings."""
        self.state.creates = True
        await self._parts(timeout)
        return self.state.config

    async def settings(self, *, timeout: float | None = None) -> QueueConfig:
        """Return the queue's settings as they are now. QueueMissing if there is no such queue."""
        await self._parts(timeout)
        return await super().settings(timeout=timeout)

    async def configure(
        self, *, by: str | None = None, note: str | None = None, timeout: float | None = None, **settings: Any
    ) -> QueueConfig:
        """Change settings of all partitions: see `AsyncQueue.configure`."""
        who = Who(by, note)
        found = await self._everywhere(lambda state: operate.queues.configure(state, settings, timeout, who), timeout)
        return found[0]

    async def delete(self, *, expected: int | None = 0, timeout: float | None = None) -> int:
        """Delete all partitions, the queue itself last: see `AsyncQueue.delete`. Only as many as *expected* in each.

        Of a number other than 0 only None is taken: nobody knows how they are spread.
        """
        if expected not in (0, None):
            raise ConfigError("a queue with partitions is deleted when it is empty (0), or whatever it holds (None)")
        parts, deleted = await self._parts(timeout), 0
        for state in reversed(parts.states):
            deleted += await self._client.run(operate.queues.delete(state, expected, timeout))
        self.state.parts = self._known = None
        self.state.forget()
        return deleted

    async def purge(self, *, shard_key: str | bytes | None = None, **options: Any) -> Any:
        """Remove every message that waits, or what one shard key has, in all partitions: see `AsyncQueue.purge`."""
        await self._parts(options.get("timeout"))
        given: dict[str, Any] = options if shard_key is None else {**options, "shard_key": shard_key}
        found: list[Any] = [await each.purge(**given) for each in self._each]
        return sum(found) if shard_key is None else _purged(found)

    async def pause(
        self,
        shard_key: str | bytes | None = None,
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Deliver nothing of a shard key, or of the whole queue: see `AsyncQueue.pause`."""
        who = Who(by, note)
        await self._everywhere(lambda state: operate.limits.pause(state, shard_key, seconds, timeout, who), timeout)

    async def resume(
        self,
        shard_key: str | bytes | None = None,
        *,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Go on with a shard key, or with the whole queue: see `AsyncQueue.resume`."""
        who = Who(by, note)
        await self._everywhere(lambda state: operate.limits.resume(state, shard_key, timeout, who), timeout)

    async def paused(self, *, timeout: float | None = None) -> dict[str | bytes | None, float]:
        """Return what is paused: see `AsyncQueue.paused`."""
        await self._parts(timeout)
        return await super().paused(timeout=timeout)

    async def limits(self, *, timeout: float | None = None) -> dict[str | bytes, Limits | str]:
        """Return the shard keys that have limits of their own: see `AsyncQueue.limits`."""
        await self._parts(timeout)
        return await super().limits(timeout=timeout)

    async def set_limits(
        self,
        changes: Mapping[str | bytes, Limits | str],
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give shard keys limits of their own, in all partitions: see `AsyncQueue.set_limits`."""
        who = Who(by, note)
        await self._everywhere(lambda state: operate.limits.set_limits(state, changes, timeout, seconds, who), timeout)

    async def weights(self, *, timeout: float | None = None) -> dict[str | bytes, int]:
        """Return the shard keys whose weight is not 1: see `AsyncQueue.weights`."""
        await self._parts(timeout)
        return await super().weights(timeout=timeout)

    async def set_weights(
        self,
        changes: Mapping[str | bytes, int],
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> dict[str | bytes, int]:
        """Give shard keys a weight, in all partitions: see `AsyncQueue.set_weights`."""
        who = Who(by, note)
        found = await self._everywhere(
            lambda state: operate.weights.set_weights(state, changes, timeout, seconds, who), timeout
        )
        return found[0]

    async def set_plan(self, name: str, **options: Any) -> None:
        """Make or change a plan, in all partitions: see `AsyncQueue.set_plan`."""
        await self._parts(options.get("timeout"))
        for each in self._each:
            await each.set_plan(name, **options)

    async def delete_plan(self, name: str, **options: Any) -> None:
        """Delete a plan, in all partitions: see `AsyncQueue.delete_plan`."""
        await self._parts(options.get("timeout"))
        for each in self._each:
            await each.delete_plan(name, **options)

    async def dead(self, count: int = 100, *, after: str = "-", timeout: float | None = None) -> list[DeadLetter]:
        """Return up to *count* dead letters of all partitions, of each the oldest first: see `AsyncQueue.dead`."""
        if after != "-":
            _refuse("dead letters after an id")
        await self._parts(timeout)
        found: list[DeadLetter] = []
        for each in self._each:
            some = await each.dead(count, after=after, timeout=timeout)
            found += [_placed(one, each.number) for one in some]

        return [letter.read_with(self._codecs) for letter in found[: checked_count(count)]]


class AsyncPartJob(AsyncJob[T]):
    """A job in one of the partitions of a queue."""

    async def result(self, *, timeout: float | None = None) -> T:
        """Wait for the result, as `AsyncJob.result` does."""
        queue: Any = self._queue
        part, inner = await queue._of(str(self), timeout)
        return await AsyncJob[T].of(part, inner, self._returns).result(timeout=timeout)


def _of_these(value: Any, every: Sequence[int]) -> Any:
    """Return what a call for some deliveries takes: the one value of all, or those of these."""
    return [value[at] for at in every] if isinstance(value, (list, tuple)) else value


def _placed(letter: DeadLetter, number: int) -> DeadLetter:
    """Return a dead letter with the id that says in which partition it is."""
    return dataclasses.replace(letter, message_id=with_partition(letter.message_id, number))


def _purged(found: Sequence[Purged]) -> Purged:
    """Return the numbers of several purges together."""
    return Purged(**{name: sum(getattr(each, name) for each in found) for name in Purged.__struct_fields__})


def _refuse(what: str) -> NoReturn:
    raise ConfigError(f"a queue with partitions has no {what} yet")


def _unbuilt(name: str) -> Callable[..., Any]:
    async def refused(self: AsyncPartitionedQueue, *_: Any, **__: Any) -> NoReturn:
        """Raise ConfigError: a queue with partitions has this not yet."""
        _refuse(f"{name}()")

    refused.__name__ = name
    return refused


for _name in UNBUILT:
    setattr(AsyncPartitionedQueue, _name, _unbuilt(_name))

# Generated from async_partitions.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""`PartitionedQueue`, for threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from shardq.client.delivery import Delivery
from shardq.client.job import Job
from shardq.client.leases import delivered
from shardq.client.queue import Queue
from shardq.client.sync_stands import Stands
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
from shardq.ops.read.read import checked_count, checked_wanted
from shardq.ops.settle.settle import checked_each
from shardq.ops.write.outgoing import compose_all
from shardq.partitions.parts import Parts, open_parts
from shardq.partitions.reads import Granted, Rows, read_turns
from shardq.partitions.sums import sum_of
from shardq.partitions.writes import write_dealt
from shardq.protocol.ids import split, with_partition

if TYPE_CHECKING:
    from shardq.client.client import Client

T = TypeVar("T")

UNBUILT: Final = (
    "actions", "assign", "assignment", "controls", "delete_dead", "failures", "history", "journal", "outlook", "peek",
    "plans", "redrive", "resize", "retry_now", "stop_action", "take_over", "tenants", "unassign", "verdict", "workers",
)  # fmt: skip
"""Methods that a queue with partitions has not yet."""


class PartDelivery(Delivery):
    """A delivery of one partition of a queue. It counts as in flight there until it was settled, or nobody holds it."""

    __slots__ = ("_counts",)

    _queue: Partition

    def __init__(self, received: Received, queue: Partition, work: Work) -> None:
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


class Partition(Queue):
    """One partition of *whole*, as its deliveries know it: settled there. What is written goes to the whole."""

    def __init__(self, whole: PartitionedQueue, parts: Parts, number: int) -> None:
        super().__init__(whole.client, parts.states[number])
        self._telemetry = whole._telemetry
        self._whole, self._parts, self.number = whole, parts, number

    def write(self, payload: Any, **options: Any) -> Any:
        """Store one message in the queue, in the partition of its shard key: see `Queue.write`."""
        return self._whole.write(payload, **options)

    def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in the queue, in the partitions of their shard keys: see `Queue.write_many`."""
        return self._whole.write_many(messages, timeout=timeout)

    def settled(self, delivery: PartDelivery) -> None:
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


class PartitionedQueue(Queue):
    """A queue that is spread over the nodes of a cluster, used as any other one.

    A shard key has its home in one of the partitions. There it is served as in a queue of one part. Deliveries have the
    partition as their `queue`, and ids of messages end in its number.
    """

    def __init__(self, client: Client, state: QueueState) -> None:
        super().__init__(client, state)
        self._known: Parts | None = None
        self._each: tuple[Partition, ...] = ()

    def _parts(self, timeout: float | None = None) -> Parts:
        """Return what is known of the partitions. The first call looks them up, or makes them."""
        if self._known is None:
            until = self.state.until(timeout)
            parts = self._client.run(open_parts(self.state, self._client.state_of_part, until))
            self._each = tuple([Partition(self, parts, number) for number in range(parts.map.read)])
            with parts.lock:
                parts.stands = parts.stands or Stands(self._client, parts)
            self._known = parts
        return self._known

    def _everywhere(self, op: Callable[[QueueState], Op[T]], timeout: float | None) -> list[T]:
        parts = self._parts(timeout)
        return self._client.run(parts.everywhere(op))

    def _of(self, message_id: str, timeout: float | None) -> tuple[Partition, str]:
        """Return the partition that has a message, and the message's id in it."""
        inner, number = split(message_id)
        parts = self._parts(timeout)
        parts.of(number)
        return self._each[number], inner

    # --- by shard key ----------------------------------------------------------------------------------------------

    def write(self, payload: Any, **options: Any) -> Any:
        """Store one message in the home of its shard key: see `Queue.write`."""
        self._parts(options.get("timeout"))
        written = super().write(payload, **options)
        return PartJob.of(self, written, written._returns) if isinstance(written, Job) else written

    def write_many(
        self, messages: Iterable[Message | tuple[Any, str | bytes]], *, timeout: float | None = None
    ) -> list[Written]:
        """Store many messages in the homes of their shard keys, at once: see `Queue.write_many`."""
        parts = self._parts(timeout)
        with self._telemetry.writing(len(batch := messages_of(messages))) as told:
            composed = compose_all(self.state, self._codecs, batch, told.context)
            ids = self._client.run(write_dealt(parts, composed, timeout)) if composed else []
            told.wrote(ids)
            return ids

    def tenant(self, shard_key: str | bytes, *, neighbours: bool = False, timeout: float | None = None) -> Tenant:
        """Return what one shard key has in its home: see `Queue.tenant`."""
        home = (self._parts(timeout)).home_of(shard_key)
        return self._client.run(inspect.tenants.tenant(home, shard_key, timeout, neighbours=neighbours))

    # --- read ------------------------------------------------------------------------------------------------------

    def _read(
        self,
        count: int,
        block: float,
        visibility: float | None,
        prefer: int | None,
        timeout: float | None,
        ack: Delivery | Sequence[Delivery] | None,
        *,
        batch: bool,
    ) -> list[Delivery]:
        checked_wanted(block, visibility, prefer)
        checked_count(count)
        parts = self._parts(timeout)
        clock = self.state.clock
        until = clock.monotonic() + block
        call_until = max(until, self.state.until(timeout))
        if ack is not None:
            self._ack_first(ack, timeout)
        while True:
            rows = self._read_now(parts, count, visibility, call_until)
            waited: Rows | None = rows
            if not rows and clock.monotonic() < until:
                waited = parts.stands.wait(count, visibility, until)
            if waited:
                return self._delivered(waited)
            if waited is None or clock.monotonic() >= until:
                return []

    def _read_now(self, parts: Parts, count: int, visibility: float | None, until: float) -> Rows:
        granted: Granted = {}
        return self._client.run(read_turns(parts, count, visibility, until, granted))

    def _delivered(self, rows: Rows) -> list[Delivery]:
        return [each for number, some in rows.items() for each in delivered(PartDelivery, some, self._each[number])]

    def _ack_first(self, ack: Delivery | Sequence[Delivery], timeout: float | None) -> None:
        """Settle what a read is to ack. What has its answer is not acked again, and a lost lease is noted on it."""
        given = [ack] if isinstance(ack, DeliveryView) else ack
        self.ack_many([each for each in given if not each.answered], timeout=timeout)

    # --- by delivery -----------------------------------------------------------------------------------------------

    def _by_part(self, deliveries: Sequence[Delivery]) -> dict[Queue, list[int]]:
        """Return the indexes of *deliveries* by the partitions that they were read from. ConfigError for others."""
        found: dict[Queue, list[int]] = {}
        for at, each in enumerate(deliveries):
            queue = getattr(each, "queue", None)
            if not isinstance(queue, Partition) or queue._whole.name != self.name:
                raise ConfigError(f"{each!r} is not of queue {self.name!r}: settle it where it was read")
            found.setdefault(queue, []).append(at)
        return found

    def ack_many(
        self,
        deliveries: Sequence[Delivery],
        *,
        results: Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> list[Delivery]:
        """Settle many deliveries as done, in their partitions: see `Queue.ack_many`."""
        late: list[Delivery] = []
        for queue, every in self._by_part(deliveries).items():
            kept = None if results is None else [results[at] for at in every]
            late += queue.ack_many([deliveries[at] for at in every], results=kept, timeout=timeout)
        return late

    def nack_many(
        self,
        deliveries: Sequence[Delivery],
        *,
        delay: float | Sequence[float] = 0.0,
        error: Problem | Sequence[Problem] = "",
        counted: bool = True,
        timeout: float | None = None,
    ) -> list[Delivery]:
        """Give many deliveries back, in their partitions: see `Queue.nack_many`."""
        checked_each("delay", delay, len(deliveries))
        checked_each("error", error, len(deliveries))
        late: list[Delivery] = []
        for queue, every in self._by_part(deliveries).items():
            late += queue.nack_many(
                [deliveries[at] for at in every],
                delay=_of_these(delay, every),
                error=_of_these(error, every),
                counted=counted,
                timeout=timeout,
            )
        return late

    def reject_many(
        self, deliveries: Sequence[Delivery], reason: Problem | Sequence[Problem], *, timeout: float | None = None
    ) -> list[Delivery]:
        """Move many deliveries to the dead letters of their partitions: see `Queue.reject_many`."""
        checked_each("reason", reason, len(deliveries))
        late: list[Delivery] = []
        for queue, every in self._by_part(deliveries).items():
            reasons = _of_these(reason, every)
            late += queue.reject_many([deliveries[at] for at in every], reasons, timeout=timeout)
        return late

    # --- by id -----------------------------------------------------------------------------------------------------

    def cancel(self, message_id: str | Where, **options: Any) -> Any:
        """Remove a message from its partition: see `Queue.cancel`. Not by a `Where` yet."""
        if isinstance(message_id, Where):
            _refuse("cancel by a Where")
        queue, inner = self._of(message_id, options.get("timeout"))
        return queue.cancel(inner, **options)

    def result(self, message_id: str, *, timeout: float | None = None) -> Any:
        """Return the result of a message, as `Queue.result` does."""
        queue, inner = self._of(message_id, timeout)
        return queue.result(inner, timeout=timeout)

    def status(self, message_id: str, *, timeout: float | None = None) -> MessageStatus:
        """Tell where a message is: see `Queue.status`."""
        queue, inner = self._of(message_id, timeout)
        return queue.status(inner, timeout=timeout)

    # --- everywhere ------------------------------------------------------------------------------------------------

    def len(self, *, timeout: float | None = None) -> int:
        """Return how many messages ask for work in all partitions: see `Queue.len`.

        A message that is there all the time of the call counts once, and one that is never there does not count.
        """
        return sum(self._everywhere(lambda state: inspect.stats.length(state, timeout), timeout))

    def stats(self, *, timeout: float | None = None) -> QueueStats:
        """Return the numbers of all partitions together: see `Queue.stats`. Each is of an instant of its own."""
        found = self._everywhere(lambda state: inspect.stats.statistics(state, timeout), timeout)
        return sum_of(self.name, found)

    def declare(self, *, timeout: float | None = None) -> QueueConfig:
        """Create the queue and its partitions if they do not exist, and return the queue's settings."""
        self.state.creates = True
        self._parts(timeout)
        return self.state.config

    def settings(self, *, timeout: float | None = None) -> QueueConfig:
        """Return the queue's settings as they are now. QueueMissing if there is no such queue."""
        self._parts(timeout)
        return super().settings(timeout=timeout)

    def configure(
        self, *, by: str | None = None, note: str | None = None, timeout: float | None = None, **settings: Any
    ) -> QueueConfig:
        """Change settings of all partitions: see `Queue.configure`."""
        who = Who(by, note)
        found = self._everywhere(lambda state: operate.queues.configure(state, settings, timeout, who), timeout)
        return found[0]

    def delete(self, *, expected: int | None = 0, timeout: float | None = None) -> int:
        """Delete all partitions, the queue itself last: see `Queue.delete`. Only as many as *expected* in each.

        Of a number other than 0 only None is taken: nobody knows how they are spread.
        """
        if expected not in (0, None):
            raise ConfigError("a queue with partitions is deleted when it is empty (0), or whatever it holds (None)")
        parts, deleted = self._parts(timeout), 0
        for state in reversed(parts.states):
            deleted += self._client.run(operate.queues.delete(state, expected, timeout))
        self.state.parts = self._known = None
        self.state.forget()
        return deleted

    def purge(self, *, shard_key: str | bytes | None = None, **options: Any) -> Any:
        """Remove every message that waits, or what one shard key has, in all partitions: see `Queue.purge`."""
        self._parts(options.get("timeout"))
        given: dict[str, Any] = options if shard_key is None else {**options, "shard_key": shard_key}
        found: list[Any] = [each.purge(**given) for each in self._each]
        return sum(found) if shard_key is None else _purged(found)

    def pause(
        self,
        shard_key: str | bytes | None = None,
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Deliver nothing of a shard key, or of the whole queue: see `Queue.pause`."""
        who = Who(by, note)
        self._everywhere(lambda state: operate.limits.pause(state, shard_key, seconds, timeout, who), timeout)

    def resume(
        self,
        shard_key: str | bytes | None = None,
        *,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Go on with a shard key, or with the whole queue: see `Queue.resume`."""
        who = Who(by, note)
        self._everywhere(lambda state: operate.limits.resume(state, shard_key, timeout, who), timeout)

    def paused(self, *, timeout: float | None = None) -> dict[str | bytes | None, float]:
        """Return what is paused: see `Queue.paused`."""
        self._parts(timeout)
        return super().paused(timeout=timeout)

    def limits(self, *, timeout: float | None = None) -> dict[str | bytes, Limits | str]:
        """Return the shard keys that have limits of their own: see `Queue.limits`."""
        self._parts(timeout)
        return super().limits(timeout=timeout)

    def set_limits(
        self,
        changes: Mapping[str | bytes, Limits | str],
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Give shard keys limits of their own, in all partitions: see `Queue.set_limits`."""
        who = Who(by, note)
        self._everywhere(lambda state: operate.limits.set_limits(state, changes, timeout, seconds, who), timeout)

    def weights(self, *, timeout: float | None = None) -> dict[str | bytes, int]:
        """Return the shard keys whose weight is not 1: see `Queue.weights`."""
        self._parts(timeout)
        return super().weights(timeout=timeout)

    def set_weights(
        self,
        changes: Mapping[str | bytes, int],
        *,
        seconds: float | None = None,
        by: str | None = None,
        note: str | None = None,
        timeout: float | None = None,
    ) -> dict[str | bytes, int]:
        """Give shard keys a weight, in all partitions: see `Queue.set_weights`."""
        who = Who(by, note)
        found = self._everywhere(
            lambda state: operate.weights.set_weights(state, changes, timeout, seconds, who), timeout
        )
        return found[0]

    def set_plan(self, name: str, **options: Any) -> None:
        """Make or change a plan, in all partitions: see `Queue.set_plan`."""
        self._parts(options.get("timeout"))
        for each in self._each:
            each.set_plan(name, **options)

    def delete_plan(self, name: str, **options: Any) -> None:
        """Delete a plan, in all partitions: see `Queue.delete_plan`."""
        self._parts(options.get("timeout"))
        for each in self._each:
            each.delete_plan(name, **options)

    def dead(self, count: int = 100, *, after: str = "-", timeout: float | None = None) -> list[DeadLetter]:
        """Return up to *count* dead letters of all partitions, of each the oldest first: see `Queue.dead`."""
        if after != "-":
            _refuse("dead letters after an id")
        self._parts(timeout)
        found: list[DeadLetter] = []
        for each in self._each:
            some = each.dead(count, after=after, timeout=timeout)
            found += [_placed(one, each.number) for one in some]

        return [letter.read_with(self._codecs) for letter in found[: checked_count(count)]]


class PartJob(Job[T]):
    """A job in one of the partitions of a queue."""

    def result(self, *, timeout: float | None = None) -> T:
        """Wait for the result, as `Job.result` does."""
        queue: Any = self._queue
        part, inner = queue._of(str(self), timeout)
        return Job[T].of(part, inner, self._returns).result(timeout=timeout)


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
    def refused(self: PartitionedQueue, *_: Any, **__: Any) -> NoReturn:
        """Raise ConfigError: a queue with partitions has this not yet."""
        _refuse(f"{name}()")

    refused.__name__ = name
    return refused


for _name in UNBUILT:
    setattr(PartitionedQueue, _name, _unbuilt(_name))

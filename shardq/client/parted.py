"""The common part of queues with partitions of both clients: methods made of `WAY_OF_METHOD`, without an `await`.

They return what the client's `run` returns: the result of an operation, or with asyncio what is awaited for it. So one
text serves both. Signatures and docs are those of a queue without partitions; type checkers see these.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from shardq.arguments import text
from shardq.client.acking import note_answers
from shardq.client.leases import LeasedDelivery
from shardq.client.results import results_of
from shardq.client.work import measured
from shardq.errors import CodecError, ConfigError, Empty
from shardq.model import Received, Where
from shardq.model.action import ActionKind
from shardq.model.call import Callee, returns_of
from shardq.model.delivery import checked_deliveries
from shardq.model.unfit import Unfit
from shardq.ops.operate.actions import Running
from shardq.ops.queue.opening import exists
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.who import Who
from shardq.ops.read.acks import Acks
from shardq.ops.results.keep import keep
from shardq.ops.results.wait import result
from shardq.ops.settle import settle
from shardq.ops.settle.settle import Results, Settled, checked_each
from shardq.ops.write.outgoing import compose
from shardq.partitions import acts
from shardq.partitions.parts import Parts, open_parts
from shardq.partitions.reads import is_open
from shardq.partitions.schedules import SCHEDULES
from shardq.partitions.ways import WAY_OF_METHOD, Way, of_message
from shardq.protocol.ids import with_partition
from shardq.telemetry.telemetry import Began, Telemetry

K = TypeVar("K", bound=type)
Each = Callable[[QueueState, Sequence[int], Results], Op[list[Settled]]]
"""Makes the operation that settles the deliveries at some indexes, which are of one partition."""


class PartedQueue:
    """The queue with partitions of either client, but for what needs an `await`."""

    state: QueueState
    name: str
    _client: Any
    _codecs: Any
    _settle_many: Callable[..., Any]
    _each: tuple[Any, ...] = ()
    _kind_of_action: Any
    _kind_of_job: Any
    _kind_of_part: Any

    @property
    def _is_to_agree(self) -> bool:
        """Whether this client has settings of its own that were not compared with those of the queue yet."""
        return bool(not self.state.opened and self.state.explicit)

    def _opened(self, timeout: float | None, *, create: bool) -> Op[Parts]:
        """Return what is known of the partitions. The first call looks them up, or makes them."""
        until = self.state.until(timeout)
        if create and self.state.parts is not None and self._is_to_agree:  # a look alone has found them
            yield from exists(self.state, until)
        if (known := self.state.parts) is not None:
            known.fresh_for()
            return cast("Parts", known)
        return (yield from open_parts(self.state, self._client.state_of_part, self._codecs, until, create=create))

    def _asked(self, way: Way, given: Mapping[str, Any]) -> Op[Any]:
        """Run the operation of a method that was *given* these arguments."""
        if way.creates:
            self.state.creates = True
        parts = yield from self._opened(given["timeout"], create=way.creates or way.opens)
        who = Who(given.get("by"), given.get("note"))
        return (yield from way.op(parts, *[who if name == "who" else given[name] for name in way.takes]))

    def _empty(self, block: float) -> Empty:
        text, parts = f"queue {self.name!r} had nothing to deliver for {block:g} s", self.state.parts
        away = tuple(sorted(parts.away.numbers)) if parts is not None else ()
        error = Empty(f"{text}; its partitions {', '.join(map(str, away))} did not answer" if away else text)
        error.unreachable = away
        return error

    def _check_message(self, payload: Any, options: Mapping[str, Any]) -> None:
        """Raise what is wrong with a message, before anything is made: with the first one the queue may be."""
        given = {name: value for name, value in options.items() if name != "timeout"}
        compose(self.state, self._codecs, payload, **given)

    def _part(self, parts: Parts, number: int) -> Any:
        """Return partition *number* as deliveries know it."""
        each = self._each
        if not each or each[0].parts is not parts:
            each = self._each = tuple([self._kind_of_part(self, parts, at) for at in range(len(parts.states))])
        return each[number] if number < len(each) else self._kind_of_part(self, parts, number)

    # --- actions ---------------------------------------------------------------------------------------------------

    def _begin(
        self,
        kind: ActionKind,
        where: Where,
        rate: float | None,
        limit: int | None,
        by: str | None,
        note: str | None,
        timeout: float | None,
    ) -> Any:
        who = Who(by, note)
        return self._client.run(
            self._act(timeout, lambda parts: acts.begin(parts, kind, where, rate, limit, who, timeout))
        )

    def _act(self, timeout: float | None, op: Callable[[Parts], Op[list[Running]]]) -> Op[Any]:
        parts = yield from self._opened(timeout, create=False)
        return self._kind_of_action(self._client, (yield from op(parts)))

    # --- by delivery -----------------------------------------------------------------------------------------------

    def _settled(
        self, verb: str, deliveries: Sequence[Any], received: list[Received], timeout: float | None, each: Each
    ) -> Any:
        """Settle deliveries by one operation on each partition that they are of, all at once."""
        found: Results = {}
        numbers = [self._number_of(delivery) for delivery in deliveries]
        op = self._settled_each(numbers, timeout, each, found)
        return self._settle_many(verb, deliveries, received, op, found)

    def _settled_each(
        self, numbers: Sequence[int], timeout: float | None, each: Each, found: Results
    ) -> Op[list[Settled]]:
        parts = yield from self._opened(timeout, create=False)
        return (yield from parts.in_each(numbers, lambda state, every: each(state, every, found)))

    def _to_ack(self, ack: Any) -> Acking:
        """Return what a read is to ack. ConfigError if *ack* is not a delivery or several of this queue and client."""
        acking = Acking()
        if ack is None:
            return acking
        for each in checked_deliveries((ack,) if isinstance(ack, LeasedDelivery) else ack):
            number = self._number_of(each)
            if each.queue.client is not self._client:
                raise ConfigError(f"{each!r} was read by another client: ack it there")
            if not each.answered:
                acking.deliveries.setdefault(number, []).append(each)
        acking.parts = {number: Acks.of(measured(some)) for number, some in acking.deliveries.items()}
        return acking

    def _number_of(self, delivery: Any) -> int:
        """Return the number of the partition that a delivery is of. ConfigError for one of another queue."""
        if (own := delivery.queue.name) != self.name:
            raise ConfigError(f"{delivery!r} is of queue {own!r}, not {self.name!r}: settle it there")
        return getattr(delivery, "partition", 0)


def _ack_many(
    self: PartedQueue,
    deliveries: Sequence[Any],
    *,
    results: Sequence[Any] | None = None,
    timeout: float | None = None,
) -> Any:
    checked_deliveries(deliveries)
    kept = None if results is None else results_of(cast("Any", self), deliveries, results)
    received = measured(deliveries)

    def each(state: QueueState, every: Sequence[int], found: Results) -> Op[list[Settled]]:
        if kept:
            yield from keep(state, [kept[at] for at in every], timeout)
        return (yield from settle.ack(state, [received[at] for at in every], timeout, found))

    return self._settled("ack", deliveries, received, timeout, each)


def _nack_many(
    self: PartedQueue,
    deliveries: Sequence[Any],
    *,
    delay: float | Sequence[float] = 0.0,
    error: Any = "",
    counted: bool = True,
    timeout: float | None = None,
) -> Any:
    checked_deliveries(deliveries)
    checked_each("delay", delay, len(deliveries))
    checked_each("error", error, len(deliveries))
    received = measured(deliveries)

    def each(state: QueueState, every: Sequence[int], found: Results) -> Op[list[Settled]]:
        delays, errors, some = _of_these(delay, every), _of_these(error, every), [received[at] for at in every]
        return settle.nack(state, some, delays, errors, timeout, found, counted=counted)

    return self._settled("nack", deliveries, received, timeout, each)


def _reject_many(self: PartedQueue, deliveries: Sequence[Any], reason: Any, *, timeout: float | None = None) -> Any:
    checked_deliveries(deliveries)
    checked_each("reason", reason, len(deliveries))
    received = measured(deliveries)

    def each(state: QueueState, every: Sequence[int], found: Results) -> Op[list[Settled]]:
        return settle.reject(state, [received[at] for at in every], _of_these(reason, every), timeout, found)

    return self._settled("reject", deliveries, received, timeout, each)


def _of_these(value: Any, every: Sequence[int]) -> Any:
    """Return what a call for some deliveries takes: the one value of all, or those of these."""
    return [value[at] for at in every] if isinstance(value, (list, tuple)) else value


def _job(self: PartedQueue, task: Callee[Any], message_id: str) -> Any:
    return self._kind_of_job.of(self, text("message_id", message_id), returns_of(task))


def _take_over(self: PartedQueue, action_id: str, *, timeout: float | None = None) -> Any:
    return self._client.run(self._act(timeout, lambda parts: acts.take_over(parts, action_id, timeout)))


_OTHERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ack_many": _ack_many,
    "job": _job,
    "nack_many": _nack_many,
    "reject_many": _reject_many,
    "take_over": _take_over,
}


def spread(kind: K) -> K:
    """Give a class of queues, or of schedules, with partitions its methods, in the place of those that it inherits."""
    for name, made in _methods(kind):
        setattr(kind, name, functools.wraps(getattr(kind, name))(made))
    return kind


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    is_of_schedules = issubclass(kind, PartedSchedules)
    yield from () if is_of_schedules else _OTHERS.items()
    for name, way in (SCHEDULES if is_of_schedules else WAY_OF_METHOD).items():
        yield name, _by_way(getattr(kind, name), way)


def _by_way(plain: Callable[..., Any], way: Way) -> Callable[..., Any]:
    """Return the method that goes this *way*, and takes what the *plain* one takes. A filter begins an action."""
    signature = inspect.signature(plain)

    def method(self: PartedQueue, *args: Any, **options: Any) -> Any:
        bound = signature.bind(self, *args, **options)
        bound.apply_defaults()
        if any(isinstance(each, Where) for each in bound.args):
            return plain(self, *args, **options)
        return self._client.run(self._asked(way, bound.arguments))

    return method


class Acking:
    """The deliveries that a read acks, and what its calls need for that, by the numbers of their partitions.

    `began` is when the read did, if it is watched; `has_told` says whether telemetry has what it brought.
    """

    def __init__(self) -> None:
        self.deliveries: dict[int, list[Any]] = {}
        self.parts: dict[int, Acks] = {}
        self.began: Began | None = None
        self.has_told = False

    @property
    def is_open(self) -> bool:
        """Whether an ack has no answer."""
        return any(is_open(self.parts[number]) for number in self.deliveries)

    def looked(self, telemetry: Telemetry, rows: list[Received], *, batch: bool) -> None:
        """Note that one call has acked and read."""
        acked = [acks.last for acks in self.parts.values()]
        for (delivery,) in self.deliveries.values():
            delivery._note(lost=False)
        self.deliveries = {}
        self.has_told = bool(rows)
        if self.began is not None and (rows or acked):
            telemetry.looked(rows, acked[0] if acked else (), self.began, batch=batch)

    def note(self, telemetry: Telemetry) -> None:
        """Note on each delivery what was answered, once."""
        for number, deliveries in self.deliveries.items():
            note_answers(deliveries, self.parts[number], telemetry, self.began)
        self.deliveries = {}


class PartedPart:
    """One partition of the queue *whole*, which settles its deliveries."""

    state: QueueState
    _telemetry: Any

    def __init__(self, whole: Any, parts: Parts, number: int) -> None:
        super().__init__(whole.client, parts.at(number))  # type: ignore[call-arg]
        self._telemetry = whole._telemetry
        self.whole, self.parts, self.number = whole, parts, number


class PartedDelivery(LeasedDelivery):
    """A delivery of one partition."""

    __slots__ = ()

    @property
    def message_id(self) -> str:
        """The id that `write` returned, which says which partition has the message."""
        return with_partition(self.received.message_id, self._queue.number)

    @property
    def queue(self) -> Any:
        """The queue that it was read from, all partitions of it."""
        return self._queue.whole

    @property
    def partition(self) -> int:
        """The number of the partition that it was read from."""
        return self._queue.number  # type: ignore[no-any-return]

    def _note(self, *, lost: bool) -> None:
        super()._note(lost=lost)
        self.note_settled()

    def note_settled(self) -> None:
        """Note what the work on it took, or costs if the consumer said so: it is charged, so turns change."""
        parts, state = self._queue.parts, self._queue.state
        took = self.took if self._cost is None else self._cost
        if state.config.fair == "messages":
            took = 0.0
        if took is None:
            took = state.clock.monotonic() - self.work.since
        with parts.lock:
            parts.turns.settled(self._queue.number, took)


class PartedJob:
    """A job in one of the partitions of a queue."""

    _queue: Any
    _returns: Any

    def result(self, *, timeout: float | None = None) -> Any:
        """Wait for the result, as the job of a queue without partitions does."""
        return self._queue.client.run(self._received(timeout))

    def _received(self, timeout: float | None) -> Op[Any]:
        parts = yield from self._queue._opened(timeout, create=False)
        kept = yield from of_message(parts, str(self), lambda state, inner: result(state, inner, timeout))
        try:
            return self._returns.received(parts.codecs, kept.tag, kept.body)
        except Unfit as error:
            raise CodecError(f"the result is not of the type that the task declares: {error}") from None


class PartedSchedules:
    """The schedules that users stored in a queue with partitions."""

    _queue: Any

    @property
    def _client(self) -> Any:
        return self._queue.client

    def _asked(self, way: Way, given: Mapping[str, Any]) -> Op[Any]:
        return self._queue._asked(way, given)  # type: ignore[no-any-return]


class PartedAction:
    """An action on all partitions of a queue."""

    _runner: Any

    def __init__(self, runner: Any, running: Sequence[Running]) -> None:
        super().__init__(runner, running[0])  # type: ignore[call-arg]
        self._all = running

    @property
    def done(self) -> int:
        """How many messages it has acted on, as far as this process knows."""
        return sum(each.record.done for each in self._all)

    @property
    def left(self) -> int | None:
        """About how many are to come; None while that is not known."""
        left = [each.left for each in self._all if not each.is_over]
        return None if None in left else sum(each or 0 for each in left)

    def wait(self, timeout: float | None = None) -> Any:
        """Work on it in all partitions until it is over, or for *timeout* seconds. Return how it is then."""
        return self._runner.run(acts.work(self._all, timeout))

    def status(self, *, timeout: float | None = None) -> Any:
        """Return how it is, as Redis has it."""
        return self._runner.run(acts.status(self._all, timeout))

    def stop(self, *, by: str | None = None, note: str | None = None, timeout: float | None = None) -> Any:
        """Stop it in all partitions."""
        return self._runner.run(acts.stop(self._all, timeout, Who(by, note)))

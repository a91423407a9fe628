"""Ways: each call of a queue, but for reads and writes, as one operation over the queue's partitions.

Both clients have them from the one table `WAY_OF_METHOD`. A way takes the arguments of the method by name, in the order
of its operation; `who` stands for *by* and *note*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from msgspec.structs import replace as merged

from shardq.arguments import flag, iterable, text, whole
from shardq.errors import BackendError, ConfigError, NotAvailable, PartlyDone, QueueNotEmpty, ShardqError
from shardq.model import DeadLetter, JournalPage, Limits, MessageStatus, PeekedPage, Plan, Purged, QueueConfig, Tenant
from shardq.model.dead_letter import letters_of
from shardq.model.event import BITS, unpacked
from shardq.model.partitions import MAX_PARTITIONS
from shardq.model.shares import shared
from shardq.model.wording import plural
from shardq.ops.inspect import beats, dead_letters, failures, journal, outlook, peek, stats, status, tenants
from shardq.ops.operate import (
    actions,
    assign,
    controls,
    limits,
    plans,
    purging,
    queues,
    weights,
)
from shardq.ops.operate.dead_letters import delete_by_id, delete_letters, deletion
from shardq.ops.operate.limits import PlanMissing
from shardq.ops.queue.outcome import outcome_of, told_after
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.queue.who import Who
from shardq.ops.read.read import checked_count
from shardq.ops.results.wait import result
from shardq.ops.settle.cancel import Cancelled, cancel
from shardq.outlook import together
from shardq.partitions import sums, surveys
from shardq.partitions.furnish import furnish
from shardq.partitions.late import PROBE
from shardq.partitions.parts import Parts, all_of, check_settings
from shardq.partitions.resize import resize
from shardq.protocol.ids import split, told, with_partition
from shardq.sharding import key_bytes

T = TypeVar("T")
OfQueue: TypeAlias = Callable[..., Op[T]]
"""An operation of the engine: it takes the state of a queue, and what the call was given."""


class Way(NamedTuple):
    """An operation over the partitions, and the names of what it takes besides these.

    It may make the queue if this client has settings for it (`opens`), or in any case (`creates`).
    """

    op: Callable[..., Op[Any]]
    takes: tuple[str, ...]
    creates: bool = False
    opens: bool = False


def _way(op: Callable[..., Op[Any]], takes: str) -> Way:
    return Way(op, tuple(takes.split()))


def everywhere(op: OfQueue[T], takes: str, unite: Callable[[Sequence[T]], Any]) -> Way:
    """Return the way of a call that looks at all partitions, at once; *unite* makes one result of what they say."""

    def way(parts: Parts, *given: Any) -> Op[Any]:
        return unite((yield from parts.everywhere(lambda state: op(state, *given))))

    return _way(way, takes)


def changed(op: OfQueue[T], takes: str, unite: Callable[[Sequence[T]], Any]) -> Way:
    """Return the way of a call that changes all partitions, at once: the others do not wait for one that fails."""

    def way(parts: Parts, *given: Any) -> Op[Any]:
        same = [[*each] if isinstance(each, Iterator) else each for each in given]
        return unite((yield from parts.change(lambda state: op(state, *same))))

    return _way(way, takes)


def _in_head(op: OfQueue[Any], takes: str) -> Way:
    """Return the way of a call about what all partitions have alike, or only the head has."""
    return _way(lambda parts, *given: op(parts.states[0], *given), takes)


def _of_whole(op: OfQueue[Any], takes: str) -> Way:
    """Return the way of a call that goes over the partitions by itself."""
    return _way(lambda parts, *given: op(parts.whole, *given), takes)


def _first(found: Sequence[T]) -> T:
    return found[0]


def _nothing(found: Sequence[None]) -> None:
    """Return what a change returns that was made in all."""


# --- by id -----------------------------------------------------------------------------------------------------------


def of_message(parts: Parts, message_id: str, op: Callable[[QueueState, str], Op[T]]) -> Op[T]:
    """Run *op* on the partition that an id names, with the id within it. Its errors name the message by its id."""
    inner, number = split(message_id)
    try:
        return (yield from op(parts.of(number), inner))
    except NotAvailable as error:
        told(error, inner, number)
        raise


def _status(parts: Parts, message_id: str, timeout: float | None) -> Op[MessageStatus]:
    found = yield from of_message(parts, message_id, lambda state, inner: status.status(state, inner, timeout))
    return replace(found, message_id=message_id)


def _result(parts: Parts, message_id: str, timeout: float | None) -> Op[Any]:
    kept = yield from of_message(parts, message_id, lambda state, inner: result(state, inner, timeout))
    return parts.codecs.decode(kept.tag, kept.body)


def _cancel(
    parts: Parts, message_id: str, rate: float | None, limit: int | None, timeout: float | None, who: Who
) -> Op[Cancelled]:
    _check_named(rate, limit)
    return (yield from of_message(parts, message_id, lambda state, inner: cancel(state, inner, timeout, who)))


def _check_named(rate: float | None, limit: int | None) -> None:
    if rate is not None or limit is not None:
        raise ConfigError("rate and limit are for a Where, not for messages that are named")


# --- the queue -------------------------------------------------------------------------------------------------------


def _declare(parts: Parts) -> Op[QueueConfig]:
    """Return the settings: to open the partitions has made what was not there."""
    yield from ()
    return parts.states[0].config


def _configure(parts: Parts, settings: dict[str, Any], timeout: float | None, who: Who) -> Op[QueueConfig]:
    """Give each partition its part of what changes, all at once. The head keeps what the whole queue has."""
    if "parents" in settings:
        raise ConfigError("parents of a queue with partitions stay as they are: the homes of shard keys go by them")
    queues.check_changes(settings)
    parts = yield from parts.newest()  # by which the parts are reckoned
    before = yield from queues.settings(parts.states[0], timeout)
    target, count = merged(before, **settings), len(parts.states)
    if count == 1:
        return (yield from queues.configure(parts.states[0], settings, timeout, who))
    check_settings(target, count)
    names = dict.fromkeys(settings if "total_rate" not in settings else (*settings, "total_burst"))
    of_each = [target, *(shared(target, number, count) for number in range(1, count))]
    changes = [{name: getattr(each, name) for name in names} for each in of_each]
    found = yield from parts.change(lambda state: queues.configure(state, changes[state.number], timeout, who))
    return found[0]


def _delete(parts: Parts, expected: int | None, timeout: float | None) -> Op[int]:
    """Delete all partitions, the queue itself last: as long as its map is there, all are found again.

    One that must be empty is looked at first, so that nothing is deleted if anything is there. A message that is
    written to a partition meanwhile keeps the queue: then those that are gone by then are made again.
    """
    if expected not in (0, None):
        raise ConfigError("a queue with partitions is deleted when it is empty (0), or whatever it holds (None)")
    if expected == 0:
        yield from _check_empty(parts, timeout)
    deleted, gone = 0, list[QueueState]()
    for state in reversed(parts.states):
        outcome = yield from outcome_of(queues.delete(state, expected, timeout))
        if isinstance(outcome, QueueNotEmpty):
            yield from told_after("empty partitions of the queue were deleted", _made_again(parts, gone, timeout))
        if isinstance(outcome, ShardqError):
            raise outcome if not gone or isinstance(outcome, QueueNotEmpty) else _deleted_so_far(gone, deleted, outcome)
        deleted += outcome
        gone.append(state)
    parts.forget()
    return deleted


def _made_again(parts: Parts, gone: Sequence[QueueState], timeout: float | None) -> Op[None]:
    for each in gone:
        yield from furnish(parts.states[0], each, len(parts.states), timeout)


def _deleted_so_far(gone: Sequence[QueueState], deleted: int, error: ShardqError) -> PartlyDone:
    numbers = ", ".join(str(each.number) for each in reversed(gone))
    return PartlyDone(
        f"partitions {numbers} of queue {gone[0].keys.name!r} were deleted, with {plural(deleted, 'message')}, and the "
        f"queue cannot be used without them. Delete it again; the error: {error}",
        deleted,
    )


def _check_empty(parts: Parts, timeout: float | None) -> Op[None]:
    """QueueNotEmpty if any partition holds a message. One that an earlier call has deleted holds none."""
    found = yield from parts.everywhere(lambda state: stats.numbers(state, timeout))
    if held := sum(each.backlog + each.in_flight + each.delayed + each.dead for each in found):
        raise queues.not_empty(parts.states[0], held, 0)


def _resize(parts: Parts, streams: int | None, partitions: int | None, timeout: float | None) -> Op[tuple[int, int]]:
    if partitions is None:
        found = yield from parts.change(lambda state: queues.resize(state, cast("int", streams), timeout))
        return found[0]
    return (yield from resize(parts.states[0], parts.make, partitions, timeout))


def _purge(
    parts: Parts, shard_key: str | bytes | None, in_flight: bool, timeout: float | None, who: Who
) -> Op[int | Purged]:
    if shard_key is not None:
        some = yield from parts.outcomes(lambda state: purging.purge_of(state, shard_key, in_flight, timeout, who))
        return sums.purged([each for _, each in some])
    if flag("in_flight", in_flight):
        raise ConfigError("in_flight needs a shard_key: messages in flight of the whole queue stay")
    found = yield from parts.outcomes(lambda state: queues.purge(state, timeout, who))
    return sums.counted([each for _, each in found])


def _set_plan(
    parts: Parts,
    name: str,
    max_in_flight: int | None,
    rate: float | None,
    burst: int | None,
    weight: int,
    timeout: float | None,
    who: Who,
) -> Op[None]:
    plan = Plan(max_in_flight=max_in_flight, rate=rate, burst=burst, weight=weight)
    yield from parts.change(lambda state: plans.set_plan(state, name, plan, timeout, who))


def _delete_plan(parts: Parts, name: str, timeout: float | None, who: Who) -> Op[None]:
    """Delete a plan wherever it is: after an earlier call that failed in one partition, the others have it no more."""
    yield from parts.change(lambda state: plans.delete_plan(state, name, timeout, who), PlanMissing)


def _limits(parts: Parts, timeout: float | None) -> Op[dict[str | bytes, Limits | str]]:
    found = yield from controls.own_controls(parts.states[0], timeout)
    return {key: each.limits for key, each in found.limits.items()}


def _paused(parts: Parts, timeout: float | None) -> Op[dict[str | bytes | None, float]]:
    found = yield from controls.own_controls(parts.states[0], timeout)
    return {key: each.until for key, each in found.paused.items()}


# --- who is there, and what lies there -------------------------------------------------------------------------------


def _tenant(parts: Parts, shard_key: str | bytes, neighbours: bool, timeout: float | None) -> Op[Tenant]:
    """Look in all partitions, as its home may have moved. Another that does not answer at once costs no more."""
    flag("neighbours", neighbours)
    parts.whole.until(timeout)  # ConfigError for a bad one
    home = parts.home_of(shard_key).number

    def look(state: QueueState) -> Op[Tenant]:
        if state.number == home:
            return tenants.tenant(state, shard_key, timeout, neighbours=neighbours)
        return tenants.tenant(state, shard_key, min(PROBE, state.timeout if timeout is None else timeout))

    found = yield from parts.outcomes(look)
    others = [each for at, each in found if at != home and not isinstance(each, BackendError)]
    return surveys.in_all(all_of([*(each for at, each in found if at == home), *others]))


def _tenants(parts: Parts, order: str, limit: int, start: int, timeout: float | None) -> Op[list[Any]]:
    whole("limit", limit, 1, tenants.MAX_LIMIT)
    whole("start", start, 0, 2**40)
    found = yield from parts.everywhere(lambda state: _ranked(state, order, start + limit, timeout))
    shown = sums.tenants(found, order)[start : start + limit]
    names = [key_bytes(each.shard_key) for each in shown]
    if not names:
        return []
    # One whose home has moved may also be in a partition where others come first. How long it waits there is looked up
    # at the heads of streams alone, as where many messages are in the streams.
    many = tenants.FEW_MESSAGES + 1
    rows = yield from parts.everywhere(lambda state: tenants.named(state, names, timeout, ages=True, in_streams=many))
    return surveys.completed(shown, rows, order)


def _ranked(state: QueueState, order: str, wanted: int, timeout: float | None) -> Op[list[Any]]:
    """Return the first *wanted* tenants of one partition."""
    found: list[Any] = []
    while len(found) < wanted:
        page = yield from tenants.tenants(
            state, order, min(tenants.MAX_LIMIT, wanted - len(found)), len(found), timeout
        )
        found += page
        if not page:
            break
    return found


def _peek(
    parts: Parts,
    count: int,
    shard_key: str | bytes | None,
    stream: int | None,
    state: Any,
    payloads: bool,
    after: str | None,
    timeout: float | None,
) -> Op[PeekedPage]:
    """Look at one partition after the other: a cursor says in which, and where there."""
    number, point = _point(after)
    messages: list[Any] = []
    page = PeekedPage((), None, 0.0)
    while True:
        part = parts.of(number)
        op = peek.peek(
            part, count - len(messages), shard_key, stream, state, payloads=payloads, after=point, timeout=timeout
        )
        page = yield from parts.unless_removed(part, op, PeekedPage((), None, page.time))
        messages += [_placed(each, number).read_with(parts.codecs) for each in page.messages]
        point = page.cursor
        number += point is None
        if point is not None or number == len(parts.states) or len(messages) == count:
            cursor = None if number == len(parts.states) else f"{number}|{point or ''}"
            return PeekedPage(tuple(messages), cursor, page.time)


def _point(after: str | None) -> tuple[int, str | None]:
    if after is None:
        return 0, None
    number, _, point = text("after", after).partition("|")
    if not (number.isascii() and number.isdigit() and len(number) < 3):
        raise ConfigError("after must be the cursor of another page of the same state")
    return int(number), point or None


def _dead(parts: Parts, count: int, after: str, timeout: float | None) -> Op[list[DeadLetter]]:
    """Return the letters of one partition after the other. Their entry ids say in which they are."""
    checked_count(count)
    point, number = split(text("after", after))
    found: list[DeadLetter] = []
    while number < len(parts.states) and len(found) < count:
        op = dead_letters.dead_letters(parts.states[number], count - len(found), point, timeout)
        letters = yield from parts.unless_removed(parts.states[number], op, [])
        found += [replace(_placed(each, number), entry_id=with_partition(each.entry_id, number)) for each in letters]
        number, point = number + 1, "-"
    return [each.read_with(parts.codecs) for each in found]


def _placed(each: Any, number: int) -> Any:
    """Return a letter or a message that was looked at with the id that says in which partition it is."""
    return replace(each, message_id=with_partition(each.message_id, number)) if number else each


def _delete_dead(
    parts: Parts,
    letters: Sequence[DeadLetter] | None,
    ids: Iterable[str] | None,
    rate: float | None,
    limit: int | None,
    timeout: float | None,
    who: Who,
) -> Op[int]:
    _check_named(rate, limit)
    if (letters is None) == (ids is None):
        return (yield from deletion(parts.states[0], letters, ids, timeout, who))  # it says what is wrong
    if letters is not None:
        return (yield from _of_letters(parts, letters, lambda state, some: delete_letters(state, some, timeout, who)))
    named: dict[int, list[str]] = {}
    for each in iterable("ids", cast("Iterable[str]", ids), "message ids"):
        inner, number = split(text("an id", each))
        named.setdefault(number, []).append(inner)
    ops = [delete_by_id(parts.of(number), some, timeout, who) for number, some in named.items()]
    return sums.counted((yield from run_together(ops)))


def _redrive(
    parts: Parts, letters: Sequence[DeadLetter], rate: float | None, limit: int | None, timeout: float | None, who: Who
) -> Op[int]:
    _check_named(rate, limit)
    return (yield from _of_letters(parts, letters, lambda state, some: queues.redrive(state, some, timeout, who)))


def _of_letters(
    parts: Parts, letters: Iterable[DeadLetter], op: Callable[[QueueState, list[DeadLetter]], Op[int]]
) -> Op[int]:
    """Run *op* on each partition that has some of *letters*, all at once. Return the sum of what it returns."""
    named: dict[int, list[DeadLetter]] = {}
    for each in letters_of(letters):
        inner, number = split(each.entry_id)
        named.setdefault(number, []).append(replace(each, entry_id=inner))
    return sums.counted((yield from run_together([op(parts.of(number), some) for number, some in named.items()])))


def _journal(parts: Parts, count: int, after: int, timeout: float | None) -> Op[JournalPage]:
    """Return the first *count* events of all partitions, by their times. A position says how far each was read."""
    whole("after", after, 0, 1 << BITS * MAX_PARTITIONS, "the position of another page, or 0")
    points = unpacked(after, MAX_PARTITIONS)
    pages = yield from parts.everywhere(lambda state: journal.journal(state, count, points[state.number], timeout))
    return sums.journal(pages, points, count)


# --- actions ---------------------------------------------------------------------------------------------------------


def _stop_action(parts: Parts, action_id: str, timeout: float | None, who: Who) -> Op[Any]:
    """Stop an action in all partitions in which it is under way."""
    found = yield from parts.change(lambda state: actions.stop(state, action_id, timeout, who), ConfigError)
    return sums.action(found)


WAY_OF_METHOD: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "actions": everywhere(actions.actions, "timeout", sums.actions),
        "assign": changed(assign.assign, "names max_overlap timeout", _first),
        "assignment": _in_head(assign.assignment, "timeout"),
        "cancel": _way(_cancel, "message_id rate limit timeout who"),
        "configure": _way(_configure, "settings timeout who"),
        "controls": _in_head(controls.controls, "shard_key timeout"),
        "dead": _way(_dead, "count after timeout"),
        "declare": Way(_declare, (), creates=True),
        "delete": _way(_delete, "expected timeout"),
        "delete_dead": _way(_delete_dead, "letters ids rate limit timeout who"),
        "delete_plan": _way(_delete_plan, "name timeout who"),
        "failures": everywhere(failures.failures, "timeout", together.failures),
        "history": _in_head(beats.history, "minutes timeout"),
        "journal": _way(_journal, "count after timeout"),
        "len": everywhere(stats.length, "timeout", sums.total),
        "limits": _way(_limits, "timeout"),
        "outlook": _of_whole(outlook.outlook, "shard_key timeout"),
        "paused": _way(_paused, "timeout"),
        "pause": changed(limits.pause, "shard_key seconds timeout who", _nothing),
        "peek": _way(_peek, "count shard_key stream state payloads after timeout"),
        "plans": _in_head(plans.plans, "timeout"),
        "purge": _way(_purge, "shard_key in_flight timeout who"),
        "redrive": _way(_redrive, "letters rate limit timeout who"),
        "resize": _way(_resize, "streams partitions timeout"),
        "result": _way(_result, "message_id timeout"),
        "resume": changed(limits.resume, "shard_key timeout who", _nothing),
        "set_limits": changed(limits.set_limits, "changes timeout seconds who", _nothing),
        "set_plan": _way(_set_plan, "name max_in_flight rate burst weight timeout who"),
        "set_weights": changed(weights.set_weights, "changes timeout seconds who", _first),
        "settings": _in_head(queues.settings, "timeout"),
        "stats": everywhere(stats.statistics, "timeout", together.statistics),
        "status": _way(_status, "message_id timeout"),
        "stop_action": _way(_stop_action, "action_id timeout who"),
        "tenant": _way(_tenant, "shard_key neighbours timeout"),
        "tenants": _way(_tenants, "order limit start timeout"),
        "unassign": changed(assign.unassign, "names timeout", _first),
        "verdict": _of_whole(outlook.verdict, "timeout"),
        "weights": _in_head(weights.weights, "timeout"),
        "workers": _in_head(beats.workers, "timeout"),
    }
)
"""The way of each method that asks nothing but this. The clients write the others themselves."""

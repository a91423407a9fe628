"""Writes: each message goes to the home of its shard key, by one call for each partition, all at once.

A partition that is not there any more was drained, and deleted since this client saw the map. Nothing was stored there,
or the write says that nobody knows (OutcomeUnknown); so its messages are dealt again by the map as it is now. So are
those with keys that a partition refuses since it learned of a newer map: see `knows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from shardq.errors import BackendTimeout, PartlyWritten, QueueMissing, ShardqError
from shardq.model import Written
from shardq.ops.queue.outcome import outcome_of, told_as
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Known, Op
from shardq.ops.queue.together import run_together
from shardq.ops.write.outdated import Outdated
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import Result, placed_ids, write_many, writes_of
from shardq.partitions.knows import Run, dealt, one_by_one
from shardq.partitions.losses import find_again

if TYPE_CHECKING:
    from shardq.partitions.parts import Parts


def write_dealt(parts: Parts, messages: Sequence[Outgoing], timeout: float | None = None) -> Op[list[Written]]:
    """Store many messages, and return their ids in order. Those of one shard key keep their order.

    PartlyWritten if some failed, with an id or an error for each; QueueMissing if the queue is not there any more.
    """
    ordered = yield from store(parts, messages, timeout)
    if failed := next((each for each in ordered if isinstance(each, ShardqError)), None):
        if all(isinstance(each, QueueMissing) for each in ordered):
            raise failed
        raise PartlyWritten(ordered, failed) from failed
    return [each for each in ordered if isinstance(each, Written)]


def store(parts: Parts, messages: Sequence[Outgoing], timeout: float | None) -> Op[list[Result]]:
    """Do as `write_dealt`, but return for each message its id, or the error with which its write ended."""
    until = parts.states[0].until(timeout)
    parts.fresh_for()
    parts, messages, homes, results = yield from _dealt(parts, messages, until, run_together)
    ops = [write_many(parts.states[number], [messages[at] for at in every], timeout) for number, every in homes.items()]
    for (number, every), outcome in zip(homes.items(), (yield from run_together(ops)), strict=True):
        some = _of_each(outcome, number, len(every))
        parts.turns.forget(number)  # what this client wrote, its next read finds
        head = cast("QueueState", parts.states[0].whole)
        some = yield from deal_again(head, parts.states[number], [messages[at] for at in every], some, until)
        results.update(zip(every, some, strict=True))
    return [results[at] for at in range(len(messages))]


def store_in_turn(
    parts: Parts, messages: Sequence[Outgoing], until: float, *, shared: bool = False
) -> Op[list[Result]]:
    """Store messages, which one call could have, in one partition after the other. Return as `store` does.

    It makes no two calls at the same time, so it may continue within a call that callers share. In a *shared* one those
    whose shard keys have no message with a key wait for nobody else.
    """
    keyed = {each.shard_key for each in messages if each.has_key}
    alone = [shared and each.shard_key not in keyed for each in messages]
    first, rest = [[at for at, each in enumerate(alone) if each is which] for which in (True, False)]
    results: dict[int, Result] = {}
    for some in filter(None, (first, rest)):
        stored = yield from _in_turn(parts, [messages[at] for at in some], until)
        results.update(zip(some, stored, strict=True))
        if some is first and rest:
            yield Known([(messages[at], results[at]) for at in first])
    return [results[at] for at in range(len(messages))]


def _in_turn(parts: Parts, messages: Sequence[Outgoing], until: float) -> Op[list[Result]]:
    parts.fresh_for()
    parts, dealt, homes, results = yield from _dealt(parts, messages, until, one_by_one)
    items = {id(each): message for each, message in zip(dealt, messages, strict=True)}
    for number, every in homes.items():
        here = writes_of(parts.states[number]).verb.here([dealt[at] for at in every], until)
        found = yield from outcome_of(told_as(here, lambda item, each: (items[id(item)], each)))
        parts.turns.forget(number)
        results.update(zip(every, [found] * len(every) if isinstance(found, ShardqError) else found, strict=True))
    return [results[at] for at in range(len(messages))]


def _dealt(
    parts: Parts, messages: Sequence[Outgoing], until: float, run: Run
) -> Op[tuple[Parts, Sequence[Outgoing], dict[int, list[int]], dict[int, Result]]]:
    """Return the partitions, the messages, by numbers the indexes of what goes to each, and the errors of the rest."""
    parts, messages, numbers = yield from dealt(parts, messages, until, run)
    homes: dict[int, list[int]] = {}
    errors: dict[int, Result] = {}
    for at, number in enumerate(numbers):
        if isinstance(number, ShardqError):
            errors[at] = number
        else:
            homes.setdefault(number, []).append(at)
    return parts, messages, homes, errors


def deal_again(
    head: QueueState, gone: QueueState, messages: Sequence[Outgoing], results: list[Result], until: float
) -> Op[list[Result]]:
    """Store in their homes those *messages* whose *results* say that the partition of state *gone* is not there.

    Return *results* with what became of them. A home that is still the same is made again (`losses`). Messages dealt by
    a map that is old by now are dealt again in any case, wherever they went.
    """
    kinds = QueueMissing if gone.number > 0 else (QueueMissing, Outdated)
    again = [at for at, each in enumerate(results) if isinstance(each, kinds)]
    if not again:
        return results
    if head.clock.monotonic() > until:
        late = BackendTimeout("the partitions have changed, and no time was left to ask which are there: not written")
        return [late if at in again else each for at, each in enumerate(results)]
    before: Parts | None = head.parts
    if before is None:  # it was deleted by this client, and recreated without partitions
        return results
    asked = yield from outcome_of(find_again(before, until))
    if isinstance(asked, ShardqError):  # the whole queue is gone, say
        return [asked if at in again else each for at, each in enumerate(results)]
    parts: Parts = head.parts or before
    found = dict(zip(again, (yield from store_in_turn(parts, [messages[at] for at in again], until)), strict=True))
    return [found.get(at, each) for at, each in enumerate(results)]


def _of_each(outcome: list[Written] | ShardqError, number: int, count: int) -> list[Result]:
    """Return what became of each of *count* messages of one partition."""
    if isinstance(outcome, PartlyWritten):
        return placed_ids(cast("list[Result]", outcome.results), number)
    if isinstance(outcome, ShardqError):
        return [outcome] * count
    return placed_ids(outcome, number)

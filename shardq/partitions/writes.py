"""write_many: each message goes to the home of its shard key, by one call for each partition, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from shardq.errors import PartlyWritten, QueueMissing, ShardqError
from shardq.model import Written
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import Result, placed_ids, write_many
from shardq.partitions.knows import places
from shardq.partitions.parts import Parts


def write_dealt(parts: Parts, messages: Sequence[Outgoing], timeout: float | None = None) -> Op[list[Written]]:
    """Store many messages, and return their ids in order. Those of one shard key keep their order.

    PartlyWritten if some failed, with an id or an error for each; QueueMissing if the queue is not there any more.
    """
    dealt: dict[int, list[int]] = {}
    results: dict[int, Result] = {}
    for at, number in enumerate((yield from places(parts, messages, parts.states[0].until(timeout)))):
        if isinstance(number, ShardqError):
            results[at] = number
        else:
            dealt.setdefault(number, []).append(at)
    ops = [write_many(parts.states[number], [messages[at] for at in every], timeout) for number, every in dealt.items()]
    for (number, every), outcome in zip(dealt.items(), (yield from run_together(ops)), strict=True):
        results.update(zip(every, _of_each(outcome, number, len(every)), strict=True))
    ordered = [results[at] for at in range(len(messages))]
    if failed := next((each for each in ordered if isinstance(each, ShardqError)), None):
        if all(isinstance(each, QueueMissing) for each in ordered):
            raise failed
        raise PartlyWritten(ordered, failed) from failed
    return [each for each in ordered if isinstance(each, Written)]


def first_error(failed: PartlyWritten) -> ShardqError:
    """Return the error with which the write of the first message ended."""
    return next(each for each in failed.results if isinstance(each, ShardqError))


def _of_each(outcome: list[Written] | ShardqError, number: int, count: int) -> list[Result]:
    """Return what became of each of *count* messages of one partition."""
    if isinstance(outcome, PartlyWritten):
        return placed_ids(cast("list[Result]", outcome.results), number)
    if isinstance(outcome, ShardqError):
        return [outcome] * count
    return placed_ids(outcome, number)

"""The partitions of a queue, as programs and people see them."""

from __future__ import annotations

from shardq.errors import BackendError, ShardqError
from shardq.model import QueueStats
from shardq.model.partitions import Partition, map_of
from shardq.ops.inspect.stats import numbers
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.partitions.map import PartitionMap
from shardq.partitions.parts import MakeState, slots_of


def listed(head: QueueState, make: MakeState, timeout: float | None = None) -> Op[list[Partition]]:
    """Return the partitions of a queue, by the map that it has now. It only reads.

    One that does not answer, or is gone, has no stats; if none answers, the error is raised. One that is being removed
    is not gone: it was empty, and is there until it has left the map.
    """
    until = head.until(timeout)
    seen = yield from sight(head, until)
    found, slots = PartitionMap.parse(map_of(seen.view.config.partitions)), (yield from slots_of(head, until))
    names = [found.name_of(head.keys.name, number) for number in range(found.read)]
    states = [head if number == 0 else make(head, number, name) for number, name in enumerate(names)]
    told = yield from run_together([numbers(state, timeout) for state in states])
    failed = [each for each in told if isinstance(each, ShardqError)]
    for each in failed:
        if len(failed) == len(told) or not isinstance(each, BackendError):
            raise each
    return [
        _partition(number, slots.address_of(name), is_written=number < found.written, stats=_stats_of(each))
        for number, (name, each) in enumerate(zip(names, told, strict=True))
    ]


def _partition(number: int, node: str, *, is_written: bool, stats: QueueStats | None) -> Partition:
    is_gone = is_written and stats is not None and not stats.streams
    return Partition(number, node, is_written, None if is_gone else stats, is_gone)


def _stats_of(told: QueueStats | ShardqError) -> QueueStats | None:
    return None if isinstance(told, ShardqError) else told

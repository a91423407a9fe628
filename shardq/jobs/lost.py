"""Events that are missing in a journal: where, and which jobs may have had some of them."""

from __future__ import annotations

from typing import Any

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.arrays import one, whole
from shardq.jobs.schema import LOST
from shardq.protocol.journal import LOST as LOST_KIND


class LostEvents:
    """Where events are missing: the numbers of the last of each gap, by queue and partition."""

    def __init__(self, events: pa.Table) -> None:
        gaps = events.filter(pc.equal(events["kind"], LOST_KIND))
        self._gaps: dict[tuple[str, int], Any] = {}
        for queue_id, partition in set(zip(gaps["queue_id"].to_pylist(), gaps["partition"].to_pylist(), strict=True)):
            of_it = pc.and_(pc.equal(gaps["queue_id"], queue_id), pc.equal(gaps["partition"], partition))
            self._gaps[queue_id, partition or 0] = np.sort(whole(one(gaps["number"].filter(of_it))))

    def within(self, names: pa.Table, after: Any, upto: Any) -> Any:
        """Return for each message of *names* whether events are missing between two numbers of its partition."""
        found = np.zeros(len(names), bool)
        if not self._gaps:
            return found
        queue_ids, partitions = one(names["queue_id"]), partitions_of(one(names["message_id"]))
        for (queue_id, partition), numbers in self._gaps.items():
            here = pc.equal(queue_ids, queue_id).to_numpy(zero_copy_only=False) & (partitions == partition)
            found |= here & (np.searchsorted(numbers, after, "right") < np.searchsorted(numbers, upto, "left"))
        return found


def partitions_of(message_ids: pa.Array) -> Any:
    """Return the numbers of the partitions that messages are in, by their ids."""
    marked = pc.extract_regex(message_ids, r"@(?P<number>\d+)$")
    return np.maximum(whole(pc.struct_field(marked, "number")), 0)


def lost_of(events: pa.Table) -> pa.Table:
    """Return where events are missing."""
    gaps = events.filter(pc.equal(events["kind"], LOST_KIND))
    columns = [gaps[each] for each in ("queue", "queue_id", "partition", "due", "time", "count")]
    return pa.table([each.cast(kind.type) for each, kind in zip(columns, LOST, strict=True)], schema=LOST)

"""The driver's work when all tasks of a write, or of a micro-batch, have stored their rows."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import WriterCommitMessage

from shardq.errors import BackendError, ShardqError
from shardq.spark.connection import client_of, queue_in, state_of
from shardq.spark.ops.bulk import BulkOffset, complete
from shardq.spark.ops.recount import has_forgotten, recount
from shardq.spark.options import Writing
from shardq.spark.sinks import StoredRows, Wrote

log = logging.getLogger("shardq")
MAX_NAMED = 10  # queues in a line of the log, at most


def commit(options: Writing, messages: Sequence[WriterCommitMessage | None], *, last: bool) -> None:
    """Check that Redis knows of all rows that the tasks stored, and log how many they are.

    BackendError if rows are lost. If nothing can come under this write id again (*last*), its offsets are marked as
    complete.
    """
    wrote = [each for each in messages if isinstance(each, Wrote)]
    stored = [each for task in wrote for each in task.stored]
    if options.idempotence == "row":
        for queue, offsets in _offsets(options, wrote).items():
            _check(options, queue, offsets)
            if last:
                _complete(options, queue, offsets)
    log.info("%s", summary(options.error_queue, stored))


def _offsets(options: Writing, wrote: Sequence[Wrote]) -> Mapping[str, list[BulkOffset]]:
    """The bulk offsets by queue, as they were when the tasks ended."""
    found = defaultdict(list)
    for task in wrote:
        for queue, part, rows in task.stored:
            offset = BulkOffset(task.write_id, part, task.batch, options.remember_for, task.began, stored=rows)
            found[queue].append(offset)
    return found


def _check(options: Writing, queue: str, offsets: Sequence[BulkOffset]) -> None:
    client = client_of(options)
    try:
        lost, forgotten = client.run(recount(state_of(options, queue), offsets))
    except ShardqError as error:
        log.warning(
            "the rows are stored in queue %r, but it could not be checked that they still are: %s", queue, error
        )
        return
    if lost:
        more = f" (and rows of {len(lost) - 1:,} more partitions)" if len(lost) > 1 else ""
        raise BackendError(
            f"Redis has lost rows that were stored: queue {queue!r} does not know of all {lost[0].stored:,} rows of "
            f"partition {lost[0].partition} of write id {lost[0].write_id!r}{more}, as after a restart from an older "
            "snapshot; write again under this id, with the same rows: only what is missing will be stored"
        )
    if forgotten:
        log.warning(
            "all rows of write id %r are stored, but queue %r does not remember those of %d partitions any more: if "
            "they come again under this id, they will be stored again", forgotten[0].write_id, queue, len(forgotten),
        )  # fmt: skip


def _complete(options: Writing, queue: str, offsets: Sequence[BulkOffset]) -> None:
    client = client_of(options)
    try:
        client.run(complete(state_of(options, queue), offsets))
    except ShardqError as error:
        log.warning(
            "the rows are stored in queue %r, but their bulk offsets could not be marked as complete: %s", queue, error
        )


def has_lost_offsets(options: Writing, began: int, messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Whether a new run under the same write id would store rows twice, as far as Redis can be asked."""
    client, wrote = client_of(options), [each for each in messages if isinstance(each, Wrote)]
    queues = {each.queue for task in wrote for each in task.stored} | {options.queue} - {""}
    try:
        return any(client.run(has_forgotten(state_of(options, each), began)) for each in sorted(queues))
    except ShardqError:
        return False


def summary(error_queue: str, stored: Sequence[StoredRows]) -> str:
    """How many rows are in which queues, in one line."""
    counts: Counter[str] = Counter()
    for queue, _, rows in stored:
        counts[queue_in(queue)] += rows
    diverted = counts.pop(error_queue, 0) if error_queue else 0
    named = [f"{count:,} in {queue!r}" for queue, count in counts.most_common(MAX_NAMED)]
    if len(counts) > MAX_NAMED:
        rest = counts.most_common()[MAX_NAMED:]
        named.append(f"{sum(count for _, count in rest):,} in {len(rest):,} more queues")
    bad = f"; {diverted:,} bad rows are in {error_queue!r}" if error_queue else ""
    return f"rows are stored: {', '.join(named) or 'none'}{bad}"

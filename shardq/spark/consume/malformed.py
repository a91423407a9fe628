"""What is leased and malformed becomes dead letters, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardq.client import Client
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.settle.settle import reject
from shardq.spark.consume.lease import lease_of

if TYPE_CHECKING:
    import pyarrow as pa

    from shardq.spark.parsing import Malformed


def reject_rows(client: Client, state: QueueState, batch: pa.RecordBatch, malformed: Sequence[Malformed]) -> None:
    """Reject rows of a batch that a task has read. A lease is settled once, so other tries find them settled.

    The micro-batch's end acks by the same leases, so it acks none of these.
    """
    leases = batch.column("lease")
    held = [lease_of(leases[each.row].as_py()).received for each in malformed]
    client.run(reject(state, held, [each.reason for each in malformed]))


def reject_held(client: Client, state: QueueState, held: list[Received], malformed: Sequence[Malformed]) -> None:
    """Reject some of what a block holds, and take it out of *held*."""
    if malformed:
        reasons = {each.row: each.reason for each in malformed}
        client.run(reject(state, [held[row] for row in reasons], [*reasons.values()]))
        held[:] = [each for row, each in enumerate(held) if row not in reasons]

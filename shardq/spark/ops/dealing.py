"""By how many partitions the rows of a part of a bulk write are dealt: the same for each try, whatever the map is then.

Each partition of the queue has a bulk offset of its own for the part, and a row is known by its number among the part's
rows there. So another try must deal all rows as the first one did. The map and the number that it went by are fixed by
its first call: the head keeps them as a bulk offset of the part, with one row that is none, and a mark that says it.

A partition that is not written to any more is read as all others, so its rows are as good there. If it is gone, so is
what it remembered, and nothing more is stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from shardq.errors import ConfigError
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Op, Underreplicated
from shardq.protocol.replies import created_ms
from shardq.spark.ops.bulk import RESUMABLE, BulkOffset, too_many, trouble_of
from shardq.spark.ops.rows import RowPace, Rows, Tries, give_up_error, rows_call
from shardq.spark.ops.scan import server_ms

_MARK: Final = re.compile(r"w(\d{1,2})t(\d{1,15})")
_MIN_YOUNGER_MS: Final = 1_800_000
"""Milliseconds by which a partition that was recreated is younger than the fixed map: a drained one stays for an hour.
So clocks of nodes may differ.
"""


class Dealing(NamedTuple):
    """By how many partitions rows are dealt, and when that was fixed, in ms of the server's clock."""

    written: int
    fixed_at: int

    @property
    def mark(self) -> str:
        """How the head keeps it."""
        return f"w{self.written}t{self.fixed_at}"


def dealing(head: QueueState, offset: BulkOffset, written: int, pace: RowPace) -> Op[Dealing | None]:
    """Return how the rows of a part are dealt; if it has none yet, by how many are *written* to, from now on.

    None if all are in the head: the part was begun when there were no partitions. ConfigError, QueueFull as for rows.
    """
    tries, mine = Tries(head, pace), Dealing(written, (yield from server_ms(head.clock, head.timeout)))
    while not offset.stored:
        sequence = f"{offset.batch}|0|1|{round(offset.remember * 1000)}||{mine.mark}"
        sequence = f"{sequence}|{head.view.config.max_bulk_offsets}|{offset.began}"
        call = rows_call(head, head.view, Rows([], "b", []), 0, 0, offset.field, sequence)
        (outcome,) = yield Batch((call,), tries.until)
        reply = outcome.reply if isinstance(outcome, Underreplicated) else outcome
        if isinstance(reply, list) and reply[0] == b"OK":
            return mine
        trouble = trouble_of(offset, reply)
        if trouble == "max_bulk_offsets":
            raise too_many(head, offset)
        if not (offset.stored or (yield from tries.again(trouble))):
            raise give_up_error(head, trouble, pace, RESUMABLE)
    found = _MARK.fullmatch(offset.mark)
    return Dealing(int(found[1]), int(found[2])) if found else None


def check_there(offset: BulkOffset, dealt: Dealing, states: Sequence[QueueState], number: int) -> None:
    """ConfigError if partition *number* is gone, or was recreated since then: it has forgotten what it stored."""
    if number >= len(states) or (number and created_ms(states[number].view.id) > dealt.fixed_at + _MIN_YOUNGER_MS):
        raise ConfigError(
            f"rows of partition {offset.partition} of write id {offset.write_id!r} were dealt to {dealt.written} "
            f"partitions of the queue, and partition {number} is gone since then, with what it remembered: nothing "
            "more of it was stored; look what is missing, and write that under a new write id"
        )

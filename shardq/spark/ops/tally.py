"""Tell from a queue's bulk offsets which bulk writes it remembers, and how many rows each of them has stored in it.

Unlike the messages that are there, this does not change when workers drain the queue.
"""

from __future__ import annotations

from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op

FIELDS_A_CALL = 1000


def parts_of(state: QueueState) -> Op[list[str]]:
    """Return "write id:partition" for each bulk offset of the queue; none if there is no such queue."""
    fields = yield from _fields(state)
    return [field[2:].decode() for field in fields]


def stored_by(state: QueueState, write_id: str) -> Op[int]:
    """Return how many rows of the newest batch of *write_id* were ever stored, as far as the queue remembers."""
    fields = [field for field in (yield from _fields(state)) if _is_of(field, f"o:{write_id}:".encode())]
    stored = 0
    for at in range(0, len(fields), FIELDS_A_CALL):
        offsets = yield from ask(state, "HMGET", state.keys.dedup, *fields[at : at + FIELDS_A_CALL])
        stored += sum(int(text.split(b"|")[1]) for text in offsets if text)
    return stored


def _is_of(field: bytes, beginning: bytes) -> bool:
    """Whether *field* is of the write with this *beginning*: names of partitions of files have no colon."""
    partition = field.removeprefix(beginning)
    return partition != field and b":" not in partition.partition(b" of ")[0]


def _fields(state: QueueState) -> Op[list[bytes]]:
    """Return the fields of all bulk offsets, by their ends.

    An end only moves backwards when nobody asks for its write any more. So none is missed, although writes continue.
    """
    found: dict[bytes, None] = {}
    start, count = "-inf", FIELDS_A_CALL
    while True:
        page = yield from _page(state, start, count)
        found |= dict.fromkeys(member for member, _ in page)
        if len(page) < count:
            return [member for member in found if member.startswith(b"o:")]
        last = page[-1][1]
        count = 2 * count if last == start else FIELDS_A_CALL  # all of these end at once: look further behind them
        start = last


def _page(state: QueueState, start: str, count: int) -> Op[list[tuple[bytes, str]]]:
    """Return up to *count* fields that end at *start* or later, each with its end.

    ZSCAN would be simpler, but producers need no right to it.
    """
    key = state.keys.bulk_offsets
    flat = yield from ask(state, "ZRANGEBYSCORE", key, start, "+inf", "WITHSCORES", "LIMIT", 0, count)
    return [(member, end.decode()) for member, end in zip(flat[::2], flat[1::2], strict=True)]

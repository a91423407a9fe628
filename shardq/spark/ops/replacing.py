"""Store rows whose unique keys other messages may have, which they replace, or else the write fails.

They have no numbers, so another try of a task replaces what its first try has stored.
"""

from __future__ import annotations

import re
from typing import Final

from shardq.errors import PartlyWritten, QueueFull
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.write import write_many
from shardq.spark.ops.rows import RowPace, Rows, Tries, give_up_error, has_room
from shardq.spark.ops.unnumbered import STORED_STAYS

_OPTIONS: Final = re.compile(r"(\d*)\|(\d*)(?:/\w(\d+)\|)?\|(.*)", re.DOTALL)
"""The form that shardq.ops.write.outgoing gives a message's options, without those that no row has."""


def store_despite(state: QueueState, rows: Rows, pace: RowPace, on_conflict: str) -> Op[None]:
    """Store *rows*. UniqueConflict if a key is taken and *on_conflict* is "raise". QueueFull as `store_unnumbered`."""
    tries, left = Tries(state, pace), [_outgoing(rows, at, on_conflict) for at in range(len(rows))]
    while left:
        trouble, some = "", left[: tries.size * pace.calls]
        if pace.max_backlog and not (yield from has_room(state, pace, tries.until)):
            trouble = "backlog"
        else:
            full = yield from _full(state, some)
            trouble = full[0][1] if full else ""
            if len(full) < len(some):
                tries.advanced()
            left[: len(some)] = [message for message, _ in full]
        if not (yield from tries.again(trouble)):
            raise give_up_error(state, trouble, pace, STORED_STAYS)


def _full(state: QueueState, messages: list[Outgoing]) -> Op[list[tuple[Outgoing, str]]]:
    """Write *messages*. Return those for which the queue had no room, with its bound; raise any other error."""
    try:
        yield from write_many(state, messages)
    except PartlyWritten as partly:
        failed = [(message, each) for message, each in zip(messages, partly.results, strict=True)]
        for _, each in failed:
            if isinstance(each, Exception) and not isinstance(each, QueueFull):
                raise each from None
        return [(message, str(each.bound)) for message, each in failed if isinstance(each, QueueFull)]
    return []


def _outgoing(rows: Rows, at: int, on_conflict: str) -> Outgoing:
    found = _OPTIONS.fullmatch(rows.options[at] or "||")
    delay, deadline, length, keys = found.groups()  # type: ignore[union-attr]  # shardq.spark.columns made it
    unique = _head(keys, int(length or 0))
    return Outgoing(
        rows.shard_keys[at], rows.tag, rows.bodies[at], rows.headers[at] if rows.headers else b"",
        int(delay or 0), int(deadline or 0), keys[len(unique) :], unique, on_conflict if unique else "", bool(delay),
    )  # fmt: skip


def _head(text: str, length: int) -> str:
    """Return the first *length* bytes of *text*."""
    return text.encode()[:length].decode()

"""The answer to a write whose messages have no place in one of the queue's bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardq.errors import QueueFull
from shardq.ops.queue.state import QueueState
from shardq.ops.write.outgoing import Outgoing

_SHARED: Final = {
    "max_len": "queue {name!r} may hold max_len = {limit:,} messages{part}",
    "max_dedup": "queue {name!r} may remember max_dedup = {limit:,} keys{part}",
}
LAST_PART_FROM: Final = 400
"""A bound of at least this size has a last part (`Shares.may_use` in lua/shares.lua)."""

_ADVICE: Final = {
    "max_len": "write later, or raise it",
    "max_dedup": "write later, remember keys for less time, or raise it",
}


def shares(limit: int) -> str:
    """Say how much of a bound one tenant may have."""
    last = ", and the last 4 % are for tenants that have hardly any" if limit >= LAST_PART_FROM else ""
    return f"nobody more than four times as many as are free{last}"


def part_told(state: QueueState) -> str:
    """Say of a bound in which partition it is the part of what the queue has; '' of a queue without partitions."""
    return f" in partition {state.number}, its part" if state.number or state.config.partitions != 1 else ""


def read_refused(state: QueueState, chunk: Sequence[Outgoing], reply: Sequence[Any]) -> dict[int, QueueFull]:
    """Return the error for each message of *chunk* that was refused, by its place in it.

    *reply* is what the verb `write` answered: {'FULL', bound, "number:used,...", limit, all used, ms}.
    """
    _, name, numbers, limit, everything, after = reply
    bound, retry_after = name.decode(), int(after) / 1000 if after else None
    found: dict[int, QueueFull] = {}
    for each in numbers.decode().split(","):
        number, _, own = each.partition(":")
        at, used = int(number) - 1, int(own) if own else None
        others = None if used is None else max(0, int(everything) - used) if everything else 0
        text = _text(state, chunk[at].shard_key, bound, int(limit), used, others)
        found[at] = QueueFull(text, bound=bound, limit=int(limit), used=used, others=others, retry_after=retry_after)
    return found


def _text(state: QueueState, key: str | bytes, bound: str, limit: int, used: int | None, others: int | None) -> str:
    if bound == "max_backlog":
        has = f"shard key {key!r} has max_backlog = {limit:,} messages waiting"
        return f"{has} in queue {state.keys.name!r}: write later, or raise it"
    text = _SHARED[bound].format(name=state.keys.name, limit=limit, part=part_told(state))
    if used is not None and others is not None:
        has = f"shard key {key!r} has {used:,} of them, others have {others:,}"
        text += f", {shares(limit)}; {has}" if used + others < limit else f"; {has}"
    return f"{text}: {_ADVICE[bound]}"

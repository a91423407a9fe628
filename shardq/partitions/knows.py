"""Where keyed messages go while former homes are remembered: where their key is known, else to their home."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shardq.errors import ShardqError
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.together import run_together
from shardq.ops.write.outgoing import Outgoing
from shardq.partitions.asking import ask_map

if TYPE_CHECKING:
    from shardq.partitions.parts import Parts

MAX_KEYS = 500
"""So many keys one call asks for."""


def has_key(message: Outgoing) -> bool:
    """Return whether a message has a dedup or a unique key."""
    return bool(message.dedup_key or message.unique_key)


def newest(parts: Parts, messages: Sequence[Outgoing], until: float) -> Op[Parts]:
    """Return the partitions by a map that is new enough for these messages: one with a key needs it."""
    if parts.is_old and any(map(has_key, messages)):
        yield from ask_map(parts.whole, until)
    found: Parts = parts.whole.parts or parts
    return found


def places(parts: Parts, messages: Sequence[Outgoing], until: float) -> Op[list[int | ShardqError]]:
    """Return for each message the number of the partition that it goes to.

    Or its error: where a former home does not answer, nobody knows, and nothing is written.
    """
    found: list[int | ShardqError] = [parts.number_of(each.shard_key) for each in messages]
    others = parts.others()
    if not others or not any(map(has_key, messages)):
        return found
    asked: dict[int, list[int]] = {}
    for at, message in enumerate(messages):
        if has_key(message):
            for number in {parts.number_of(message.shard_key, each) for each in others} - {found[at]}:
                if number < parts.map.read:
                    asked.setdefault(number, []).append(at)
    ops = [_knows(parts.states[number], [messages[at] for at in every], until) for number, every in asked.items()]
    for (number, every), known in zip(asked.items(), (yield from run_together(ops)), strict=True):
        for place, at in enumerate(every):
            if isinstance(known, ShardqError):
                found[at] = known
            elif known[place] and not isinstance(found[at], ShardqError):
                found[at] = number
    return found


def _knows(state: QueueState, messages: Sequence[Outgoing], until: float) -> Op[list[bool]]:
    """Return of each message whether a key of it is known in a partition. One that is gone knows none."""
    keys = [(at, *each) for at, message in enumerate(messages) for each in _keys_of(message)]
    known = [False] * len(messages)
    for start in range(0, len(keys), MAX_KEYS):
        some = keys[start : start + MAX_KEYS]
        call = Call.on(state.keys, "knows", tuple(word for _, *row in some for word in row))
        digits = yield from retry_until(always(call), until, state.clock)
        for (at, *_), digit in zip(some, digits, strict=False):
            known[at] = known[at] or digit == ord("1")
    return known


def _keys_of(message: Outgoing) -> Iterator[tuple[str | bytes, str, str]]:
    if message.dedup_key:
        yield message.shard_key, "g" if message.most_ids else "k", message.dedup_key
    if message.unique_key:
        yield message.shard_key, "u", message.unique_key

"""Where messages go: to their homes, but those with a key that is known in a former home go there.

All writers ask here, whether they are in a call of their own or share one. The question also tells the former home of
the writer's map: from then on, a message that was dealt by an older one is not stored there, but dealt again. So of two
writers with different maps, the one with the newer finds what the other has stored, or the other is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from shardq.errors import ShardqError
from shardq.ops.queue.opening import new_epoch
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.write.outgoing import Outgoing
from shardq.partitions.asking import ask_map

if TYPE_CHECKING:
    from shardq.partitions.parts import Parts

Run: TypeAlias = Callable[[Sequence[Op[list[bool]]]], Op[list[list[bool] | ShardqError]]]
"""Runs operations. It returns for each its result or its error."""

LOOKS: Final = "nothing of this call was sent: it only asked where its keys are known"
MAX_KEYS = 500
"""Keys that one call asks for at most."""


def must_ask(parts: Parts, messages: Sequence[Outgoing]) -> bool:
    """Return whether a message has a key that may be known elsewhere than in its home."""
    return any(each.has_key for each in messages) and (_is_old(parts) or bool(parts.others()))


def _is_old(parts: Parts) -> bool:
    return parts.is_old or parts.told > parts.generation


def dealt(
    parts: Parts, messages: Sequence[Outgoing], until: float, run: Run
) -> Op[tuple[Parts, Sequence[Outgoing], list[int | ShardqError]]]:
    """Return the partitions to which messages go, the messages, and for each its number there.

    Or its error: a message with a key needs a map that is new enough, and where a former home does not answer, nobody
    knows. Then nothing is written. *run* runs what asks the partitions.
    """
    if not any(each.has_key for each in messages):
        return parts, messages, [parts.number_of(each.shard_key) for each in messages]
    asked = None
    if _is_old(parts):
        told, asked = parts.told, (yield from outcome_of(ask_map(parts.whole, until)))
        parts = parts.whole.parts or parts
        if asked is None:  # it is the newest there is, also where a failover has lost what a partition knew
            parts.generation = max(parts.generation, min(told, parts.told))  # less if the queue was recreated
    generation = parts.generation  # read once: the former homes get the same
    found = yield from _places(parts, generation, messages, until, run)
    if isinstance(asked, ShardqError):
        found = [asked if each.has_key else found[at] for at, each in enumerate(messages)]
    stamped = [
        replace(each, dealt=generation, must_be_known=number != parts.number_of(each.shard_key))
        if each.has_key
        else each
        for each, number in zip(messages, found, strict=True)
    ]
    return parts, stamped, found


def one_by_one(ops: Sequence[Op[list[bool]]]) -> Op[list[list[bool] | ShardqError]]:
    """Run *ops* one after the other: within a call that callers share no others are made at the same time."""
    found: list[list[bool] | ShardqError] = []
    for each in ops:
        found.append((yield from outcome_of(each)))  # noqa: PERF401 (no comprehension of an operation)
    return found


def _places(
    parts: Parts, generation: int, messages: Sequence[Outgoing], until: float, run: Run
) -> Op[list[int | ShardqError]]:
    found: list[int | ShardqError] = [parts.number_of(each.shard_key) for each in messages]
    others = parts.others()
    asked: dict[int, list[int]] = {}
    for at, message in enumerate(messages):
        if message.has_key:
            for number in {parts.number_of(message.shard_key, each) for each in others} - {found[at]}:
                if number < parts.map.read:
                    asked.setdefault(number, []).append(at)
    ops = [
        _knows(parts.states[number], generation, [messages[at] for at in every], until)
        for number, every in asked.items()
    ]
    for (number, every), known in zip(asked.items(), (yield from run(ops)), strict=True):
        for place, at in enumerate(every):
            if isinstance(known, ShardqError):
                found[at] = known
            elif known[place] and not isinstance(found[at], ShardqError):
                found[at] = number
    return found


def _knows(state: QueueState, generation: int, messages: Sequence[Outgoing], until: float) -> Op[list[bool]]:
    """Return of each message whether a key of it is known in a partition. One that is gone knows none.

    It learns the *generation* of the map by which this asks.
    """
    keys = [(at, *each) for at, message in enumerate(messages) for each in _keys_of(message)]
    known = [False] * len(messages)
    for start in range(0, len(keys), MAX_KEYS):
        some = keys[start : start + MAX_KEYS]
        args = (generation, new_epoch(), *(word for _, *row in some for word in row))
        call = Call.on(state.keys, "knows", args)
        digits = yield from retry_until(always(call), until, state.clock, looks=LOOKS)
        for (at, *_), digit in zip(some, digits, strict=False):
            known[at] = known[at] or digit == ord("1")
    return known


def _keys_of(message: Outgoing) -> Iterator[tuple[str | bytes, str, str]]:
    if message.dedup_key:
        yield message.shard_key, "g" if message.most_ids else "k", message.dedup_key
    if message.unique_key:
        yield message.shard_key, "u", message.unique_key

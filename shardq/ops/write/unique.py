"""Messages with a unique key: the course of a write when another message has its key.

The write itself decides whether it has (`lua/unique.lua`): with `on_conflict="existing"` it returns that one's
id, else it writes nothing and names it. Then its writer raises, or gives that message the new payload. One that is
being worked on gets no other payload any more: then the write is made again, and takes the key from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from shardq.errors import BackendTimeout, DurabilityUnknown, ShardqError, UniqueConflict
from shardq.model.written import Existing, Written
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Known, Op
from shardq.ops.write.outdated import Outdated
from shardq.ops.write.outgoing import Outgoing
from shardq.sharding import key_bytes

Result: TypeAlias = Written | ShardqError

_Key: TypeAlias = tuple[Literal["unique", "dedup"], bytes, str]
"""A key, its owner, and its text."""


UNKNOWN: Final = "-"
"""So the verb names the holder of a key that must be known, and is not."""


class UniqueWrites(Protocol):
    """The writes of one queue."""

    def store(self, messages: Sequence[Outgoing], until: float, *, shared: bool = False) -> Op[list[Result]]:
        """Store *messages*, with an id or an error for each. Those of a *shared* call are of several callers."""


def write_despite(
    state: QueueState, chunk: Sequence[Outgoing], taken: bytes, until: float, writes: UniqueWrites, *, shared: bool
) -> Op[list[Result]]:
    """Write the messages of *chunk* but those that are *taken*; then do about these what each of them says.

    The messages of a *shared* call are of several callers.
    """
    holders = _holders(taken)
    later = _later(state, chunk, holders)
    rest = [message for at, message in enumerate(chunk) if at not in later]
    known = (yield from writes.store(rest, until, shared=shared)) if rest else []
    if shared:
        # They do not wait for what becomes of the others.
        yield Known([pair for pair in zip(rest, known, strict=True) if not isinstance(pair[1], Outdated)])
    stored = iter(known)
    results: list[Result] = []
    moved: set[_Key] = set()
    for at, message in enumerate(chunk):
        if at not in later:
            results.append(next(stored))
            continue
        # '' also where an earlier message of the chunk may have taken the key by now.
        holder = holders.get(at, "") if moved.isdisjoint(later[at]) else ""
        result = yield from _write_later(state, message, holder, until, writes)
        if result != holder and not isinstance(result, UniqueConflict):
            moved |= later[at]
        results.append(result)
    return results


def _later(state: QueueState, chunk: Sequence[Outgoing], holders: Collection[int]) -> dict[int, set[_Key]]:
    """Return which messages are written one after the other: those in conflict, and what follows with a key of theirs.

    So each finds what those before it have left, as if the chunk were written one by one. Each has its keys.
    """
    is_shared = state.config.key_scope == "queue"
    later: dict[int, set[_Key]] = {}
    keys: set[_Key] = set()
    for at, message in enumerate(chunk):
        owner = b"" if is_shared else key_bytes(message.shard_key)
        own: set[_Key] = {("unique", owner, message.unique_key)} if message.unique_key else set()
        own |= {("dedup", owner, message.dedup_key)} if message.dedup_key else set()
        if at in holders or not own.isdisjoint(keys):
            later[at] = own
            keys |= own
    return later


def _write_later(state: QueueState, message: Outgoing, holder: str, until: float, writes: UniqueWrites) -> Op[Result]:
    """Write *message*, whose unique key *holder* has; '' if nobody knows who has it."""
    if holder == UNKNOWN:
        return Outdated(state.keys.name)
    if not holder:
        (result,) = yield from writes.store([message], until)
        return result
    if message.on_conflict == "raise":
        return _conflict(state, message, holder)
    return (yield from outcome_of(_replace(state, message, holder, until, writes)))


def _holders(taken: bytes) -> dict[int, str]:
    """Read which messages have keys that are taken, and by which message; '' for one of the same call, or `UNKNOWN`."""
    pairs = (each.split(":") for each in taken.decode().split(","))
    return {int(number) - 1: holder for number, holder in pairs}


def _conflict(state: QueueState, message: Outgoing, holder: str) -> UniqueConflict:
    text = f"message {holder} of queue {state.keys.name!r} has unique_key {message.unique_key!r}, and is not done"
    return UniqueConflict(text, holder)


def _replace(state: QueueState, message: Outgoing, holder: str, until: float, writes: UniqueWrites) -> Op[Result]:
    """Give the message *holder* the payload of *message*, or write this if that one is gone or being worked on."""

    def call_of(sequence: ProducerSequence) -> Call:
        return _replace_call(state, message, holder, sequence, until)

    reply, underreplicated = yield from numbered(state, call_of, until)
    match reply:
        case [b"OK", *_] if underreplicated is not None:
            text = f"replaced, but {underreplicated.explain(state.durability.replicas)}"
            return DurabilityUnknown(text, Existing(holder))
        case [b"OK", *_]:
            return Existing(holder)
        case _:
            # FLIGHT: the holder's payload is being worked on, so the new one needs a message of its own.
            again = message if reply == [b"GONE"] else msgspec.structs.replace(message, takes_from=holder)
            if state.clock.monotonic() > until:
                return BackendTimeout("other writers kept taking the unique key: nothing was written")
            (result,) = yield from writes.store([again], until)
            return result


def _replace_call(state: QueueState, message: Outgoing, holder: str, sequence: ProducerSequence, until: float) -> Call:
    delay = message.delay if message.delays else ""
    args = (
        state.epoch, spelled(state, sequence, until), holder, message.unique_key, message.shard_key, message.tag,
        message.body, message.headers, delay, message.deadline or "", state.client,
    )  # fmt: skip
    return Call.on(state.keys, "replace", args, replicas=state.durability.replicas)

"""Write the slots of a schedule, and note how far it is then: one call of Redis, so nothing comes between the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shardq.codec import encode_headers
from shardq.errors import DurabilityUnknown
from shardq.model.timetable import Timetable
from shardq.ops.queue.opening import reopen
from shardq.ops.queue.retry import always, retry_replicated
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.write.command import call_of
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.refusal import read_refused

HEADER: Final = "slot"
"""The header that has the time for which a call was written."""


class SlotMessage(NamedTuple):
    """The message for each slot: an encoded payload for a shard key."""

    name: str
    timetable: Timetable
    shard_key: str | bytes
    tag: str
    body: bytes


def write_slots(
    state: QueueState, message: SlotMessage, slots: Sequence[int], said: bytes, following: str, until: float
) -> Op[bytes | None]:
    """Write *message* once for each of *slots* (ms of the server), if the schedule is as far as *said*.

    It is as far as *following* then. Return None if they were written, else how far it is: another worker was faster,
    or the schedule was changed. QueueFull if a bound has no place for one of them; then none is written.
    """
    chunk = [_outgoing(message, slot) for slot in slots]
    columns: list[Sequence[Any]] = [
        [b""] * len(chunk),  # what is delayed goes to no stream
        [each.shard_key for each in chunk],
        [each.tag for each in chunk],
        [each.body for each in chunk],
        [each.headers for each in chunk],
        [each.options for each in chunk],
    ]
    field, number = f"S:{message.name}", f"={said.decode()}={following}"
    while state.parts is None:
        # A copy of the call that comes late finds another text than `said`.
        call = call_of(state, state.view, field, number, (), columns)
        reply, underreplicated = yield from retry_replicated(always(call), until, state.clock)
        match reply:
            case [b"EPOCH"]:
                state.forget()
                yield from reopen(state, until)
            case [b"FULL", *_]:
                raise read_refused(state, chunk, reply)[0]
            case [b"SLOT", other]:
                return other  # type: ignore[no-any-return]
            case _:
                if underreplicated is not None:
                    text = f"written, but {underreplicated.explain(state.durability.replicas)}"
                    raise DurabilityUnknown(text, message.name)
                return None
    return said  # the queue is found to have partitions: its caller continues there


def _outgoing(message: SlotMessage, slot: int) -> Outgoing:
    """Return the message of one slot. Its delay is the slot itself, which the verb understands so."""
    told = message.timetable.told(slot)
    # The second net, should Redis lose how far the schedule is.
    key = f"cron/{message.name}/{slot}"
    headers = encode_headers({HEADER: told})
    return Outgoing(message.shard_key, message.tag, message.body, headers, slot, dedup_key=key)

"""Messages with a unique key: what is done about a write when another message has its key.

The write itself decides whether it has (`lua/unique.lua`): with `on_conflict="existing"` it returns that one's
id, else it writes nothing and names it. Then its writer raises, or gives that message the new payload. One that is
being worked on gets no other payload any more: then the write is made again, and takes the key from it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from shardq.errors import BackendTimeout, DurabilityUnknown, ShardqError, UniqueConflict
from shardq.model.written import Existing, Written
from shardq.ops.queue.opening import reopen
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import always, retry_replicated
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Known, Op
from shardq.ops.write.command import LATE, REPEATED_FOR
from shardq.ops.write.outgoing import Outgoing

Result: TypeAlias = Written | ShardqError


class Store(Protocol):
    """Writes messages, with an id or an error for each. Those of a *shared* call are of several callers."""

    def __call__(
        self, state: QueueState, chunk: Sequence[Outgoing], until: float, *, shared: bool = False
    ) -> Op[list[Result]]:
        """Write *chunk*."""


def write_despite(
    state: QueueState, chunk: Sequence[Outgoing], taken: bytes, until: float, store: Store, *, shared: bool
) -> Op[list[Result]]:
    """Write the messages of *chunk* but those that are *taken*; then do about these what each of them says.

    The messages of a *shared* call are of several callers.
    """
    holders = _holders(taken)
    rest = [message for at, message in enumerate(chunk) if at not in holders]
    known = (yield from store(state, rest, until, shared=shared)) if rest else []
    if shared:
        yield Known([*zip(rest, known, strict=True)])  # they do not wait for what becomes of the others
    stored = iter(known)
    results: list[Result] = []
    for at, message in enumerate(chunk):
        if at not in holders:
            results.append(next(stored))
        elif not holders[at]:  # an earlier message of the chunk has taken the key by now
            results += yield from store(state, [message], until)
        elif message.on_conflict == "raise":
            results.append(_conflict(state, message, holders[at]))
        else:
            results.append((yield from outcome_of(_replace(state, message, holders[at], until, store))))
    return results


def _holders(taken: bytes) -> dict[int, str]:
    """Read which messages have keys that are taken, and by which message; '' for one of the same call."""
    pairs = (each.split(":") for each in taken.decode().split(","))
    return {int(number) - 1: holder for number, holder in pairs}


def _conflict(state: QueueState, message: Outgoing, holder: str) -> UniqueConflict:
    text = f"message {holder} of queue {state.keys.name!r} has unique_key {message.unique_key!r}, and is not done"
    return UniqueConflict(text, holder)


def _replace(state: QueueState, message: Outgoing, holder: str, until: float, store: Store) -> Op[Result]:
    """Give the message *holder* the payload of *message*, or write this if that one is gone or being worked on."""
    # One for all tries, also with other epochs: Redis makes the replacement once.
    nonce = secrets.token_urlsafe(9)
    while True:
        call = _replace_call(state, message, holder, nonce, until)
        reply, underreplicated = yield from retry_replicated(always(call), until, state.clock)
        match reply:
            case b"OK" if underreplicated is not None:
                text = f"replaced, but {underreplicated.explain(state.durability.replicas)}"
                return DurabilityUnknown(text, Existing(holder))
            case b"OK":
                return Existing(holder)
            case b"EPOCH":
                state.forget()
                yield from reopen(state, until)
            case _:
                # FLIGHT: the holder's payload is being worked on, so the new one needs a message of its own.
                again = message if reply == b"GONE" else msgspec.structs.replace(message, takes_from=holder)
                if state.clock.monotonic() > until:
                    return BackendTimeout("other writers kept taking the unique key: nothing was written")
                (result,) = yield from store(state, [again], until)
                return result


def _replace_call(state: QueueState, message: Outgoing, holder: str, nonce: str, until: float) -> Call:
    lasts = min(max(0.0, until - state.clock.monotonic()), REPEATED_FOR) + LATE
    delay = message.delay if message.delays else ""
    args = (
        state.epoch, nonce, round(lasts * 1000), holder, message.unique_key, message.shard_key, message.tag,
        message.body, message.headers, delay, message.deadline or "", state.client,
    )  # fmt: skip
    return Call.on(state.keys, "replace", args, replicas=state.durability.replicas)

"""ack, nack, reject and extend, which end or extend a lease if its token still holds. Also cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, cast

import msgspec

from shardq.arguments import MAX_BLOCK, flag, seconds
from shardq.errors import ConfigError, LeaseLost, MessageCancelled, OutcomeUnknown
from shardq.model import Received
from shardq.model.failed import failed_try
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.outcome import part_of
from shardq.ops.queue.retry import retry_until
from shardq.ops.queue.server_time import safe_deadline
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Refused, Unanswered
from shardq.ops.settle.command import (
    MAX_MOVES_A_CALL,
    UNCOUNTED,
    Part,
    Problems,
    ack_call,
    ack_parts,
    each_once,
    extend_call,
    nack_call,
    parts_of,
    terms_of,
)

MAX_UNSURE = 10_000
"""Acks without an answer that a client remembers, about. It forgets those that are not repeated."""


class Settled(Enum):
    """How settling one delivery ended."""

    OK = "o"
    LOST = "l"
    CANCELLED = "c"
    DEAD = "d"

    def check(self) -> None:
        """Raise LeaseLost or MessageCancelled if the delivery was not settled."""
        if self is Settled.LOST:
            raise LeaseLost("the lease ended before this call, or the delivery was settled already; drop the work")
        if self is Settled.CANCELLED:
            raise MessageCancelled("the message was cancelled while it was in flight; drop the work")


LOST_RESULTS = frozenset({Settled.LOST, Settled.CANCELLED})
"""Results that mean that the caller had lost the lease."""


def ack(
    state: QueueState, deliveries: Sequence[Received], timeout: float | None = None, found: Results | None = None
) -> Op[list[Settled]]:
    """Remove messages whose work is done. Return a result for each delivery: one that comes twice is settled once.

    *found* gets the results as they come, so that they are known if a later call fails.
    """
    until = state.until(timeout)
    yield from open_queue(state, until)
    found = {} if found is None else found
    for part in ack_parts(deliveries):
        yield from ack_part(state, part, until, found)
    return [found[delivery.token] for delivery in deliveries]


Results: TypeAlias = dict[str, Settled]
"""How settling ended, by lease token."""


def ack_part(
    state: QueueState, part: Part, until: float, found: Results, failed: Refused | Unanswered | None = None
) -> Op[None]:
    """Ack *part*, and put the results into *found*. *failed* is how a first try ended, if there was one.

    PartlyDone if it fails and there are results of other parts.
    """
    yield from part_of(len(found), _ack_part(state, part, until, found, failed))


def _ack_part(
    state: QueueState, part: Part, until: float, found: Results, failed: Refused | Unanswered | None
) -> Op[None]:
    try:
        reply = yield from retry_until(
            lambda repeated: ack_call(state, part, repeated), until, state.clock, failed=failed
        )
    # The ack may have happened, so another one of the same lease must count as its repetition.
    except (GeneratorExit, OutcomeUnknown):
        unsure_of(state, [delivery for _, _, delivery in part])
        raise
    note_acked(state, part, reply, found)


def note_acked(state: QueueState, part: Part, reply: Any, found: Results) -> None:
    """Put the results in the *reply* to the call that acked *part* into *found*."""
    for (_, _, delivery), letter in zip(part, reply[1].decode(), strict=True):
        found[delivery.token] = Settled(letter)
    if state.unsure:
        state.unsure.difference_update([delivery.token for _, _, delivery in part])


def unsure_of(state: QueueState, deliveries: Iterable[Received]) -> None:
    """Note that these may have been acked: there was no answer. If one is acked again, that is a repetition."""
    if len(state.unsure) > MAX_UNSURE:
        # Then the reply to one that is repeated after all is LeaseLost, though it was done: its holder drops work that
        # is over anyway.
        state.unsure.clear()
    state.unsure.update([delivery.token for delivery in deliveries])


def nack(
    state: QueueState,
    deliveries: Sequence[Received],
    delay: float | Sequence[float] = 0.0,
    error: Problems = "",
    timeout: float | None = None,
    found: Results | None = None,
    *,
    counted: bool = True,
) -> Op[list[Settled]]:
    """Give messages back, to be delivered again after *delay* seconds. *delay* and *error*: one for all or for each.

    Unless it is *counted*, this delivery was none: `max_deliveries` has no part in it, and each message needs an error.
    A delivery that comes twice is given back once, on its first terms. *found* is that of `ack`.
    """
    bound: int | Literal["-"] = state.config.max_deliveries if flag("counted", counted) else UNCOUNTED
    terms = terms_of(state, deliveries, delay, error)
    if not counted and not all(text for _, text, _ in terms.values()):
        raise ConfigError("a delivery that is given back uncounted needs an error")
    return (yield from _give_back(state, deliveries, nack_call(state, bound, terms), timeout, found))


def reject(
    state: QueueState,
    deliveries: Sequence[Received],
    reason: Problems,
    timeout: float | None = None,
    found: Results | None = None,
) -> Op[list[Settled]]:
    """Move messages to the dead letters, for one *reason*, or the first that is given for each. *found* as of `ack`."""
    terms = terms_of(state, deliveries, 0.0, reason)
    return (yield from _give_back(state, deliveries, nack_call(state, 0, terms), timeout, found))


def extend(
    state: QueueState, deliveries: Sequence[Received], duration: float | None, timeout: float | None = None
) -> Op[list[Settled]]:
    """Let these leases end *duration* seconds from now; with None they stay as they are. Return a result for each."""

    def effect(part: Sequence[Received], until: float) -> Op[Any]:
        return retry_until(lambda repeated: extend_call(state, part, duration, repeated), until, state.clock)

    return (yield from _settle_all(state, deliveries, effect, timeout))


def _give_back(
    state: QueueState,
    deliveries: Sequence[Received],
    make: Callable[[Sequence[Received], str], Call],
    timeout: float | None,
    found: Results | None,
) -> Op[list[Settled]]:
    def effect(part: Sequence[Received], until: float) -> Op[Any]:
        answer = yield from numbered(state, lambda sequence: make(part, spelled(state, sequence, until)), until)
        return answer.reply

    return (yield from _settle_all(state, deliveries, effect, timeout, found))


def _settle_all(
    state: QueueState,
    deliveries: Sequence[Received],
    effect: Callable[[Sequence[Received], float], Op[Any]],
    timeout: float | None,
    found: Results | None = None,
) -> Op[list[Settled]]:
    until = state.until(timeout)
    yield from open_queue(state, until)
    found = {} if found is None else found
    for part in parts_of(each_once(deliveries), MAX_MOVES_A_CALL):
        reply = yield from part_of(len(found), effect(part, until))
        settled = [Settled(letter) for letter in reply[1].decode()]
        found.update(zip([delivery.token for delivery in part], settled, strict=True))
    return [found[delivery.token] for delivery in deliveries]


def checked_each(name: str, value: object, count: int) -> None:
    """ConfigError unless *value* is one value for all deliveries or a sequence of *count*; also for a bad delay."""
    # An error of a user may say that it is a list.
    each_one: Sequence[Any] = cast("Sequence[Any]", value) if issubclass(type(value), (list, tuple)) else (value,)
    if each_one is value and len(each_one) != count:
        raise ConfigError(f"{name} must be one for all or one for each of the {count} deliveries, not {len(each_one)}")
    for each in each_one:
        if name == "delay":
            seconds(name, each, 0, MAX_BLOCK)
        else:
            failed_try(name, each)


def extended(received: Received, sent: float, duration: float) -> Received:
    """Return the delivery with the deadline that an extension gives it that was sent at local time *sent*."""
    # From when it was sent, not from the answer: the holder gives up before the lease ends, never after.
    return msgspec.structs.replace(received, deadline=safe_deadline(sent, duration))

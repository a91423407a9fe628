"""ack, nack, reject and extend, which end or extend a lease if its token still holds. Also cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from shardq.arguments import MAX_BLOCK, seconds
from shardq.errors import ConfigError, LeaseLost, MessageCancelled, MessageNotFound, OutcomeUnknown
from shardq.model import MessageId, Received
from shardq.ops.opening import open_queue
from shardq.ops.read_call import settle_call
from shardq.ops.retry import retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Call, Op, Refused, Unanswered
from shardq.protocol.lease import place_of, safe_deadline, token_argument

T = TypeVar("T")
CHUNK = 200
"""One call settles at most so many leases, so that no script takes longer than a few ms."""

MAX_ERROR = 500
MAX_UNSURE = 10_000
"""A client remembers about so many acks without an answer. It forgets those that are not repeated."""


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


LOST = frozenset({Settled.LOST, Settled.CANCELLED})
"""Results that mean that the caller had lost the lease."""


def ack(
    state: QueueState, deliveries: Sequence[Received], timeout: float | None = None, found: Results | None = None
) -> Op[list[Settled]]:
    """Remove messages whose work is done. Return a result for each delivery.

    *found* gets the results as they come, so that they are known if a later call fails.
    """
    until = state.until(timeout)
    yield from open_queue(state, until)
    found = {} if found is None else found
    for part in ack_parts(deliveries):
        yield from ack_part(state, part, until, found)
    if len(found) == len(deliveries):
        return [found[delivery.token] for delivery in deliveries]
    # A delivery that comes twice counts once.
    return [found.pop(delivery.token, Settled.LOST) for delivery in deliveries]


Results: TypeAlias = dict[str, Settled]
"""How settling ended, by lease token."""

Part: TypeAlias = Sequence[tuple[str, str, Received]]
"""Deliveries that one call acks, sorted by place: the place, the entry id and the delivery of each."""

_PLACE = itemgetter(0)
_DELIVERY = itemgetter(2)


def ack_parts(deliveries: Sequence[Received]) -> list[Part]:
    """Return *deliveries* in parts that one call each can ack. A delivery that comes twice counts once."""
    if len(deliveries) == 1:  # the common case
        place, entry, _ = deliveries[0].token.split(":", 2)
        return [((place, entry, deliveries[0]),)]
    leases = {delivery.token: delivery for delivery in deliveries}
    split = [(*token.split(":", 2)[:2], delivery) for token, delivery in leases.items()]
    return list(_parts(sorted(split, key=_PLACE)))  # type: ignore[arg-type] # a token has more than two parts


def ack_part(
    state: QueueState, part: Part, until: float, found: Results, failed: Refused | Unanswered | None = None
) -> Op[None]:
    """Ack *part*, and put the results into *found*. *failed* is how a first try ended, if there was one."""
    try:
        reply = yield from retry_until(
            lambda repeated: ack_call(state, part, repeated), until, state.clock, failed=failed
        )
    except (GeneratorExit, OutcomeUnknown):
        unsure_of(state, map(_DELIVERY, part))
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
        state.unsure.clear()
    state.unsure.update([delivery.token for delivery in deliveries])


def ack_call(state: QueueState, part: Part, repeated: bool = False) -> Call:
    """Make the call that acks *part*."""
    if state.unsure and not repeated:
        repeated = any(delivery.token in state.unsure for _, _, delivery in part)
    tokens = [token_argument(delivery.token) for _, _, delivery in part]
    costs = costs_of([delivery for _, _, delivery in part])
    return settle_call(state, "a", tokens, _streams(state, map(_PLACE, part)), repeated, costs)


def costs_of(part: Sequence[Received]) -> str:
    """Return what the work on each of these costs, as the verbs read it: "12.5,-,3.0"; "" if none costs anything."""
    if not any(each.cost for each in part):
        return ""
    return ",".join([each.cost or "-" for each in part])


def nack(
    state: QueueState,
    deliveries: Sequence[Received],
    delay: float | Sequence[float] = 0.0,
    error: str | Sequence[str] = "",
    timeout: float | None = None,
    found: Results | None = None,
    *,
    counted: bool = True,
) -> Op[list[Settled]]:
    """Give messages back, to be delivered again after *delay* seconds. *delay* and *error*: one for all or for each.

    Unless it is *counted*, this delivery was none: `max_deliveries` has no part in it, and each message needs an error.
    *found* is that of `ack`.
    """
    bound: int | Literal["-"] = state.config.max_deliveries if counted else UNCOUNTED
    terms = terms_of(deliveries, delay, error)
    if not counted and not all(text for _, text in terms.values()):
        raise ConfigError("what is given back uncounted needs an error")
    return (yield from _settle_all(state, deliveries, nack_call(state, bound, terms), timeout, found))


def reject(
    state: QueueState,
    deliveries: Sequence[Received],
    reason: str | Sequence[str],
    timeout: float | None = None,
    found: Results | None = None,
) -> Op[list[Settled]]:
    """Move messages to the dead letters. *reason* is one for all, or one for each. *found* is that of `ack`."""
    terms = terms_of(deliveries, 0.0, reason)
    return (yield from _settle_all(state, deliveries, nack_call(state, 0, terms), timeout, found))


Terms: TypeAlias = Mapping[str, tuple[int, str]]
"""For each lease token the delay in ms, and the error or reason."""


def terms_of(deliveries: Sequence[Received], delay: float | Sequence[float], text: str | Sequence[str]) -> Terms:
    """Return the terms of each delivery. *delay* is in seconds; both are one for all, or one for each."""
    delays = repeat(delay) if isinstance(delay, (int, float)) else delay
    texts = repeat(text) if isinstance(text, str) else text
    return {
        delivery.token: (round(seconds * 1000), _one_line(each))
        for delivery, seconds, each in zip(deliveries, delays, texts, strict=False)
    }


UNCOUNTED: Final = "-"
"""What stands in place of `max_deliveries` where deliveries are given back uncounted."""


def nack_call(
    state: QueueState, max_deliveries: int | Literal["-"], terms: Terms
) -> Callable[[Sequence[Received], bool], Call]:
    """Return what makes the calls that give deliveries back; with *max_deliveries* 0 they become dead letters."""
    kind = {0: "r", UNCOUNTED: "u"}.get(max_deliveries, "n")

    def call(part: Sequence[Received], repeated: bool) -> Call:
        words: list[Argument] = []
        for delivery in part:
            words += (token_argument(delivery.token), *terms[delivery.token])
        streams = _streams(state, (place_of(each.token) for each in part))
        return settle_call(state, kind, words, streams, repeated, costs_of(part))

    return call


def extend(
    state: QueueState, deliveries: Sequence[Received], duration: float | None, timeout: float | None = None
) -> Op[list[Settled]]:
    """Let these leases end *duration* seconds from now; with None they stay as they are. Return a result for each."""

    def call(part: Sequence[Received], repeated: bool) -> Call:
        return extend_call(state, part, duration, repeated)

    return (yield from _settle_all(state, deliveries, call, timeout))


def extend_call(state: QueueState, part: Sequence[Received], duration: float | None, repeated: bool = False) -> Call:
    """Make the call that lets these leases end *duration* seconds from now, or leaves them as they are.

    One that is *repeated* charges nothing: the first try may have.
    """
    tokens = (token_argument(delivery.token) for delivery in part)
    visibility: Argument = "" if duration is None else round(duration * 1000)
    return Call.on(state.keys, "extend", (visibility, "" if repeated else costs_of(part), *tokens))


def _settle_all(
    state: QueueState,
    deliveries: Sequence[Received],
    make: Callable[[Sequence[Received], bool], Call],
    timeout: float | None,
    found: Results | None = None,
) -> Op[list[Settled]]:
    until = state.until(timeout)
    yield from open_queue(state, until)
    results: list[Settled] = []
    for part in _parts(deliveries):
        reply = yield from retry_until(lambda repeated, part=part: make(part, repeated), until, state.clock)  # type: ignore[misc]
        settled = [Settled(letter) for letter in reply[1].decode()]
        results += settled
        if found is not None:
            found.update(zip([delivery.token for delivery in part], settled, strict=True))
    return results


def _parts(deliveries: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(deliveries), CHUNK):
        yield deliveries[start : start + CHUNK]


def _streams(state: QueueState, places: Iterable[str]) -> tuple[str, ...]:
    """Return the streams in which messages lie that lie at these places."""
    return state.declared([place for place in dict.fromkeys(places) if place != "d"])


def _one_line(text: str) -> str:
    """Return an error or reason as it is stored: one line of at most MAX_ERROR characters."""
    line = " ".join(str(text).split())
    return line[:MAX_ERROR].encode(errors="replace").decode(errors="replace")


def located(state: QueueState, place: str) -> tuple[str, bytes, tuple[str, ...]]:
    """Return what the last part of a message id says: the origin, the shard key in it, and the stream to look into."""
    origin, _, quoted = place.partition(".")
    return origin, unquote_to_bytes(quoted), state.declared([origin]) if origin.isdigit() or origin == "l" else ()


Cancelled: TypeAlias = Literal["removed", "in flight", "dead"]


def cancel(state: QueueState, message_id: str, timeout: float | None = None) -> Op[Cancelled]:
    """Remove a waiting or delayed message, or mark one in flight as cancelled. MessageNotFound if it is neither."""
    entry, place = MessageId.parse(message_id)
    until = state.until(timeout)
    yield from open_queue(state, until)
    origin, key, stream = located(state, place)
    call = Call.on(state.keys, "cancel", (message_id, origin, entry, state.client, key), rest=stream)
    maybe_done = False

    def make(repeated: bool) -> Call:
        nonlocal maybe_done
        maybe_done = repeated
        return call

    reply: Any = yield from retry_until(make, until, state.clock)
    if reply == b"in flight":
        return "in flight"
    if reply == b"dead":
        return "dead"
    if reply == b"removed" or maybe_done:
        return "removed"
    raise MessageNotFound(f"message {message_id} is not waiting, delayed or in flight: it was settled, or never was")


def checked_each(name: str, value: object, count: int) -> None:
    """ConfigError unless *value* is one value for all deliveries or a sequence of *count*; also for a bad delay."""
    many = isinstance(value, (list, tuple))
    if many and len(value) != count:  # type: ignore[arg-type]
        raise ConfigError(f"{name} must be one for all or one for each of the {count} deliveries, not {len(value)}")  # type: ignore[arg-type]
    if name == "delay":
        for each in value if many else (value,):  # type: ignore[attr-defined]
            seconds(name, each, 0, MAX_BLOCK)


def extended(received: Received, sent: float, duration: float) -> Received:
    """Return the delivery with the deadline that an extension gives it that was sent at local time *sent*."""
    return msgspec.structs.replace(received, deadline=safe_deadline(sent, duration))

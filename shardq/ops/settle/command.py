"""The calls of the verbs settle and extend: their words, and in which parts many deliveries are settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, Literal, TypeAlias, TypeVar

from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call
from shardq.protocol.lease import place_of, token_argument

T = TypeVar("T")
CHUNK = 200
"""One call settles at most so many leases, so that no script takes longer than a few ms."""


MAX_ERROR = 500


Part: TypeAlias = Sequence[tuple[str, str, Received]]
"""Deliveries that one call acks, sorted by place: the place, the entry id and the delivery of each."""


_PLACE = itemgetter(0)


def ack_parts(deliveries: Sequence[Received]) -> list[Part]:
    """Return *deliveries* in parts that one call each can ack. A delivery that comes twice counts once."""
    if len(deliveries) == 1:  # the common case
        place, entry, _ = deliveries[0].token.split(":", 2)
        return [((place, entry, deliveries[0]),)]
    leases = {delivery.token: delivery for delivery in deliveries}
    split = [(*token.split(":", 2)[:2], delivery) for token, delivery in leases.items()]
    # By place, so that each part declares few streams.
    return list(parts_of(sorted(split, key=_PLACE)))  # type: ignore[arg-type] # a token has more than two parts


def settle_call(
    state: QueueState,
    kind: str,
    args: Sequence[Argument],
    streams: tuple[str, ...] = (),
    repeated: bool = False,
    costs: str = "",
) -> Call:
    """Make the call that ends deliveries."""
    head: tuple[Argument, ...] = kind, int(repeated), state.config.parents, costs, state.client
    return Call.on(state.keys, "settle", (*head, *args), rest=streams)


def ack_call(state: QueueState, part: Part, repeated: bool = False) -> Call:
    """Make the call that acks *part*."""
    # One call cannot say it of each, so all of it counts as a repetition: a message that is gone is then told as acked.
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


def extend_call(state: QueueState, part: Sequence[Received], duration: float | None, repeated: bool = False) -> Call:
    """Make the call that lets these leases end *duration* seconds from now, or leaves them as they are.

    One that is *repeated* charges nothing: the first try may have.
    """
    tokens = (token_argument(delivery.token) for delivery in part)
    visibility: Argument = "" if duration is None else round(duration * 1000)
    return Call.on(state.keys, "extend", (visibility, "" if repeated else costs_of(part), *tokens))


def _streams(state: QueueState, places: Iterable[str]) -> tuple[str, ...]:
    """Return the streams in which messages lie that lie at these places."""
    return state.declared([place for place in dict.fromkeys(places) if place != "d"])


def _one_line(text: str) -> str:
    """Return an error or reason as it is stored: one line of at most MAX_ERROR characters."""
    line = " ".join(str(text).split())
    # Errors of users may hold lone surrogates, which cannot be sent: an error must not make its own nack fail.
    return line[:MAX_ERROR].encode(errors="replace").decode(errors="replace")


def parts_of(deliveries: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the parts of *deliveries* that one call each can settle."""
    for start in range(0, len(deliveries), CHUNK):
        yield deliveries[start : start + CHUNK]

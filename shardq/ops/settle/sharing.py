"""Calls of ack, nack, reject and extend that several callers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from shardq.errors import BackendError, OutcomeUnknown
from shardq.model import Received
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.retry import is_of_one, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.settle.command import CHANGED, CHUNK, LoneAck, ack_call, ack_parts, extend_call, nack_call, terms_of
from shardq.ops.settle.settle import Settled, unsure_of
from shardq.ops.sharing.coalescing import Coalescer
from shardq.ops.sharing.verb import Verb

Result: TypeAlias = Settled | Exception
OK = Settled.OK
_RESULTS = {ord(result.value): result for result in Settled}


class Settle(msgspec.Struct, frozen=True):
    """What a caller wants for one delivery: *seconds* are those of a delay or an extension, *text* says why."""

    delivery: Received
    seconds: float = 0.0
    text: str = ""


class TriedSettle(msgspec.Struct, frozen=True):
    """The call of the common case, and the lease tokens that the letters of its reply stand for, in order."""

    call: Call
    tokens: Sequence[str]
    items: Sequence[Settle]

    @property
    def sendable(self) -> Call:
        """What a driver sends."""
        return self.call


Make: TypeAlias = Callable[[QueueState, Sequence[Settle], bool], tuple[Call, Sequence[str]]]
"""Makes a call, with the lease tokens in its order. The flag says whether an earlier try may have happened."""


class Settles(Verb[Settle, Settled]):
    """The calls of one of these verbs on one queue. Each result says how it ended."""

    def __init__(self, state: QueueState, verb: str) -> None:
        self._state = state
        self._make = _MAKERS[verb]
        self._is_extend, self._is_ack = verb == "extend", verb == "ack"

    def bounds(self) -> tuple[int, int]:
        """Return how many deliveries one call may settle. They weigh nothing."""
        return CHUNK if self._is_ack else CHANGED, 0

    def weight(self, item: Settle) -> int:
        """A delivery weighs nothing."""
        return 0

    def kind(self, item: Settle) -> float:
        """Return what else must be the same: when leases that are extended end, or whether an ack is a repetition.

        A call that counts as a repetition would say of another caller's lost lease that it was acked.
        """
        if self._is_ack and self._state.unsure:
            return float(item.delivery.token in self._state.unsure)
        return item.seconds if self._is_extend else 0.0

    def attempt(self, items: Sequence[Settle], until: float) -> TriedSettle | LoneAck | None:
        """Return the call for *items*; None if the queue must be opened first."""
        if not self._state.view.epoch:
            return None
        unsure, first = self._state.unsure, items[0].delivery
        if self._is_ack and len(items) == 1 and not (unsure and first.token in unsure):
            return LoneAck(self._state, first, until)
        call, tokens = self._make(self._state, items, False)
        call.until = until
        return TriedSettle(call, tokens, items)

    def results(self, tried: TriedSettle | LoneAck, reply: Any) -> list[Result]:
        """Return how each delivery ended, in the order of the callers."""
        letters = reply[1]
        if isinstance(tried, LoneAck) or len(tried.items) == 1:
            return [_RESULTS[letters[0]]]
        return self._in_order(tried.items, _by_token(tried.tokens, letters))

    def drop(self, tried: TriedSettle | LoneAck) -> None:
        """A call holds nothing."""

    def doubt(self, item: Settle) -> None:
        """Note that it is unknown whether *item* was acked. If it is acked again, that is a repetition."""
        if self._is_ack:
            unsure_of(self._state, [item.delivery])

    def op(self, items: Sequence[Settle], until: float, tried: TriedSettle | LoneAck | None) -> Op[list[Result]]:
        """Settle the deliveries of *items*, from the outcome of *tried* on."""
        if tried is None:
            yield from open_queue(self._state, until)
        try:
            return self._in_order(items, (yield from self._settle(items, until, tried)))
        except BackendError as error:
            # One delivery that Redis refuses, such as one in a stream of another type, must not fail those of others.
            if len(items) == 1 or not is_of_one(error):
                raise
        found: dict[str, Result] = {}
        for item in items:
            if item.delivery.token not in found:
                found |= yield from self._settle_alone(item, until)
        return self._in_order(items, found)

    def _settle(
        self, items: Sequence[Settle], until: float, tried: TriedSettle | LoneAck | None
    ) -> Op[dict[str, Result]]:
        call, tokens = (tried.call, tried.tokens) if tried else self._make(self._state, items, False)

        def make(repeated: bool) -> Call:
            return self._make(self._state, items, True)[0] if repeated else call

        try:
            reply = yield from retry_until(make, until, self._state.clock)
        except OutcomeUnknown:
            for item in items:
                self.doubt(item)
            raise
        return _by_token(tokens, reply[1])

    def _settle_alone(self, item: Settle, until: float) -> Op[dict[str, Result]]:
        """Settle one delivery, after a call with others was refused as a whole."""
        try:
            return (yield from self._settle([item], until, None))
        except BackendError as error:
            return {item.delivery.token: error}

    def _in_order(self, items: Sequence[Settle], found: dict[str, Result]) -> list[Result]:
        """Return the result of each item, as if its caller had come after the others.

        One that ends a delivery leaves none for those who come later; one that extends a lease does.
        """
        results: list[Result] = []
        for item in items:
            results.append(found[item.delivery.token])
            if not self._is_extend and isinstance(results[-1], Settled):
                found[item.delivery.token] = Settled.LOST
        return results


def noted(state: QueueState, item: Settle, result: Settled) -> Settled:
    """Return the *result* that the caller of *item* is told. LeaseLost or MessageCancelled if it says so."""
    if state.unsure:
        state.unsure.discard(item.delivery.token)
    if result is not OK:
        result.check()
    return result


def settles_of(state: QueueState, verb: str) -> Coalescer[Settle, Settled]:
    """Return where those meet who *verb* deliveries of this queue: "ack", "nack", "reject" or "extend"."""
    coalescer: Coalescer[Settle, Settled] | None = state.coalescers.get(verb)
    return coalescer or state.coalescers.setdefault(verb, Coalescer(Settles(state, verb)))


def _by_token(tokens: Sequence[str], letters: bytes) -> dict[str, Result]:
    return {token: _RESULTS[letter] for token, letter in zip(tokens, letters, strict=True)}


def _once(items: Sequence[Settle]) -> list[Settle]:
    first: dict[str, Settle] = {}
    for item in items:
        first.setdefault(item.delivery.token, item)
    return list(first.values())


def _ack(state: QueueState, items: Sequence[Settle], repeated: bool) -> tuple[Call, Sequence[str]]:
    if len(items) == 1:
        token = items[0].delivery.token
        place, entry, _ = token.split(":", 2)
        return ack_call(state, [(place, entry, items[0].delivery)], repeated), (token,)
    # One part, since `bounds` lets no more into a call.
    (part,) = ack_parts([item.delivery for item in items])
    return ack_call(state, part, repeated), [delivery.token for _, _, delivery in part]


def _nack(state: QueueState, items: Sequence[Settle], repeated: bool) -> tuple[Call, Sequence[str]]:
    return _given_back(state, items, repeated, state.config.max_deliveries)


def _reject(state: QueueState, items: Sequence[Settle], repeated: bool) -> tuple[Call, Sequence[str]]:
    return _given_back(state, items, repeated, 0)


def _given_back(
    state: QueueState, items: Sequence[Settle], repeated: bool, max_deliveries: int
) -> tuple[Call, Sequence[str]]:
    once = _once(items)
    part = [item.delivery for item in once]
    terms = terms_of(part, [item.seconds for item in once], [item.text for item in once])
    return nack_call(state, max_deliveries, terms)(part, repeated), [delivery.token for delivery in part]


def _extend(state: QueueState, items: Sequence[Settle], repeated: bool) -> tuple[Call, Sequence[str]]:
    part = [item.delivery for item in _once(items)]
    # All have the same seconds: see `kind`.
    return extend_call(state, part, items[0].seconds, repeated), [delivery.token for delivery in part]


_MAKERS: dict[str, Make] = {"ack": _ack, "nack": _nack, "reject": _reject, "extend": _extend}

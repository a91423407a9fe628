"""Calls of ack, nack, reject and extend that several callers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from shardq.errors import BackendError, OutcomeUnknown
from shardq.model import Received
from shardq.model.failed import NO_FAILURE, FailedTry
from shardq.ops.queue.numbered import answered, spelled
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.retry import is_of_one, retry_until
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.settle.command import (
    MAX_ACKS_A_CALL,
    MAX_MOVES_A_CALL,
    LoneAck,
    ack_call,
    ack_parts,
    extend_call,
    nack_call,
    terms_of,
)
from shardq.ops.settle.settle import Settled, unsure_of
from shardq.ops.sharing.coalescing import Coalescer
from shardq.ops.sharing.verb import Verb

Result: TypeAlias = Settled | Exception
OK = Settled.OK
_RESULTS = {ord(result.value): result for result in Settled}


class Settle(msgspec.Struct, frozen=True):
    """A caller's request for one delivery: *seconds* are those of a delay or an extension, *failed* says why."""

    delivery: Received
    seconds: float = 0.0
    failed: FailedTry = NO_FAILURE


class TriedSettle(msgspec.Struct, frozen=True):
    """The call of the common case, and the lease tokens that the letters of its reply stand for, in order."""

    call: Call
    tokens: Sequence[str]
    items: Sequence[Settle]

    @property
    def sendable(self) -> Call:
        """The request for a driver."""
        return self.call


class TriedNumber(TriedSettle, frozen=True):
    """The same of a call that has a number in a producer *sequence*."""

    sequence: ProducerSequence


Tried: TypeAlias = TriedSettle | LoneAck

Make: TypeAlias = Callable[[QueueState, Sequence[Settle], bool], tuple[Call, Sequence[str]]]
"""Makes a call, with the lease tokens in its order. The flag says whether an earlier try may have happened."""

MakeNumbered: TypeAlias = Callable[[QueueState, Sequence[Settle], str], tuple[Call, Sequence[str]]]
"""The same of a call that has a number, as `spelled` spells it."""


class Settles(Verb[Settle, Settled]):
    """The calls of one of these verbs on one queue. Each result says how it ended."""

    def __init__(self, state: QueueState, *, ends: bool = True) -> None:
        self._state, self._ends = state, ends

    @abstractmethod
    def _settle(self, items: Sequence[Settle], until: float, tried: Any) -> Op[dict[str, Result]]:
        """Settle the deliveries of *items*, from the outcome of *tried* on. Return the results by lease token."""

    def bounds(self) -> tuple[int, int]:
        """Return how many deliveries one call may settle. They weigh nothing."""
        return MAX_MOVES_A_CALL, 0

    def weight(self, item: Settle) -> int:
        """A delivery weighs nothing."""
        return 0

    def kind(self, item: Settle) -> float:
        """All deliveries can share a call."""
        return 0.0

    def results(self, tried: Tried, reply: Any) -> list[Result] | None:
        """Return how each delivery ended, in the order of the callers."""
        letters = reply[1]
        if isinstance(tried, LoneAck) or len(tried.items) == 1:
            return [_RESULTS[letters[0]]]
        return self._in_order(tried.items, _by_token(tried.tokens, letters))

    def drop(self, tried: Any) -> None:
        """A call holds nothing."""

    def op(self, items: Sequence[Settle], until: float, tried: Tried | None) -> Op[list[Result]]:
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
            if self._ends and isinstance(results[-1], Settled):
                found[item.delivery.token] = Settled.LOST
        return results


class Repeats(Settles):
    """ack and extend: calls that are made again as they are. An ack says that it is one."""

    def __init__(self, state: QueueState, make: Make, *, is_ack: bool) -> None:
        super().__init__(state, ends=is_ack)
        self._make, self._is_ack = make, is_ack

    def kind(self, item: Settle) -> float:
        """Return when leases that are extended end, which is one moment for all of a call. An ack has none."""
        return item.seconds

    def bounds(self) -> tuple[int, int]:
        """Return how many deliveries one call may settle: of acks more, which move no message."""
        return MAX_ACKS_A_CALL if self._is_ack else MAX_MOVES_A_CALL, 0

    def attempt(self, items: Sequence[Settle], until: float) -> Tried | None:
        """Return the call for *items*; None if the queue must be opened first."""
        if not self._state.view.epoch:
            return None
        unsure, first = self._state.unsure, items[0].delivery
        if self._is_ack and len(items) == 1 and not (unsure and first.token in unsure):
            return LoneAck(self._state, first, until)
        call, tokens = self._make(self._state, items, False)
        call.until = until
        return TriedSettle(call, tokens, items)

    def doubt(self, item: Settle) -> None:
        """Note that it is unknown whether *item* was acked. If it is acked again, that is a repetition."""
        if self._is_ack:
            unsure_of(self._state, [item.delivery])

    def _settle(self, items: Sequence[Settle], until: float, tried: Tried | None) -> Op[dict[str, Result]]:
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


class GivesBack(Settles):
    """nack and reject: calls with a number, since the same call once more would find no lease."""

    def __init__(self, state: QueueState, make: MakeNumbered) -> None:
        super().__init__(state)
        self._make = make

    def attempt(self, items: Sequence[Settle], until: float) -> TriedNumber | None:
        """Return the call for *items*; None if the queue must be opened first."""
        return self._numbered(items, until) if self._state.view.epoch else None

    def results(self, tried: Any, reply: Any) -> list[Result] | None:
        """Return how each delivery ended; None if the reply does not say it."""
        if isinstance(reply[0], bytes):  # else it is the server's time
            return None
        self.drop(tried)
        return super().results(tried, reply)

    def drop(self, tried: TriedNumber) -> None:
        """Let another call use the sequence."""
        self._state.sequences.free(tried.sequence)

    def _numbered(self, items: Sequence[Settle], until: float) -> TriedNumber:
        sequence = self._state.sequences.take()
        call, tokens = self._make(self._state, items, spelled(self._state, sequence, until))
        call.until = until
        return TriedNumber(call, tokens, items, sequence)

    def _settle(self, items: Sequence[Settle], until: float, tried: TriedNumber | None) -> Op[dict[str, Result]]:
        state, tried = self._state, tried or self._numbered(items, until)

        def make(sequence: ProducerSequence) -> Call:
            return self._make(state, items, spelled(state, sequence, until))[0]

        try:
            answer = yield from answered(state, tried.sequence, make, until, tried.call)
        finally:
            self.drop(tried)
        return _by_token(tried.tokens, answer.reply[1])


def noted(state: QueueState, item: Settle, result: Settled) -> Settled:
    """Return the *result* for the caller of *item*. LeaseLost or MessageCancelled if it says so."""
    if state.unsure:
        state.unsure.discard(item.delivery.token)
    if result is not OK:
        result.check()
    return result


def settles_of(state: QueueState, verb: str) -> Coalescer[Settle, Settled]:
    """Return where those meet who *verb* deliveries of this queue: "ack", "nack", "reject" or "extend"."""
    coalescer: Coalescer[Settle, Settled] | None = state.coalescers.get(verb)
    return coalescer or state.coalescers.setdefault(verb, Coalescer(_VERBS[verb](state)))


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


def _nack(state: QueueState, items: Sequence[Settle], number: str) -> tuple[Call, Sequence[str]]:
    return _given_back(state, items, number, state.config.max_deliveries)


def _reject(state: QueueState, items: Sequence[Settle], number: str) -> tuple[Call, Sequence[str]]:
    return _given_back(state, items, number, 0)


def _given_back(
    state: QueueState, items: Sequence[Settle], number: str, max_deliveries: int
) -> tuple[Call, Sequence[str]]:
    once = _once(items)
    part = [item.delivery for item in once]
    terms = terms_of(state, part, [item.seconds for item in once], [item.failed for item in once])
    return nack_call(state, max_deliveries, terms)(part, number), [delivery.token for delivery in part]


def _extend(state: QueueState, items: Sequence[Settle], repeated: bool) -> tuple[Call, Sequence[str]]:
    part = [item.delivery for item in _once(items)]
    # All have the same seconds: see `kind`.
    return extend_call(state, part, items[0].seconds, repeated), [delivery.token for delivery in part]


_VERBS: Final[Mapping[str, Callable[[QueueState], Settles]]] = {
    "ack": lambda state: Repeats(state, _ack, is_ack=True),
    "extend": lambda state: Repeats(state, _extend, is_ack=False),
    "nack": lambda state: GivesBack(state, _nack),
    "reject": lambda state: GivesBack(state, _reject),
}

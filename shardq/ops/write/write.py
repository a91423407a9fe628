"""write_many, and single writes that share calls: store checked messages in few round trips, each message once.

the verb answers        what follows
OK                      ids, also of a first try that got no answer
FULL, bound of a queue  the messages without a place are refused, the others go again
TAKEN                   the others go again, then each conflict by itself (`unique`)
another one             what follows for all calls that have numbers (`numbered`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from shardq.errors import (
    BackendError,
    BackendTimeout,
    DurabilityUnknown,
    OutcomeUnknown,
    PartlyWritten,
    QueueMissing,
    ShardqError,
    UniqueConflict,
)
from shardq.model import Written
from shardq.ops.queue.numbered import answered, number_of
from shardq.ops.queue.opening import open_queue
from shardq.ops.queue.outcome import outcome_of, told_as
from shardq.ops.queue.retry import is_of_one
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Underreplicated
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.queue.view import QueueView
from shardq.ops.sharing.coalescing import Coalescer
from shardq.ops.sharing.verb import Verb
from shardq.ops.write.command import LoneWrite, call_for, call_with, goes_alone
from shardq.ops.write.outdated import Outdated
from shardq.ops.write.outgoing import CHUNK_BYTES, Outgoing, chunks, max_messages, weight
from shardq.ops.write.refusal import read_refused
from shardq.ops.write.unique import write_despite
from shardq.protocol.ids import told, with_partition
from shardq.protocol.replies import is_nothing, stored_ids

Result = Written | ShardqError


def write_many(state: QueueState, messages: Sequence[Outgoing], timeout: float | None = None) -> Op[list[Written]]:
    """Store many messages in order, one chunk after the other. Return their ids.

    PartlyWritten if some failed; QueueMissing if none was stored because the queue is not there any more.
    """
    results = yield from _outcomes(state, messages, timeout)
    if failed := next((result for result in results if isinstance(result, ShardqError)), None):
        if all(isinstance(result, QueueMissing) for result in results):
            raise failed
        raise PartlyWritten(results, failed) from failed
    return [result for result in results if isinstance(result, Written)]


def write_one(state: QueueState, message: Outgoing, timeout: float | None = None) -> Op[Written]:
    """Store one message, not together with others, and return its id. Raise the error with which its write ended."""
    (result,) = yield from _outcomes(state, [message], timeout)
    if isinstance(result, ShardqError):
        raise result
    return result


def _outcomes(state: QueueState, messages: Sequence[Outgoing], timeout: float | None) -> Op[list[Result]]:
    """Store messages. Return for each its id, or the error with which its write ended."""
    until = state.until(timeout)
    if not state.epoch:
        yield from open_queue(state, until)
        if state.parts is not None:  # as this call has found out
            return (yield from state.parts.store(messages, timeout))  # type: ignore[no-any-return]
    results: list[Result] = []
    for chunk in chunks(messages, state.choices):
        if results and _is_hopeless(results[-1]):
            results += [_unsent(results[-1])] * len(chunk)
        else:
            results += yield from _store(state, chunk, until)
    # After the messages, which it must not delay.
    yield from upkeep(state, state.clock.monotonic())
    return results


def _is_hopeless(last: Result) -> bool:
    """Return whether the chunk before failed because of Redis, or of the queue: more calls would only take time."""
    return isinstance(last, (BackendError, QueueMissing)) and not isinstance(last, DurabilityUnknown)


def _unsent(last: Result) -> ShardqError:
    """Return the error for a chunk that was not sent, because the chunk before it failed with *last*."""
    if isinstance(last, ShardqError) and not isinstance(last, OutcomeUnknown):
        return last
    return BackendTimeout("this was not written: it was not sent, because the outcome of the call before is unknown")


class TriedWrite(NamedTuple):
    """The call of the common case, and the producer sequence that it uses."""

    call: Call
    sequence: ProducerSequence
    shard_keys: Sequence[str | bytes]

    @property
    def sendable(self) -> Call:
        """The request for a driver."""
        return self.call


class Writes(Verb[Outgoing, Written]):
    """The writes of one queue that share calls: each item is a message, each result its id."""

    def __init__(self, state: QueueState) -> None:
        self._state = state

    def store(self, messages: Sequence[Outgoing], until: float, *, shared: bool = False) -> Op[list[Result]]:
        """Store *messages*, with an id or an error for each. Those of a *shared* call are of several callers."""
        return _store(self._state, messages, until, shared=shared)

    def bounds(self) -> tuple[int, int]:
        """Return how many messages one call may have, and how much they may weigh."""
        view = self._state.view
        if not view.choices:  # nothing is known before the queue is open
            return 1, CHUNK_BYTES
        return max_messages(view.choices), CHUNK_BYTES

    def weight(self, message: Outgoing) -> int:
        """Return the message's weight in the bytes of a call."""
        return weight(message)

    def kind(self, message: Outgoing) -> None:
        """All messages can share a call."""

    def attempt(self, messages: Sequence[Outgoing], until: float) -> TriedWrite | LoneWrite | None:
        """Return the call that stores *messages*; None if the queue must be opened first."""
        return self._attempt(messages, until, self._state.view)  # read once: another thread may replace it meanwhile

    def _attempt(self, messages: Sequence[Outgoing], until: float, view: QueueView) -> TriedWrite | LoneWrite | None:
        state = self._state
        if not view.epoch:
            return None
        sequence = state.sequences.take()
        if goes_alone(state, view, messages):
            return LoneWrite(state, view, messages[0], sequence, until)
        call = call_with(state, view, sequence, messages, number_of(state, sequence, until) + messages[0].asked)
        call.until = until
        return TriedWrite(call, sequence, [message.shard_key for message in messages])

    def results(self, tried: TriedWrite | LoneWrite, reply: Any) -> list[Result] | None:
        """Return the ids in *reply*; None if it is anything but OK."""
        if reply[0] != b"OK":
            return None
        self._state.sequences.free(tried.sequence)
        if len(reply) > 2:  # the next one shall declare all keys
            self._state.few["write"].lacking = 1
        return stored_ids(reply[1], tried.shard_keys)  # type: ignore[return-value]

    def drop(self, tried: TriedWrite | LoneWrite) -> None:
        """Let another call use the sequence."""
        self._state.sequences.free(tried.sequence)

    def op(self, messages: Sequence[Outgoing], until: float, tried: TriedWrite | LoneWrite | None) -> Op[list[Result]]:
        """Store *messages*, from the reply to *tried* on."""
        if tried is None:
            yield from open_queue(self._state, until)
            if self._state.parts is not None:  # as this call has found out
                shared = len(messages) > 1
                parts: Any = self._state.parts
                dealt: list[Result] = yield from parts.store_in_turn(messages, until, shared=shared)
                return dealt
        return (yield from _store(self._state, messages, until, tried, shared=len(messages) > 1))

    def here(self, messages: Sequence[Outgoing], until: float) -> Op[list[Result]]:
        """Store *messages* in this queue, or partition, where they were dealt to."""
        return self.op(messages, until, None)

    def deal(self) -> None:
        """Make no call to the head from now on, also in a shared call that has begun: the queue has partitions."""
        self.__class__ = DealtWrites


class WriteCoalescer(Coalescer[Outgoing, Written]):
    """Where the writers of one queue meet."""

    verb: Writes


class PartWrites(Writes):
    """The writes of one partition of a queue: the ids say which it is.

    A message with a key that may be known elsewhere is dealt again, once that is asked.
    """

    def attempt(self, messages: Sequence[Outgoing], until: float) -> TriedWrite | LoneWrite | None:
        """Make no call before it is known where these go."""
        view = self._state.view  # before the map: one that is newer than that would pass for the map's
        return None if self._parts_to_ask(messages) is not None else self._attempt(messages, until, view)

    def results(self, tried: TriedWrite | LoneWrite, reply: Any) -> list[Result] | None:
        """Do as those of a queue."""
        found = super().results(tried, reply)
        return None if found is None else placed_ids(found, self._state.number)

    def op(self, messages: Sequence[Outgoing], until: float, tried: TriedWrite | LoneWrite | None) -> Op[list[Result]]:
        """Do as that of a queue. A message with a key that may be known elsewhere goes where it is."""
        if tried is None and (parts := self._parts_to_ask(messages)) is not None:
            dealt: list[Result] = yield from parts.store_in_turn(messages, until, shared=len(messages) > 1)
            return dealt
        return (yield from self._op(messages, until, tried))

    def here(self, messages: Sequence[Outgoing], until: float) -> Op[list[Result]]:
        """Store *messages* in this partition. A message that finds none there, since it was deleted, is dealt again.

        So is what has a key, and was dealt by a map that is old by now.
        """
        return self._op(messages, until, None)

    def _op(self, messages: Sequence[Outgoing], until: float, tried: TriedWrite | LoneWrite | None) -> Op[list[Result]]:
        state, number = self._state, self._state.number
        try:
            told = told_as(super().op(messages, until, tried), lambda item, each: (item, *placed_ids([each], number)))
            results = placed_ids((yield from told), number)
        except QueueMissing as error:
            results = [error] * len(messages)
        if not any(isinstance(each, QueueMissing) for each in results) or (parts := self._parts) is None:
            return results
        return (yield from parts.deal_again(state, messages, results, until))  # type: ignore[no-any-return]

    @property
    def _parts(self) -> Any:
        """The partitions; None once this client has deleted the queue, whose writes may be under way."""
        return cast("QueueState", self._state.whole).parts

    def _parts_to_ask(self, messages: Sequence[Outgoing]) -> Any:
        """Return the partitions if they must be asked where these messages go, else None."""
        parts = self._parts
        return parts if parts is not None and parts.must_ask(messages) else None


class DealtWrites(Writes):
    """The writes of a queue that is found to have partitions, by callers who met before that: each goes to its home."""

    def attempt(self, messages: Sequence[Outgoing], until: float) -> None:
        """Make no call to the head."""


def placed_ids(results: Sequence[Result], number: int) -> list[Result]:
    """Return what became of writes to partition *number*, with ids that say so."""
    placed: list[Result] = []
    for each in results:
        if isinstance(each, DurabilityUnknown):
            placed.append(DurabilityUnknown(str(each), with_partition(Written(each.result), number)))
        elif isinstance(each, UniqueConflict):
            text = str(told(each, each.message_id, number))
            placed.append(UniqueConflict(text, with_partition(each.message_id, number)))
        else:
            placed.append(with_partition(each, number) if isinstance(each, Written) else each)
    return placed


def writes_of(state: QueueState, message: Outgoing | None = None) -> WriteCoalescer:
    """Return where the writers of this queue meet, or where it has partitions those of the home of *message*."""
    coalescer: WriteCoalescer | None = state.coalescers.get("write")
    return coalescer or _new_writes(state, message)


def _new_writes(state: QueueState, message: Outgoing | None) -> WriteCoalescer:
    # A queue with partitions has none of its own: so a queue without them is not asked for any.
    if state.parts is not None:
        if message is None:  # of a call that began before the partitions were seen
            return WriteCoalescer(Writes(state))
        return writes_of(state.parts.home_of(message.shard_key))
    is_part = state.whole is not None and state.whole is not state
    writes = PartWrites(state) if is_part else Writes(state)
    found: WriteCoalescer = state.coalescers.setdefault("write", WriteCoalescer(writes))
    if _is_parted(state):  # another thread has found out meanwhile
        state.coalescers.pop("write", None)
        found.verb.deal()
    return found


def _is_parted(state: QueueState) -> bool:
    return state.parts is not None


def _store(
    state: QueueState,
    chunk: Sequence[Outgoing],
    until: float,
    tried: TriedWrite | LoneWrite | None = None,
    *,
    shared: bool = False,
) -> Op[list[Result]]:
    """Store one chunk. Return an id or an error for each message: it raises none, since some may be stored by then.

    The first call is that of *tried*, if given. The messages of a *shared* call belong to several callers: a call that
    was refused as a whole is tried again one by one, so that nobody suffers for another's message.

    A queue may be found to have partitions meanwhile, or others. Then a key may be known in another one. So messages
    with keys are dealt again; but first this asks whether a try was done, by a call that has none of them.
    """
    if state.parts is not None and tried is None:
        return (yield from state.parts.store_in_turn(chunk, until, shared=shared))  # type: ignore[no-any-return]
    writes = writes_of(state).verb
    sequence = tried.sequence if tried else state.sequences.take()

    def call_of(sequence: ProducerSequence) -> Call:
        view = state.view
        return call_for(state, view, sequence, [] if _is_outdated(state, view, chunk) else chunk, until)

    try:
        made = tried.call if tried else None
        answer = yield from outcome_of(answered(state, sequence, call_of, until, made))
    finally:
        # Also after no answer: the next call has a higher number, and a copy of this one that comes late is STALE.
        state.sequences.free(sequence)
    if isinstance(answer, ShardqError):
        if shared and is_of_one(answer):
            return (yield from _store_singly(state, chunk, until))
        return [answer] * len(chunk)
    match answer.reply:
        case [b"OK", stored, *_] if is_nothing(stored):
            if state.parts is None:
                return [Outdated(state.keys.name)] * len(chunk)
            return (yield from state.parts.store_in_turn(chunk, until, shared=shared))  # type: ignore[no-any-return]
        case [b"OK", stored, *_]:
            return _results(state, stored, answer.underreplicated, [message.shard_key for message in chunk])
        case [b"TAKEN", taken]:
            return (yield from write_despite(state, chunk, taken, until, writes, shared=shared))
        case _:  # FULL
            return (yield from _store_others(state, chunk, answer.reply, until, shared))


def _is_outdated(state: QueueState, view: QueueView, chunk: Sequence[Outgoing]) -> bool:
    """Return whether messages were dealt by a map that is older than *view*, and have keys that others may store now.

    Those of one call go together.
    """
    if state.parts is None and state.whole is None:
        return False
    return any(each.has_key and (state.parts is not None or each.dealt < view.generation) for each in chunk)


def _store_singly(state: QueueState, chunk: Sequence[Outgoing], until: float) -> Op[list[Result]]:
    """Store messages one by one, after a call with all of them was refused."""
    results: list[Result] = []
    for message in chunk:
        results += yield from _store(state, [message], until)
    return results


def _results(
    state: QueueState, raw: bytes, underreplicated: Underreplicated | None, keys: Sequence[str | bytes]
) -> list[Result]:
    """Return the ids, or if too few replicas confirmed them, a DurabilityUnknown with the id for each."""
    if underreplicated is None:
        return [*stored_ids(raw, keys)]
    text = f"written, but {underreplicated.explain(state.durability.replicas)}"
    return [DurabilityUnknown(text, message_id) for message_id in stored_ids(raw, keys)]


def _store_others(
    state: QueueState, chunk: Sequence[Outgoing], reply: Sequence[Any], until: float, shared: bool
) -> Op[list[Result]]:
    """Refuse the messages for which a bound has no place, as *reply* says, and store the others."""
    refused = read_refused(state, chunk, reply)
    rest = [message for at, message in enumerate(chunk) if at not in refused]
    stored = iter((yield from _store(state, rest, until, shared=shared)) if rest else [])
    return [refused[at] if at in refused else next(stored) for at in range(len(chunk))]

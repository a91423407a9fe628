"""Wait for the result of a message without asking again and again.

A client that waits says so in Redis. While somebody does, a call that keeps results, makes dead letters of messages or
cancels them adds their ids to the stream `finished`, and clients that wait read from there on. All who wait in one
client share one blocking read, and look their results up together. In turn each of them looks for itself: nobody
announces that a message was purged or expired, or that it became a dead letter because its lease ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from shardq.arguments import MAX_BLOCK, seconds
from shardq.errors import ConfigError, MessageDead, NoResult, ResultPending
from shardq.model import MessageId
from shardq.ops import inspect
from shardq.ops.queue.opening import find_queue, missing, reopen
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Armed, Call, Op, Refused, Sleep, Unanswered, Wait
from shardq.ops.read.pump import LATENESS, PAUSE
from shardq.ops.results.waiters import Entry, ResultWaiter, order, result_waiting_of
from shardq.protocol.replies import entries_of
from shardq.protocol.results import FULL, NOT_ENCODED, TOO_LARGE, VALUE, Ended, KeptResult, read_ended

RESULTS_A_CALL: Final = 100
"""Messages whose results one call looks for."""

ARMED: Final = 50
"""Waiters whose results are looked up at the moment when a wait ends."""

LOOK_AFTER = 1.0
"""After this many seconds, or a `wait_slice` if that is less, some of the waiters look for themselves."""

MIN_LOOKED_AT: Final = 20
"""Messages that are, or a tenth of them if that is more, in turn."""

ONLY_LOOKED: Final = "it only looked for the result"
"""The caller learns this where a look gets no answer: its verb can write, that somebody waits."""

_WHY: Final = {
    TOO_LARGE: "it was larger than max_result_size",
    NOT_ENCODED: "the codec could not encode it, or it would not come back as it is: the worker's log says why",
    FULL: "there was no room (max_result_bytes)",
}


def result(state: QueueState, message_id: str, wait: float | None = None) -> Op[KeptResult]:
    """Return the result of a message, after waiting up to *wait* seconds until it is done (by default the timeout).

    It continues while Redis does not answer. ResultPending if the message is not done by then, BackendTimeout if Redis
    gives no answer then. NoResult if it has none and will have none.
    """
    MessageId.parse(message_id, NoResult)
    clock = state.clock
    ends = clock.monotonic() + (state.timeout if wait is None else seconds("timeout", wait, 0, MAX_BLOCK))
    yield from _check_kept(state, _until(state, ends))
    woken_by = "0-0"
    while True:
        # The look comes before the wait, and its position is where the wait continues: nothing that ends between is
        # missed.
        ended, position = yield from _look(state, message_id, _until(state, ends), announce=clock.monotonic() < ends)
        if ended is None:
            ended = yield from _check_alive(state, message_id, _until(state, ends))
        if ended is None and clock.monotonic() < ends:
            # A look may see less than the entry that woke it said: after a failover, say. It must not wake for the same
            # one for ever.
            position = max(position, woken_by, key=order)
            waiter = ResultWaiter(result_waiting_of(state), message_id, until=ends, position=position)
            yield Wait(state, waiter, await_pump)
            if waiter.failure is not None:
                raise waiter.failure
            ended, woken_by = waiter.ended, waiter.position
            if ended is None:
                continue
        if ended is None:
            raise ResultPending(f"message {message_id} is not done yet")
        return _value(message_id, ended)


def _until(state: QueueState, ends: float) -> float:
    """Return when a look gives up for a caller who waits until *ends*: at the end there is time for a last look."""
    return max(ends, state.until())


def _check_kept(state: QueueState, until: float) -> Op[None]:
    """ConfigError if the queue keeps no results, QueueMissing if there is no such queue."""
    if not (yield from find_queue(state, until)):
        raise missing(state)
    if state.config.result_ttl is None:
        yield from reopen(state, until)  # it may keep them by now
    if state.config.result_ttl is None:
        raise ConfigError(f"queue {state.keys.name!r} keeps no results: set its result_ttl")


def _look(state: QueueState, message_id: str, until: float, *, announce: bool) -> Op[tuple[Ended | None, str]]:
    """Return how a message ended, None if it did not, and up to where what is finished was looked at."""
    call = _await_call(state, [message_id], announce=announce)
    reply: Any = yield from retry_until(always(call), until, state.clock, looks=ONLY_LOOKED)
    if len(reply) == 1:
        raise missing(state)
    return read_ended(reply[2][0]), reply[1].decode()


def _check_alive(state: QueueState, message_id: str, until: float) -> Op[Ended | None]:
    """NoResult if nothing is known of a message that had no result just now. It may have got one since."""
    found = yield from inspect.status.status(state, message_id, max(0.0, until - state.clock.monotonic()))
    if found.state == "in_flight" and found.cancelled:
        raise NoResult(f"message {message_id} was cancelled while it was in flight")
    if found.state not in ("unknown", "done", "dead"):
        return None
    ended, _ = yield from _look(state, message_id, until, announce=False)
    # It may have ended between the two calls, so nothing is known only if this look finds nothing either.
    if ended is None and found.state == "unknown":
        raise NoResult(
            f"message {message_id} has no result: it was removed or expired, its result was not kept or was kept long "
            "enough, or it never was"
        )
    return ended


def _value(message_id: str, ended: Ended) -> KeptResult:
    found = ended.result
    if found is None:
        raise MessageDead(f"message {message_id} became a dead letter: {ended.reason}", ended.reason)
    if found.kind != VALUE:
        raise NoResult(f"the result of message {message_id} was not kept: {_WHY.get(found.kind, found.kind)}")
    return found


def _await_call(state: QueueState, message_ids: Sequence[str], *, announce: bool) -> Call:
    """Make the call that looks for results, and says that somebody waits if it shall *announce* it."""
    waits = round(2000 * state.wait_slice) if announce else 0
    return Call.on(state.keys, "await", (waits, *message_ids))


def await_pump(state: QueueState) -> Op[None]:
    """Look on behalf of all who wait for results until nobody is left. After a failure each looks for itself."""
    try:
        yield from _AwaitPump(state).run()
        return
    except (Unanswered, Refused):
        result_waiting_of(state).overdue_at = math.inf
    yield Sleep(PAUSE)
    result_waiting_of(state).release()


class _AwaitPump:
    """The pump of one queue. It has read `finished` up to the entry `position`."""

    def __init__(self, state: QueueState) -> None:
        self.state, self.clock, self.waiting = state, state.clock, result_waiting_of(state)
        # From the oldest on, so that nobody misses an entry; but entries that all have seen are not read again.
        oldest = min((each.position for each in self.waiting.result_waiters()), key=order, default="0-0")
        self.position = max(oldest, self.waiting.position, key=order)

    def run(self) -> Op[None]:
        while True:
            self.waiting.expire_all(self.clock.monotonic())
            waiters = self.waiting.result_waiters()
            if not waiters:
                return
            entries = yield from self._armed(waiters)
            yield from self._wake(self.waiting.note(entries))
            # A waiter that joins from here on knows by it whether its message came before.
            self.waiting.position = self.position
            if self._looks_in() <= 0:
                waiters = self.waiting.result_waiters()
                # Some look for themselves now and then: no entry tells about results that were removed or forgotten.
                yield from self._wake(waiters[: max(MIN_LOOKED_AT, len(waiters) // 10)])
                self.waiting.looked_at = self.clock.monotonic()

    def _looks_in(self) -> float:
        return self.waiting.looked_at + min(self.state.wait_slice, LOOK_AFTER) - self.clock.monotonic()

    def _block(self, waiters: Sequence[ResultWaiter]) -> float:
        until = max(waiter.until for waiter in waiters)
        return max(0.001, min(self._looks_in(), until - self.clock.monotonic()))

    def _armed(self, waiters: Sequence[ResultWaiter]) -> Op[list[Entry]]:
        """Wait for what ends, and tell some of *waiters* at once. Return the entries that came."""
        state, told, block = self.state, waiters[:ARMED], self._block(waiters)
        call = _await_call(state, [waiter.message_id for waiter in told], announce=True)
        self.waiting.overdue_at = self.clock.monotonic() + block + LATENESS
        _, entries, reply = yield Armed(
            state.keys.finished, RESULTS_A_CALL, math.ceil(block * 1000), call, math.inf, self.waiting, self.position
        )
        if isinstance(entries, Refused):
            raise entries
        if isinstance(reply, Refused):
            if reply.code != "NOSCRIPT":
                raise call.explain(reply)
            reply = yield call
        found = entries_of(entries)
        if found:
            self.position = found[-1][0].decode()
        elif len(reply) > 1 and order(reply[1].decode()) < order(self.position):
            self.position = reply[1].decode()  # a failover lost the latest entries, or the queue is another one
        _end(told, reply)
        return [(position.decode(), fields[1].decode().split()) for position, fields in found]

    def _wake(self, waiters: Sequence[ResultWaiter]) -> Op[None]:
        """Tell *waiters* how their messages have ended. Where that is not known, the caller must look for itself."""
        for start in range(0, len(waiters), RESULTS_A_CALL):
            part = waiters[start : start + RESULTS_A_CALL]
            _end(part, (yield _await_call(self.state, [waiter.message_id for waiter in part], announce=False)))
            for waiter in part:
                waiter.finish(None)


def _end(waiters: Sequence[ResultWaiter], reply: Any) -> None:
    """End the waits of those *waiters* whose messages have ended, as the *reply* says that looked for them."""
    for waiter, text in zip(waiters, reply[2] if len(reply) > 1 else (), strict=False):
        ended = read_ended(text)
        if ended is not None and not waiter.done:
            waiter.ended = ended
            waiter.finish([])

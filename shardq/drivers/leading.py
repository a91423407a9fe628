"""How threads wait together: one of them, the leader, does the I/O for all; the others wait until it wakes them.

The first thread that waits leads, so that a message for it crosses no thread. A leader that leaves hands over to the
next; what it had sent stays pending, and the next one goes on waiting for the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Event, get_ident
from typing import Any, Final, Protocol, cast

import redis

from shardq.drivers.failures import LOST, demoted, refusal, unanswered
from shardq.drivers.wire import CLOSED_WHILE_WAITING, MAX_PAUSE, MIN_PAUSE, number_of
from shardq.errors import ClosedError
from shardq.ops.pump import pump
from shardq.ops.state import QueueState
from shardq.ops.steps import Armed, Op, Refused, Step, Unanswered, Wait
from shardq.ops.waiting import Waiter, Waiting
from shardq.timing import Purgatory, Timer

CLOSED: Final = (AttributeError, TypeError, ValueError, OSError)
"""What redis-py stumbles into when another thread closes the connection meanwhile."""


class Sender(Protocol):
    """What is needed of the driver."""

    def perform(self, step: Step) -> Any:
        """Do what *step* says; its reply."""

    def arm(self, step: Armed) -> PendingRead:
        """Send an armed read."""

    def unblock(self, pending: PendingRead) -> None:
        """End the wait of a pending read."""


class PendingRead:
    """A blocking connection on which *count* answers will come, within *limit* seconds, to what was sent to *address*.

    `server` is where its socket leads to: by what name a server is known, may change hands.
    """

    def __init__(
        self, pool: Any, connection: Any, count: int, limit: float, closed: Callable[[], bool], address: Any = None
    ) -> None:
        self._pool, self._connection, self._count, self._closed = pool, connection, count, closed
        self.limit, self.address, self.server = limit, address, peer_of(connection)
        self.answers: list[Any] = []
        self.pause = MIN_PAUSE

    @property
    def number(self) -> int | None:
        """What its server calls the connection, once it has said so."""
        return number_of(self.answers)

    def ready(self, seconds: float) -> bool:
        """Whether all answers are there, waiting up to *seconds* for the next."""
        try:
            while len(self.answers) < self._count:
                if self._closed():  # redis-py would connect anew, for answers that never come
                    raise ClosedError(CLOSED_WHILE_WAITING)
                if not self._connection.can_read(seconds):
                    return False
                self.answers.append(answer(self._connection))
        except (*LOST, *CLOSED) as error:
            self.drop()
            raise unanswered(error) from error
        except BaseException:
            self.drop()
            raise
        if self._closed():
            self._connection.disconnect()
        self._pool.release(self._connection)
        if demoted(self.answers):
            self._pool.disconnect(inuse_connections=False)
        return True

    def drop(self) -> None:
        """Close the connection: the server forgets a read that still waits when it sees that."""
        self._connection.disconnect()
        self._pool.release(self._connection)


class PumpRun:
    """A pump, the step that it is at, and the pending read on which the answers to an armed read will come.

    A pending read without answers is given up at local time `until`.
    """

    def __init__(self, op: Op[None]) -> None:
        self.op = op
        self.step: Step = next(op)
        self.pending: PendingRead | None = None
        self.until = math.inf

    def cancel(self) -> None:
        """Leave it at that, and close the pending read."""
        self.op.close()
        if self.pending is not None:
            self.pending.drop()


class Leading:
    """Lets threads wait, and the first of them lead."""

    def __init__(self, driver: Sender) -> None:
        self._driver = driver
        self.closed = False
        self._waits: dict[int, Waiter] = {}
        self._purgatory = Purgatory(Timer())  # no operation is timed: each thread knows until when it waits

    def wait(self, step: Wait) -> None:
        """Return when the waiter of *step* is done."""
        state, waiter, waiting = step.state, step.waiter, step.waiter.waiting
        if self.closed:
            raise ClosedError(CLOSED_WHILE_WAITING)
        event = Event()
        waiter.wake = event.set
        waiting.join(waiter, self._purgatory, None)
        self._waits[get_ident()] = waiter
        try:
            while not waiter.done:
                if waiting.lead(waiter):
                    self._lead(state, waiter)
                elif event.wait(max(MIN_PAUSE, waiter.until - waiting.clock.monotonic())):
                    event.clear()
                else:
                    waiting.expire(waiter)
        finally:
            del self._waits[get_ident()]
            waiter.cancel()
            waiting.resign(waiter)

    def recall(self, thread: int) -> None:
        """End the wait of another *thread*, if it waits, as if its time were up.

        What it waits on may only just have been sent, and cannot be ended yet: call again until the thread is back.
        """
        waiter = self._waits.get(thread)
        if waiter is None:
            return
        waiting = waiter.waiting
        waiter.until = min(waiter.until, waiting.clock.monotonic())
        waiter.wake()
        run = _run_of(waiting)
        pending = run.pending if run else None
        if waiting.led_by(waiter) and pending is not None:
            self._driver.unblock(pending)

    def _lead(self, state: QueueState, waiter: Waiter) -> None:
        waiting = state.waiting
        try:
            while not waiter.done:
                self._advance(state, waiter)
            while waiting.pump is not None and not waiting.waiters():
                self._advance(state, waiter)
        except BaseException:
            waiting.stop()
            waiting.release()
            raise

    def _advance(self, state: QueueState, leader: Waiter) -> None:
        """Take the pump as far as it goes now: to its next step, to its end, or until the leader gives up."""
        waiting = state.waiting
        run = _run_of(waiting)
        try:
            if run is None:
                waiting.pump = PumpRun(pump(state))
            else:
                self._go_on(waiting, run, leader)
        except StopIteration:
            waiting.pump = None

    def _go_on(self, waiting: Waiting, run: PumpRun, leader: Waiter) -> None:
        try:
            if not isinstance(run.step, Armed):
                run.step = run.op.send(self._driver.perform(run.step))
            elif run.pending is None and leader.done:
                waiting.stop()  # nobody is left whom it could serve, and nothing was sent
            elif (answers := self._answers(run, run.step, leader)) is not None:
                run.pending = None
                run.step = run.op.send(answers)
        except (Refused, Unanswered) as failure:
            run.pending = None
            run.step = run.op.throw(failure)

    def _answers(self, run: PumpRun, step: Armed, leader: Waiter) -> list[Any] | None:
        """The answers to the armed read, None if they are still to come. Gives up when none come for too long.

        Ends the wait that the read is behind when there is a reason to read again.
        """
        clock = leader.waiting.clock
        if run.pending is None:
            run.pending = self._driver.arm(step)
            run.until = clock.monotonic() + run.pending.limit
        pending, now = run.pending, clock.monotonic()
        if now >= run.until:
            pending.drop()
            raise Unanswered("no answer to a read that waits", sent=True)
        if not leader.done and now >= leader.until and step.waiting.expire(leader):
            return None
        wake_at = now if leader.done else min(step.wake_at, leader.until)
        if now < wake_at:
            ready = pending.ready(min(wake_at, run.until) - now)
        elif not (ready := pending.ready(0)):
            self._driver.unblock(pending)
            pause, pending.pause = pending.pause, min(2 * pending.pause, MAX_PAUSE)
            ready = pending.ready(pause)
        return pending.answers if ready else None


def _run_of(waiting: Waiting) -> PumpRun | None:
    return cast("PumpRun | None", waiting.pump)  # a client has one driver: no other one's pump is there


def peer_of(connection: Any) -> Any:
    """Where the socket of *connection* leads to; None if it has none."""
    try:
        return connection._sock.getpeername()
    except CLOSED:
        return None


def answer(connection: Any) -> Any:
    """One reply; a refusal as a value, so that the answers after it are read too."""
    try:
        return connection.read_response()
    except redis.RedisError as error:
        refused = refusal(error)
        if refused is None:
            raise
        return refused

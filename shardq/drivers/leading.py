"""How threads wait together: one of them, the leader, does the I/O for all; the others wait for its word.

The first thread that waits leads, so that a message for it crosses no thread. A leader that leaves hands over to the
next; what it had sent stays on its line, and the next one goes on waiting for the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Event, get_ident
from typing import Any, Final, Protocol

import redis

from shardq.drivers.failures import DEMOTED, LOST, refusal, unanswered
from shardq.errors import ClosedError
from shardq.ops.pump import pump
from shardq.ops.steps import Armed, Op, Refused, Step, Unanswered
from shardq.ops.waiting import Waiter, Waiting
from shardq.timing import Purgatory, Timer

SOON: Final = 0.001
LATER: Final = 0.05

CLOSED: Final = (AttributeError, TypeError, ValueError, OSError)
"""What redis-py stumbles into when another thread closes the connection meanwhile."""


WHILE_WAITING: Final = "this client was closed while a read waited"


class Sender(Protocol):
    """What is needed of the driver."""

    def perform(self, step: Step) -> Any:
        """Do what *step* says; its reply."""

    def arm(self, step: Armed) -> Line:
        """Send an armed look."""

    def unblock(self, line: Line) -> None:
        """End the wait of a line."""


class Line:
    """A blocking connection on which *count* answers will come, within *limit* seconds, to what was sent to *address*.

    `server` is where its socket leads to: by what name a server is known, may change hands.
    """

    def __init__(
        self, pool: Any, connection: Any, count: int, limit: float, closed: Callable[[], bool], address: Any = None
    ) -> None:
        self._pool, self._connection, self._count, self._closed = pool, connection, count, closed
        self.limit, self.address, self.server = limit, address, peer_of(connection)
        self.answers: list[Any] = []
        self.pause = SOON

    @property
    def number(self) -> int | None:
        """What its server calls the connection, once it has said so."""
        return self.answers[0] if self.answers and isinstance(self.answers[0], int) else None

    def ready(self, seconds: float) -> bool:
        """Whether all answers are there, waiting up to *seconds* for the next."""
        try:
            while len(self.answers) < self._count:
                if self._closed():  # redis-py would connect anew, for answers that never come
                    raise ClosedError(WHILE_WAITING)
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
        if any(isinstance(each, Refused) and each.code in DEMOTED for each in self.answers):
            self._pool.disconnect(inuse_connections=False)
        return True

    def drop(self) -> None:
        """Close the connection: the server forgets a look that still waits when it sees that."""
        self._connection.disconnect()
        self._pool.release(self._connection)


class Turn:
    """A pump, its step to be done, and the line on which the answers to it will come."""

    def __init__(self, op: Op[None]) -> None:
        self.op = op
        self.step: Step = next(op)
        self.line: Line | None = None
        self.ends = math.inf

    def drop(self) -> None:
        """Forget it all."""
        self.op.close()
        if self.line is not None:
            self.line.drop()


class Leading:
    """Lets threads wait, and the first of them lead."""

    def __init__(self, driver: Sender) -> None:
        self._driver = driver
        self.closed = False
        self._waits: dict[int, Waiter] = {}
        self._purgatory = Purgatory(Timer())  # no operation is timed: each thread knows its own deadline

    def wait(self, waiter: Waiter) -> None:
        """Return when *waiter* is done."""
        waiting, clock = waiter.state.waiting, waiter.state.clock
        if self.closed:
            raise ClosedError(WHILE_WAITING)
        event = Event()
        waiter.wake = event.set
        waiting.join(waiter, self._purgatory, None)
        self._waits[get_ident()] = waiter
        try:
            while not waiter.done:
                if waiting.lead(waiter):
                    self._lead(waiting, waiter)
                elif event.wait(max(SOON, waiter.deadline - clock.monotonic())):
                    event.clear()
                else:
                    waiting.expire(waiter)
        finally:
            del self._waits[get_ident()]
            waiter.cancel()
            if orphan := waiting.resign(waiter):
                orphan.drop()

    def recall(self, thread: int) -> None:
        """End the wait of another *thread*, if it waits, as at its deadline.

        What it waits on may only just have been sent, and cannot be ended yet: call again until the thread is back.
        """
        waiter = self._waits.get(thread)
        if waiter is None:
            return
        waiting = waiter.state.waiting
        waiter.deadline = min(waiter.deadline, waiter.state.clock.monotonic())
        waiter.wake()
        turn: Turn | None = waiting.turn
        line = turn.line if turn else None
        if waiting.led_by(waiter) and line is not None:
            self._driver.unblock(line)

    def _lead(self, waiting: Waiting, waiter: Waiter) -> None:
        try:
            while not waiter.done:
                self._advance(waiting, waiter)
            while waiting.turn is not None and not waiting.waiters():
                self._advance(waiting, waiter)
        except BaseException:
            _end(waiting)
            waiting.release()
            raise

    def _advance(self, waiting: Waiting, leader: Waiter) -> None:
        """Take the turn as far as it goes now: to its next step, to its end, or to the leader's deadline."""
        turn = waiting.turn
        try:
            if turn is None:
                waiting.turn = Turn(pump(leader.state))
            elif not isinstance(turn.step, Armed):
                turn.step = turn.op.send(self._driver.perform(turn.step))
            elif turn.line is None and leader.done:
                _end(waiting)  # nobody is left whom it could serve, and nothing was sent
            elif self._answered(turn, turn.step, leader):
                answers, turn.line = turn.line.answers, None
                turn.step = turn.op.send(answers)
        except (Refused, Unanswered) as failure:
            turn.line = None
            self._fail(waiting, turn, failure)
        except StopIteration:
            waiting.turn = None

    def _fail(self, waiting: Waiting, turn: Turn, failure: Exception) -> None:
        try:
            turn.step = turn.op.throw(failure)
        except StopIteration:
            waiting.turn = None

    def _answered(self, turn: Turn, step: Armed, leader: Waiter) -> bool:
        """Whether the armed look is answered. Ends its wait when something is due; gives up when no answer comes."""
        clock = leader.state.clock
        if turn.line is None:
            turn.line = self._driver.arm(step)
            turn.ends = clock.monotonic() + turn.line.limit
        line, now = turn.line, clock.monotonic()
        if now >= turn.ends:
            line.drop()
            raise Unanswered("no answer to a read that waits", sent=True)
        if not leader.done and now >= leader.deadline and step.waiting.expire(leader):
            return False
        until = now if leader.done else min(step.due, leader.deadline)
        if now < until:
            return line.ready(min(until, turn.ends) - now)
        if line.ready(0):
            return True
        self._driver.unblock(line)
        pause, line.pause = line.pause, min(2 * line.pause, LATER)
        return line.ready(pause)


def _end(waiting: Waiting) -> None:
    turn, waiting.turn = waiting.turn, None
    if turn is not None:
        turn.drop()


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

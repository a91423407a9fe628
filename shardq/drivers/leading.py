"""How blocked threads of a client wait on a queue: the leader does the I/O for all, and the others wait for it.

The first thread that waits becomes the leader, so a message for it need not go to another thread. When it leaves, the
next waiter becomes the leader. The pending read stays, and the new leader waits for its answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import get_ident
from typing import Any, Protocol, cast

from shardq.drivers.failures import CONNECTION_ERRORS, demoted, unanswered
from shardq.drivers.links import CLOSED, Link, Links
from shardq.drivers.wire import CLOSED_WHILE_WAITING, MAX_PAUSE, MIN_PAUSE, Command, number_of, told
from shardq.errors import ClosedError
from shardq.ops.queue.steps import Armed, Op, Refused, Step, Unanswered, Wait
from shardq.ops.read.waiting import ReadWaiter, Waiting
from shardq.timing import Purgatory, Timer


class LeadingSender(Protocol):
    """The part of the driver that is used here."""

    def perform(self, step: Step) -> Any:
        """Do what *step* says, and return its reply."""

    def arm(self, step: Armed) -> PendingRead:
        """Send an armed read, and return the connection on which its answers will come."""

    def unblock(self, pending: PendingRead) -> None:
        """End the blocking wait of a pending read."""


class PendingRead:
    """A link to *address* for an armed read, to whose *commands* the answers will come within *limit* seconds.

    `server` is the address of the other end of its socket. (A name may come to mean another server.)
    """

    def __init__(
        self,
        links: Links,
        link: Link,
        commands: tuple[Command, ...],
        limit: float,
        closed: Callable[[], bool],
        address: Any = None,
    ) -> None:
        self._links, self._link, self._count, self._closed = links, link, len(commands), closed
        self.limit, self.address, self.server = limit, address, link.peer
        self.answers: list[Any] = []
        self.pause = MIN_PAUSE

    @property
    def number(self) -> int | None:
        """The id that the server gave the connection; None until that answer has come."""
        known = self._link.number
        return number_of(self.answers) if known is None else known

    def ready(self, seconds: float) -> bool:
        """Return whether all answers have come. Wait up to *seconds* for each."""
        if self._closed():
            self.drop()
            raise ClosedError(CLOSED_WHILE_WAITING)
        try:
            if not self._link.gather(self.answers, self._count, seconds):
                return False
        except (*CONNECTION_ERRORS, *CLOSED) as error:
            self.drop()
            raise unanswered(error) from error
        except BaseException:
            self.drop()
            raise
        self._release()
        return True

    def _release(self) -> None:
        self._link.number = self.number  # the next armed read need not ask
        if self._closed() or not self._link.is_clean():
            self.drop()
        else:
            self._links.give(self._link)
        if demoted(self.answers):
            self._links.drop_idle()

    def drop(self) -> None:
        """Close the link. The server then forgets a read that still waits."""
        self._links.drop(self._link)


class PumpRun:
    """A running pump: its current step, and the pending read if that step is an armed read.

    The pending read is given up at local time `until`.
    """

    def __init__(self, op: Op[None]) -> None:
        self.op = op
        self.step: Step = next(op)
        self.pending: PendingRead | None = None
        self.until = math.inf

    def cancel(self) -> None:
        """End the pump, and close the pending read."""
        self.op.close()
        if self.pending is not None:
            self.pending.drop()


class Leading:
    """Lets threads wait, and makes the first of them the leader."""

    def __init__(self, driver: LeadingSender) -> None:
        self._driver = driver
        self.closed = False
        self._waits: dict[int, ReadWaiter] = {}
        self._purgatory = Purgatory(Timer())  # the timer is not used: each thread knows when its own wait ends

    def wait(self, step: Wait) -> None:
        """Wait until the waiter of *step* is done."""
        waiter, waiting = step.waiter, step.waiter.waiting
        if self.closed:
            raise ClosedError(CLOSED_WHILE_WAITING)
        woken: SimpleQueue[None] = SimpleQueue()  # all C, where an Event is made of Python
        waiter.wake = partial(woken.put, None)
        waiting.join(waiter, self._purgatory, None)
        self._waits[get_ident()] = waiter
        try:
            while not waiter.done:
                if waiting.lead(waiter):
                    self._lead(step)
                else:
                    try:
                        woken.get(timeout=max(MIN_PAUSE, waiter.until - waiting.clock.monotonic()))
                    except Empty:
                        waiting.expire(waiter)
        finally:
            del self._waits[get_ident()]
            # In this order: one who has ended may not be woken as the next leader.
            waiter.cancel()
            waiting.resign(waiter)

    def recall(self, thread: int) -> None:
        """End the wait of another *thread*, if it waits, as if its time were up.

        If the thread has only just sent its read, the wait cannot be ended yet: call this again until it has returned.
        """
        waiter = self._waits.get(thread)
        if waiter is None:
            return
        waiting = waiter.waiting
        waiter.until = min(waiter.until, waiting.clock.monotonic())
        # A thread that does not lead waits for its event; the leader waits at the server, and gets the news there.
        waiter.wake()
        run = _run_of(waiting)
        pending = run.pending if run else None
        if waiting.led_by(waiter) and pending is not None:
            self._driver.unblock(pending)

    def _lead(self, step: Wait) -> None:
        waiter, waiting = step.waiter, step.waiter.waiting
        try:
            while not waiter.done:
                self._advance(step)
            # Nobody waits any more, but what was granted to those who left must go back before the leader leaves.
            while waiting.pump is not None and not waiting.waiters():
                self._advance(step)
        except BaseException:
            # The others wait for a pump that nobody runs: each reads by itself from here on.
            waiting.stop()
            waiting.release()
            raise

    def _advance(self, step: Wait) -> None:
        """Run the pump until its next step, its end, or the time when the leader, the waiter of *step*, gives up."""
        waiting = step.waiter.waiting
        run = _run_of(waiting)
        try:
            if run is None:
                waiting.pump = PumpRun(step.pump(step.state))
            else:
                self._go_on(waiting, run, step.waiter)
        except StopIteration:
            waiting.pump = None

    def _go_on(self, waiting: Waiting, run: PumpRun, leader: ReadWaiter) -> None:
        try:
            # The leader performs all steps but the armed read, for which it waits no longer than until its own end.
            if not isinstance(run.step, Armed):
                run.step = run.op.send(self._driver.perform(run.step))
            elif run.pending is None and leader.done:
                waiting.stop()  # no waiter is left, and nothing was sent
            elif (answers := self._answers(run, run.step, leader)) is not None:
                run.pending = None
                run.step = run.op.send(answers)
        except (Refused, Unanswered) as failure:
            run.pending = None
            run.step = run.op.throw(failure)

    def _answers(self, run: PumpRun, step: Armed, leader: ReadWaiter) -> list[Any] | None:
        """Return the answers to the armed read; None if they have not come yet. Unanswered if they are overdue.

        When there is a reason to read again, end the blocking wait, so that the server runs the read.
        """
        clock = leader.waiting.clock
        if run.pending is None:
            run.pending = self._driver.arm(step)
            run.until = clock.monotonic() + run.pending.limit
        pending, now = run.pending, clock.monotonic()
        if now >= run.until:
            pending.drop()
            raise Unanswered("no answer to a blocked read", sent=True)
        # With others in line the leader may go at once; alone it stays for the answer, which is its last read.
        if not leader.done and now >= leader.until and step.waiting.expire(leader):
            return None
        wake_at = now if leader.done else min(step.wake_at, leader.until)
        if now < wake_at:
            ready = pending.ready(min(wake_at, run.until) - now)
        elif not (ready := pending.ready(0)):
            self._driver.unblock(pending)
            # The server may not have read the blocking command yet, so the news is sent again, less and less often.
            pause, pending.pause = pending.pause, min(2 * pending.pause, MAX_PAUSE)
            ready = pending.ready(pause)
        return told(step, pending.answers) if ready else None


def _run_of(waiting: Waiting) -> PumpRun | None:
    return cast("PumpRun | None", waiting.pump)  # a client has one driver, which made the pump

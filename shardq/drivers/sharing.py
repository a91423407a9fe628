"""How threads share calls: the first one makes its call at once, and those who come meanwhile wait for the next call.

One of the waiting threads leads, on behalf of all: a thread that has its result goes its way, and no other thread is
needed. One call at a time is best, since the calls of several threads would only compete for the interpreter.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from shardq.clock import Clock
from shardq.drivers.permits import MAX_WAIT, MIN_TRY
from shardq.errors import ShardqError
from shardq.ops.queue.steps import Call, Op, Refused, Sendable, Sleep, Step, Unanswered, Underreplicated
from shardq.ops.queue.together import run_together
from shardq.ops.sharing.caller import Caller, Phase, own
from shardq.ops.sharing.coalescing import CallPart, Coalescer, alone
from shardq.ops.sharing.shared_call import SharedCall

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")
Turns: TypeAlias = Generator[bool, None, None]
PATIENCE: Final = 0.1
"""Seconds that a caller waits for a call that is under way, before it makes another call at the same time."""

MAX_CALLS_UNDER_WAY: Final = 4
"""Calls of one coalescer under way."""

FAILURES: Final = (Refused, Unanswered, Underreplicated)


class SharingSender(Protocol):
    """The part of the driver that is used here."""

    def call(self, call: Sendable) -> Any:
        """Make one try of a call, and return its reply."""

    def run(self, op: Op[Any]) -> Any:
        """Run an operation, and return its result."""

    def perform(self, step: Step) -> Any:
        """Do what *step* says, and return its reply."""

    def owner(self, key: str) -> Any:
        """Return what tells apart the nodes that own keys."""


class Sharing:
    """Lets the threads of a client share calls."""

    def __init__(self, driver: SharingSender, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock

    def run(self, coalescer: Coalescer[I, R], item: I, until: float) -> R:
        """Make a call for *item* on *coalescer*, alone or with others. Return its result, or raise its error."""
        if not coalescer.enter():
            return self._together(coalescer, item, until)
        verb = coalescer.verb
        try:
            tried = verb.attempt((item,), until)
            if tried is None:
                return self._finish(verb.op((item,), until, None))
            try:
                reply = self._driver.call(tried.sendable)
            except FAILURES as failure:
                return self._finish(verb.op((item,), until, tried), tried.call, failure)
            except BaseException:
                verb.drop(tried)
                raise
            results = verb.results(tried, reply)
            if results is None:
                return self._finish(verb.op((item,), until, tried), tried.call, reply)
            result = results[0]
            return own(result) if isinstance(result, Exception) else result
        except Exception:
            raise
        except BaseException:  # such as KeyboardInterrupt
            verb.doubt(item)
            raise
        finally:
            coalescer.leave()

    def leave(self, coalescer: Coalescer[Any, Any]) -> None:
        """End what `coalescer.enter()` has begun."""
        coalescer.leave()

    def _finish(self, op: Op[Sequence[R | Exception]], tried: Call | None = None, outcome: Any = None) -> R:
        """Run *op* for one caller. The *outcome* of its first step is known if that is the call that was tried."""
        try:
            step = next(op)
            outcome = self._outcome(step) if step is not tried else outcome
            while True:
                step = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
                outcome = self._outcome(step)
        except StopIteration as done:
            (result,) = done.value
            return own(result)  # type: ignore[no-any-return]
        finally:
            op.close()

    def _together(self, coalescer: Coalescer[I, R], item: I, until: float) -> R:
        # A lock that is held: to wait for its release is the cheapest way in which a thread can be woken.
        ticket = Lock()
        ticket.acquire()
        caller: Caller[I, R] = Caller(item, until, partial(_release, ticket))
        # One call at a time is best while it lasts less than PATIENCE: those who come meanwhile share the next one.
        if coalescer.join(caller, 1):
            self.lead(coalescer, caller)
        try:
            while caller.phase is not Phase.ENDED:
                self._wait(coalescer, caller, ticket)
                if caller.phase is Phase.LEADING:
                    self.lead(coalescer, caller)
        except BaseException:  # such as KeyboardInterrupt: only this caller leaves
            self._abandon(coalescer, caller)
            raise
        return own(caller.result)

    def run_all(self, parts: Sequence[CallPart], until: float) -> list[Any]:
        """Do as `run` for all *parts* at once. Return for each its result or its error.

        The calls that this thread makes alone go out together. If there are others, it waits or leads, too.
        """
        if len(parts) == 1:
            try:
                return [self.run(parts[0].coalescer, parts[0].item, until)]
            except ShardqError as error:
                return [error]
        ticket = Lock()
        ticket.acquire()
        callers: list[tuple[CallPart, Caller[Any, Any]]] = []

        def join(part: CallPart) -> Caller[Any, Any]:
            caller: Caller[Any, Any] = Caller(part.item, until, partial(_release, ticket))
            callers.append((part, caller))
            part.coalescer.join(caller, 1)
            return caller

        patient = self._clock.monotonic() + PATIENCE
        outcomes: list[Any] = []
        turns = [self._turns(run_together([alone(part, until, self.leave, join) for part in parts]), outcomes)]
        try:
            while turns or any(caller.phase is not Phase.ENDED for _, caller in callers):
                turns += self._lead_all([each for each in callers if each[1].phase is Phase.LEADING])
                if turns:
                    turns = [turn for turn in turns if next(turn, False)]
                    self._look_round(callers, patient)
                else:
                    self._wait_at([each for each in callers if each[1].phase is not Phase.ENDED], until, ticket)
        except BaseException:  # such as KeyboardInterrupt: only this caller leaves
            for turn in turns:
                turn.close()
            for part, caller in callers:
                self._abandon(part.coalescer, caller)
            raise
        return [each.result if isinstance(each, Caller) else each for each in outcomes]

    def _look_round(self, callers: Sequence[tuple[CallPart, Caller[Any, Any]]], patient: float) -> None:
        """Do as `_wait` for those who wait while this thread makes calls elsewhere. It is *patient* for a while."""
        if callers and self._clock.monotonic() >= patient:
            for part, caller in callers:
                if caller.phase is Phase.WAITING:
                    self._look_up(part.coalescer, caller, waiting=True)

    def _lead_all(self, leading: Sequence[tuple[CallPart, Caller[Any, Any]]]) -> list[Turns]:
        """Return what makes the calls of all who lead, those of each node together: none waits until another ends."""
        nodes: dict[Any, list[Op[None]]] = {}
        for part, caller in leading:
            nodes.setdefault(self._driver.owner(part.key), []).append(self._steps(part.coalescer, caller))
        return [self._turns(run_together(ops), []) for ops in nodes.values()]

    def _turns(self, op: Op[list[Any]], results: list[Any]) -> Turns:
        """Perform a step of *op* each time. In the end, *results* has what it returned."""
        outcome = None
        with closing(op):
            try:
                while True:
                    step = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
                    outcome = self._outcome(step)
                    yield True
            except StopIteration as done:
                results += done.value

    def _abandon(self, coalescer: Coalescer[I, R], caller: Caller[I, R]) -> None:
        """Let *caller* leave, whose thread was interrupted."""
        if coalescer.give_up(caller):
            return
        if caller.phase is Phase.LEADING:
            self._pass_on(coalescer, caller)
        else:
            coalescer.verb.doubt(caller.item)  # it has ended, but nobody knows it yet

    def _wait(self, coalescer: Coalescer[I, R], caller: Caller[I, R], ticket: Any) -> None:
        """Wait until *caller* has ended or must lead; or lead another call if one takes long; or give up."""
        waiting = caller.phase is Phase.WAITING
        if not self._woken(ticket, caller.until, waiting=waiting):
            self._look_up(coalescer, caller, waiting)

    def _wait_at(self, left: Sequence[tuple[CallPart, Caller[Any, Any]]], until: float, ticket: Any) -> None:
        """Do as `_wait` at the coalescers of all who are *left*."""
        waiting = [caller.phase is Phase.WAITING for _, caller in left]
        if not self._woken(ticket, until, waiting=any(waiting)):
            for (part, caller), waited in zip(left, waiting, strict=True):
                self._look_up(part.coalescer, caller, waited)

    def _woken(self, ticket: Any, until: float, *, waiting: bool) -> bool:
        left = max(0.0, until - self._clock.monotonic()) + (0.0 if waiting else MIN_TRY)
        return ticket.acquire(timeout=min(left, PATIENCE if waiting else MAX_WAIT))  # type: ignore[no-any-return]

    def _look_up(self, coalescer: Coalescer[I, R], caller: Caller[I, R], waiting: bool) -> None:
        """Give up if the time of *caller* is up; or lead if it was *waiting* and a call takes long."""
        if self._clock.monotonic() >= caller.until + (0.0 if caller.phase is Phase.WAITING else MIN_TRY):
            coalescer.give_up(caller)
        elif waiting:
            coalescer.step_forward(caller, MAX_CALLS_UNDER_WAY)

    def lead(self, coalescer: Coalescer[I, R], leader: Caller[I, R]) -> None:
        """Make the call that *leader* has taken over, or the next one, for all who wait."""
        steps, outcome = self._steps(coalescer, leader), None
        with suppress(StopIteration):
            while True:
                step = steps.send(outcome)
                try:
                    outcome = self._outcome(step)
                except BaseException as error:  # noqa: BLE001 (the operation knows whom it concerns)
                    steps.throw(error)

    def _steps(self, coalescer: Coalescer[I, R], leader: Caller[I, R]) -> Op[None]:
        """Return the operation by which *leader* makes a call for all who wait."""
        shared = coalescer.lead(leader)
        try:
            while (step := shared.step()) is not None:
                try:
                    outcome = yield self._bounded(step, leader)
                except FAILURES as failure:
                    outcome = failure
                shared.answer(outcome)
                # The leader's time is up, but the call continues for the others: one of them takes it over.
                if not shared.ended and (leader.phase is Phase.ENDED or self._clock.monotonic() >= leader.until):
                    coalescer.give_up(leader)
                    self._hand_over(coalescer, shared)
                    return
        except Exception as error:  # noqa: BLE001 (such as ClosedError; the callers get it)
            shared.fail(error)
        except BaseException:  # such as KeyboardInterrupt, and GeneratorExit where a batch of calls fails
            # It may have been sent. The next leader repeats it as it is, and Redis recognizes it.
            shared.answer(Unanswered("the call was interrupted", sent=True))
            coalescer.give_up(leader)
            self._hand_over(coalescer, shared)
            raise
        # First the place, then the callers: one who is woken and calls again must not find this call still under way.
        coalescer.leave()
        shared.wake(leader)
        self._give_back(shared)

    def _hand_over(self, coalescer: Coalescer[I, R], shared: SharedCall[I, R]) -> None:
        heir = shared.heir()
        if heir is not None:
            heir.wake()
            return
        shared.step()  # nobody is left: this closes it
        coalescer.leave()
        shared.wake()
        self._give_back(shared)

    def _give_back(self, shared: SharedCall[Any, Any]) -> None:
        """Give back what nobody got. A failure is ignored, since leases end by themselves."""
        if shared.unclaimed is not None:
            with suppress(ShardqError):
                self._driver.run(shared.unclaimed)

    def _pass_on(self, coalescer: Coalescer[I, R], leader: Caller[I, R]) -> None:
        """Let another caller lead in place of *leader*, appointed just now."""
        shared = coalescer.lead(leader)
        coalescer.give_up(leader)
        self._hand_over(coalescer, shared)

    def _bounded(self, step: Step, leader: Caller[Any, Any]) -> Step:
        """Return *step*, so that it does not take longer than its leader has time."""
        if isinstance(step, Call):
            step.until = min(step.until, leader.until)
        elif isinstance(step, Sleep):
            return Sleep(max(0.0, min(step.seconds, leader.until - self._clock.monotonic())))
        return step

    def _outcome(self, step: Step) -> Any:
        try:
            return self._driver.perform(step)
        except FAILURES as failure:
            return failure


def _release(ticket: Any) -> None:
    with suppress(RuntimeError):  # it was released before, and its caller has not looked yet
        ticket.release()

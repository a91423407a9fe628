"""How tasks share calls: the first one makes its call at once, and those who come meanwhile share the next ones.

A shared call runs in a task of its own, so a caller that is cancelled ends only its own wait. Such a task starts in the
next turn of the event loop, so all callers of one turn share a call. Many callers are kept in two calls that take
turns: Redis works for the one half while this process works for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from shardq.clock import Clock
from shardq.drivers.permits import MIN_TRY
from shardq.drivers.sharing import FAILURES, MAX_CALLS_UNDER_WAY, PATIENCE
from shardq.errors import ClosedError, ShardqError
from shardq.ops.queue.steps import Call, Op, Sendable, Sleep, Step
from shardq.ops.queue.together import run_together
from shardq.ops.sharing.caller import Caller, must_tell, own, posted
from shardq.ops.sharing.coalescing import CallPart, Coalescer, alone
from shardq.ops.sharing.shared_call import SharedCall
from shardq.timing import Callback, LoopTimer

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")
CLOSE_TIMEOUT: Final = 5.0


class AsyncSharingSender(Protocol):
    """The part of the driver that is used here."""

    async def call(self, call: Sendable) -> Any:
        """Make one try of a call, and return its reply."""

    async def run(self, op: Op[Any]) -> Any:
        """Run an operation, and return its result."""


class AsyncSharing:
    """Lets the tasks of a client share calls."""

    def __init__(self, driver: AsyncSharingSender, timer: LoopTimer, clock: Clock) -> None:
        self._driver = driver
        self._timer = timer
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarms: dict[Coalescer[Any, Any], tuple[float, Callback]] = {}

    async def run(self, coalescer: Coalescer[I, R], item: I, until: float) -> R:
        """Make a call for *item* on *coalescer*, alone or with others. Return its result, or raise its error."""
        if coalescer.enter():
            try:
                return await self._alone(coalescer, item, until)
            except asyncio.CancelledError:
                coalescer.verb.doubt(item)
                raise
            finally:
                self.leave(coalescer)
        return await self._together(coalescer, item, until)

    async def run_all(self, parts: Sequence[CallPart], until: float) -> list[Any]:
        """Do as `run` for all *parts* at once. Return for each its result or its error.

        The calls that this caller makes alone go out together; meanwhile, it waits at those coalescers that are busy.
        """
        if len(parts) == 1:
            try:
                return [await self.run(parts[0].coalescer, parts[0].item, until)]
            except ShardqError as error:
                return [error]
        callers: list[tuple[CallPart, Caller[Any, Any], asyncio.Future[None]]] = []

        def join(part: CallPart) -> Caller[Any, Any]:
            future = asyncio.get_running_loop().create_future()
            caller: Caller[Any, Any] = Caller(part.item, until, partial(_resolve, future))
            callers.append((part, caller, future))
            self._add(part.coalescer, caller)
            return caller

        try:
            outcomes = await self._driver.run(run_together([alone(part, until, self.leave, join) for part in parts]))
            # By now those that went alone have ended; the others are in calls with callers that were there before.
            for _, _, future in callers:
                await future
        except BaseException:
            for part, caller, _ in callers:
                self._abandon(part.coalescer, caller)
            raise
        return [each.result if isinstance(each, Caller) else each for each in outcomes]

    def post(
        self,
        coalescer: Coalescer[I, R],
        item: I,
        until: float,
        lane: Hashable,
        tell: Callable[[R | Exception], object],
    ) -> None:
        """Make a shared call for *item*, after those of its *lane*. Nobody waits: `tell` gets its result or error."""
        caller: Caller[I, R] = posted(item, until, lane)
        caller.wake = partial(_tell, caller, tell)
        self._add(coalescer, caller)

    def leave(self, coalescer: Coalescer[Any, Any]) -> None:
        """End what `coalescer.enter()` has begun."""
        # A task continues with those who wait: the caller that leaves has its result, and is not held up by others.
        if coalescer.done(MAX_CALLS_UNDER_WAY):
            self._start(coalescer)

    async def aclose(self) -> None:
        """Wait a while for the calls under way, which end since the connections were closed."""
        for _, alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT)

    async def _alone(self, coalescer: Coalescer[I, R], item: I, until: float) -> R:
        verb = coalescer.verb
        tried = verb.attempt((item,), until)
        if tried is None:
            return await self._finish(verb.op((item,), until, None))
        try:
            reply = await self._driver.call(tried.sendable)
        except FAILURES as failure:
            return await self._finish(verb.op((item,), until, tried), tried.call, failure)
        except BaseException:
            verb.drop(tried)  # the next call of its sequence has a higher number: a late copy of this one does nothing
            raise
        results = verb.results(tried, reply)
        if results is None:
            return await self._finish(verb.op((item,), until, tried), tried.call, reply)
        result = results[0]
        return own(result) if isinstance(result, Exception) else result

    async def _finish(self, op: Op[Sequence[R | Exception]], tried: Call | None = None, outcome: Any = None) -> R:
        """Run *op* for one caller. The *outcome* of its first step is known if that is the call that was tried."""
        try:
            step = next(op)
            outcome = await self._outcome(step) if step is not tried else outcome
            while True:
                step = op.throw(outcome) if isinstance(outcome, Exception) else op.send(outcome)
                outcome = await self._outcome(step)
        except StopIteration as done:
            (result,) = done.value
            return own(result)  # type: ignore[no-any-return]
        finally:
            op.close()

    async def _together(self, coalescer: Coalescer[I, R], item: I, until: float) -> R:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        caller: Caller[I, R] = Caller(item, until, partial(_resolve, future))
        self._add(coalescer, caller)
        try:
            await future
        except asyncio.CancelledError:
            self._abandon(coalescer, caller)
            raise
        return own(caller.result)

    def _add(self, coalescer: Coalescer[Any, Any], caller: Caller[Any, Any]) -> None:
        """Let *caller* wait for a call, until its time is up."""
        if coalescer.add(caller, MAX_CALLS_UNDER_WAY):
            self._start(coalescer)
        if coalescer not in self._alarms or caller.until < self._alarms[coalescer][0]:
            self._watch(coalescer, min(caller.until, self._clock.monotonic() + PATIENCE))

    def _abandon(self, coalescer: Coalescer[Any, Any], caller: Caller[Any, Any]) -> None:
        """Let *caller* leave, whose task was cancelled."""
        if not coalescer.give_up(caller):
            coalescer.verb.doubt(caller.item)  # it has ended, but nobody knows it yet

    def _start(self, coalescer: Coalescer[Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(coalescer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, coalescer: Coalescer[Any, Any]) -> None:
        """Make one shared call. A caller that cannot share it may start another one."""
        try:
            if (shared := coalescer.take(halved=True)) is not None:
                if coalescer.may_start(MAX_CALLS_UNDER_WAY):
                    self._start(coalescer)
                await self._make(shared)
        finally:
            if coalescer.done(MAX_CALLS_UNDER_WAY):
                self._start(coalescer)

    async def _make(self, shared: SharedCall[Any, Any]) -> None:
        try:
            while (step := shared.step()) is not None:
                shared.answer(await self._outcome(step))
        except Exception as error:  # noqa: BLE001 (such as ClosedError; the callers get it)
            shared.fail(error)
        except BaseException:
            shared.fail(ClosedError("the event loop was stopped while this call was under way"))
            raise
        finally:
            shared.wake()
        if shared.unclaimed is not None:
            with suppress(ShardqError):  # leases end by themselves
                await self._driver.run(shared.unclaimed)

    async def _outcome(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        if not isinstance(step, Call):
            raise TypeError("the operations of shared calls only call and sleep")
        try:
            return await self._driver.call(step)
        except FAILURES as failure:
            return failure

    def _watch(self, coalescer: Coalescer[Any, Any], at: float) -> None:
        """Look after those who wait at that time: one entry of the wheel for each coalescer."""
        if coalescer in self._alarms:
            self._alarms.pop(coalescer)[1].cancel()
        self._alarms[coalescer] = at, self._timer.call_at(at, self._ring, coalescer)

    def _ring(self, coalescer: Coalescer[Any, Any]) -> None:
        """End the waits whose time is up, and let those who have waited long start another call."""
        self._alarms.pop(coalescer, None)
        now = self._clock.monotonic()
        for caller in coalescer.expire(now, MIN_TRY):
            caller.wake()
        if coalescer.may_start(MAX_CALLS_UNDER_WAY, at_once=True):
            self._start(coalescer)
        earliest = coalescer.earliest()
        if earliest is not None:
            self._watch(coalescer, min(max(earliest, now + 0.01), now + PATIENCE))


def _tell(caller: Caller[I, R], tell: Callable[[R | Exception], object]) -> None:
    if must_tell(caller):
        tell(caller.result)  # type: ignore[arg-type] # of a caller that has ended


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""Coalesced calls (group commit): requests for one verb that come while a call is under way share the next one.

A `Coalescer` is where the callers of one verb of one queue meet. A caller that finds nobody there makes its call at
once. The others wait, in the order in which they came; the leader takes all that wait, up to the bounds of one call,
and makes a `SharedCall` on behalf of them. How a caller waits is left to the drivers (`drivers/sharing.py`); this part
does no I/O. Each caller keeps its own deadline and its own result or error. Callers whose order matters have a lane
(`lanes.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeVar

from shardq.errors import OutcomeUnknown
from shardq.ops.queue.steps import Op
from shardq.ops.sharing.caller import Caller, Phase
from shardq.ops.sharing.lanes import Lanes
from shardq.ops.sharing.shared_call import SharedCall, nothing_sent
from shardq.ops.sharing.verb import Verb

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")
MIN_CALLERS_HALVED: Final = 4
"""Callers that wait from which on they are halved, so that two calls take turns."""


class CallPart(NamedTuple):
    """The request of a caller of several coalescers to one of them. `key` is a key of its queue, which a node owns."""

    coalescer: Coalescer[Any, Any]
    item: Any
    key: str


class Coalescer(Generic[I, R]):
    """The callers of one verb of one queue: those who wait, and how many calls are under way."""

    def __init__(self, verb: Verb[I, R]) -> None:
        self.verb = verb
        self.lock = Lock()
        self.calls = 0
        self.shared: set[SharedCall[I, R]] = set()
        self.starting = False
        self._waiting: deque[Caller[I, R]] = deque()
        self._lanes = Lanes()

    def enter(self) -> bool:
        """Return whether the caller may make its call alone, at once: nobody else is here. It must `leave` then."""
        with self.lock:
            if self.calls or self._waiting:
                return False
            self.calls = 1
            return True

    def join(self, caller: Caller[I, R], most: int) -> bool:
        """Let *caller* wait. Return whether it must lead instead, since fewer than *most* calls are under way."""
        with self.lock:
            # Those who wait already go first, also where one more call would be allowed.
            if self.calls < most and not self._waiting:
                self.calls += 1
                caller.phase = Phase.LEADING
                return True
            self._waiting.append(caller)
            return False

    def leave(self) -> None:
        """End a call that was under way. The caller who has waited longest leads next."""
        lanes: set[Hashable] = set()
        with self.lock:
            self.calls -= 1
            leader = self._next(lanes)
            if leader is None:
                return
            self.calls += 1
            if lanes:
                self._shared(leader, 1 + len(self._waiting), lanes)
            leader.phase = Phase.LEADING
        leader.wake()

    def step_forward(self, caller: Caller[I, R], most: int) -> bool:
        """Let *caller*, which waits, lead if fewer than *most* calls are under way. Return whether it leads."""
        with self.lock:
            if caller.phase is not Phase.WAITING or self.calls >= most:
                return False
            self._waiting.remove(caller)
            self.calls += 1
            caller.phase = Phase.LEADING
            return True

    def add(self, caller: Caller[I, R], most: int) -> bool:
        """Let *caller* wait. Return as `may_start`."""
        with self.lock:
            if caller.lane is None or self._lanes.may_queue(caller):
                self._waiting.append(caller)
            return self._may_start(most)

    def done(self, most: int) -> bool:
        """End a call that was under way. Return as `may_start`."""
        with self.lock:
            self.calls -= 1
            return self._may_start(most)

    def may_start(self, most: int, *, at_once: bool = False) -> bool:
        """Return whether somebody must start to `take`: callers wait, and fewer than *most* calls are under way.

        A call of few costs nearly as much as one of many. So while others run one starts only when half as many callers
        wait as the largest of these has, or *at_once*, when they have waited long.
        """
        with self.lock:
            return self._may_start(most, at_once=at_once)

    def _may_start(self, most: int, *, at_once: bool = False) -> bool:
        if self.starting or not self._waiting or self.calls >= most:
            return False
        if self.calls and not at_once:
            largest = max((len(shared.callers) for shared in self.shared), default=1)
            if 2 * len(self._waiting) < largest:
                return False
        self.calls += 1
        self.starting = True
        return True

    def take(self, *, halved: bool = False) -> SharedCall[I, R] | None:
        """Return a call for those who wait, as many as one call may have; None if nobody waits.

        A *halved* one is for half of them if no other call runs: while Redis works for these, the others make theirs.
        """
        lanes: set[Hashable] = set()
        with self.lock:
            self.starting = False
            first = self._next(lanes)
            if first is None:
                return None
            most = 1 + len(self._waiting)
            if halved and self.calls == 1 and most >= MIN_CALLERS_HALVED:
                most = (most + 1) // 2
            return self._shared(first, most, lanes)

    def lead(self, leader: Caller[I, R]) -> SharedCall[I, R]:
        """Return the call that *leader* has taken over, or a call for *leader* and those who wait."""
        with self.lock:
            taken_over: SharedCall[I, R] | None = leader.shared
            if taken_over is None:
                return self._shared(leader, 1 + len(self._waiting), set())
            leader.phase = Phase.IN_CALL
            return taken_over

    def _shared(self, first: Caller[I, R], most: int, lanes: set[Hashable]) -> SharedCall[I, R]:
        callers = self._like(first, most, lanes)
        shared = SharedCall(self.verb, callers, self.lock, partial(self._ended, lanes))
        for caller in callers:
            caller.phase, caller.shared = Phase.IN_CALL, shared
        self.shared.add(shared)
        return shared

    def _ended(self, lanes: set[Hashable], shared: SharedCall[I, R]) -> None:
        self.shared.discard(shared)
        if lanes:
            self._waiting.extendleft(reversed(self._lanes.end(lanes)))

    def _next(self, lanes: set[Hashable]) -> Caller[I, R] | None:
        while self._waiting:
            caller = self._waiting.popleft()
            if self._may_go(caller, lanes):
                return caller
        return None

    def _may_go(self, caller: Caller[I, R], lanes: set[Hashable]) -> bool:
        """Return whether *caller*, out of the line, may go into the call that has these *lanes*."""
        if caller.lane is None:
            return caller.phase is Phase.WAITING
        return self._lanes.may_go(caller, lanes)

    def _like(self, first: Caller[I, R], most: int, lanes: set[Hashable]) -> list[Caller[I, R]]:
        """Take those who can share a call with *first* out of those who wait, in order, until *most* are with it.

        Callers that have left are forgotten. The call has the *lanes*. (Callers of one lane are of one kind.)
        """
        if not self._waiting:
            return [first]
        verb, kind = self.verb, self.verb.kind(first.item)
        count, room = verb.bounds()
        count, room = min(count, most), room - verb.weight(first.item)
        taken, others = [first], deque[Caller[I, R]]()
        while self._waiting:
            caller = self._waiting[0]
            weight = verb.weight(caller.item)
            if (len(taken) >= count or weight > room) and caller.phase is Phase.WAITING:
                break
            self._waiting.popleft()
            # Others keep their order among themselves, and lead or share the next call.
            if verb.kind(caller.item) != kind:
                others.append(caller)
            elif self._may_go(caller, lanes):
                taken.append(caller)
                room -= weight
        others.extend(self._waiting)
        self._waiting = others
        return taken

    def give_up(self, caller: Caller[I, R]) -> bool:
        """End the wait of *caller*, whose time is up or who has left. Its result is an error then.

        Return False if it has ended already, or must lead.
        """
        with self.lock:
            return self._give_up(caller)

    def _give_up(self, caller: Caller[I, R]) -> bool:
        if caller.phase in (Phase.ENDED, Phase.LEADING):
            return False
        shared = caller.shared
        caller.phase = Phase.ENDED
        caller.result = shared.timed_out() if shared else nothing_sent()
        if isinstance(caller.result, OutcomeUnknown):
            self.verb.doubt(caller.item)
        return True

    def expire(self, now: float, late: float) -> list[Caller[I, R]]:
        """End the waits whose time is up at *now*. A call under way has *late* seconds more. Return who was ended."""
        with self.lock:
            waiting = [caller for caller in (*self._waiting, *self._lanes) if caller.until <= now]
            calling = [each for shared in self.shared for each in shared.callers if each.until + late <= now]
            return [caller for caller in (*waiting, *calling) if self._give_up(caller)]

    def earliest(self) -> float | None:
        """Return when the first of those who wait or are in a call gives up; None if there is nobody."""
        with self.lock:
            calling = (caller for shared in self.shared for caller in shared.callers)
            times = [
                caller.until for caller in (*self._waiting, *self._lanes, *calling) if caller.phase is not Phase.ENDED
            ]
            return min(times, default=None)


def alone(
    part: CallPart,
    until: float,
    leave: Callable[[Coalescer[Any, Any]], None],
    join: Callable[[CallPart], Caller[Any, Any]],
) -> Op[Any]:
    """Return the operation of a caller who wants *part*: a call of its own if nobody else is there.

    It ends with a result or an error, and `leave`s. If somebody is there, it ends at once with the caller that
    `join`ed.
    """
    coalescer, item, _ = part
    if not coalescer.enter():
        return join(part)
    verb = coalescer.verb
    try:
        (result,) = yield from verb.op((item,), until, verb.attempt((item,), until))
        return result
    except Exception:
        raise
    except BaseException:  # such as KeyboardInterrupt, and GeneratorExit where the caller was interrupted
        verb.doubt(item)
        raise
    finally:
        leave(coalescer)

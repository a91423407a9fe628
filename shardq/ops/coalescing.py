"""Coalesced calls (group commit): what callers of one verb want while a call is under way rides in the next one.

A `Line` is where the callers of one verb of one queue meet. A caller that finds nobody there makes its call at once.
The others wait, in the order in which they came; whoever leads takes all that wait, up to the bounds of one call, and
makes a `SharedCall` on behalf of them. How a caller waits is left to the drivers (`drivers/sharing.py`); this part does
no I/O. Each caller keeps its own deadline and its own result or error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from threading import Lock
from typing import Any, Generic, TypeVar

from shardq.errors import BackendTimeout, OutcomeUnknown
from shardq.ops.steps import Call, Op, Refused, Step, Unanswered

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")
_NOTHING_DONE = frozenset({"open", "assignment"})
"""Scripts that look a queue up. Their replies say nothing about what the callers want."""


class Verb(ABC, Generic[I, R]):
    """What calls of one verb of one queue look like.

    The call of the common case is *tried* first. It is an object with the attribute `call`; what else it holds is the
    verb's own.
    """

    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """Return how many items one call may have, and how much they may weigh together."""

    @abstractmethod
    def weight(self, item: I) -> int:
        """Return how much an item weighs."""

    @abstractmethod
    def kind(self, item: I) -> Hashable:
        """Return what the items of one call have in common."""

    @abstractmethod
    def attempt(self, items: Sequence[I], until: float) -> Any:
        """Return the call of the common case; None if there is none, such as before the queue is open."""

    @abstractmethod
    def results(self, tried: Any, reply: Any) -> Sequence[R | Exception] | None:
        """Return the results that a *reply* of the common case has; None if the operation must look at the reply."""

    @abstractmethod
    def drop(self, tried: Any) -> None:
        """Let go of a call that was given up."""

    @abstractmethod
    def op(self, items: Sequence[I], until: float, tried: Any) -> Op[Sequence[R | Exception]]:
        """Return the operation for everything that is not common. Its first step is the call of *tried*, if given."""

    def doubt(self, item: I) -> None:
        """Note that the caller of *item* was told that it is unknown whether its call happened."""


class Phase(Enum):
    """Where a caller's entry is."""

    WAITING = "waits for a call"
    LEADING = "must make the next call"
    RIDING = "is in a call"
    ENDED = "has its result, or left"


class Entry(Generic[I, R]):
    """One caller's part: its `item`, until when it waits, and once it has ended, its `result`, which may be an error.

    The driver sets `wake`, which wakes the caller. A `shared` call is set while the entry is in one.
    """

    __slots__ = ("item", "phase", "result", "shared", "until", "wake")

    def __init__(self, item: I, until: float, wake: Callable[[], object]) -> None:
        self.item, self.until, self.wake = item, until, wake
        self.phase = Phase.WAITING
        self.result: R | Exception | None = None
        self.shared: SharedCall[I, R] | None = None


class Line(Generic[I, R]):
    """The callers of one verb of one queue: those who wait, and how many calls are under way."""

    def __init__(self, verb: Verb[I, R]) -> None:
        self.verb = verb
        self.lock = Lock()
        self.calls = 0
        self.shared: set[SharedCall[I, R]] = set()
        self.starting = False
        self._waiting: deque[Entry[I, R]] = deque()

    def enter(self) -> bool:
        """Return whether the caller may make its call alone, at once: nobody else is here. It must `leave` then."""
        with self.lock:
            if self.calls or self._waiting:
                return False
            self.calls = 1
            return True

    def join(self, entry: Entry[I, R], most: int) -> bool:
        """Let *entry* wait. Return whether it must lead instead, since fewer than *most* calls are under way."""
        with self.lock:
            if self.calls < most and not self._waiting:
                self.calls += 1
                entry.phase = Phase.LEADING
                return True
            self._waiting.append(entry)
            return False

    def leave(self) -> None:
        """End a call that was under way. The caller who has waited longest leads next."""
        with self.lock:
            self.calls -= 1
            leader = self._next()
            if leader is None:
                return
            self.calls += 1
            leader.phase = Phase.LEADING
        leader.wake()

    def step_forward(self, entry: Entry[I, R], most: int) -> bool:
        """Let *entry*, which waits, lead if fewer than *most* calls are under way. Return whether it leads."""
        with self.lock:
            if entry.phase is not Phase.WAITING or self.calls >= most:
                return False
            self._waiting.remove(entry)
            self.calls += 1
            entry.phase = Phase.LEADING
            return True

    def add(self, entry: Entry[I, R], most: int) -> bool:
        """Let *entry* wait. Return whether somebody must start to `take`: fewer than *most* calls are under way."""
        with self.lock:
            self._waiting.append(entry)
            return self._may_start(most)

    def done(self, most: int) -> bool:
        """End a call that was under way. Return as `add`."""
        with self.lock:
            self.calls -= 1
            return bool(self._waiting) and self._may_start(most)

    def _may_start(self, most: int) -> bool:
        if self.starting or self.calls >= most:
            return False
        self.calls += 1
        self.starting = True
        return True

    def take(self) -> SharedCall[I, R] | None:
        """Return a call for those who wait, as many as one call may have; None if nobody waits."""
        with self.lock:
            self.starting = False
            first = self._next()
            return None if first is None else self._shared(first)

    def lead(self, leader: Entry[I, R]) -> SharedCall[I, R]:
        """Return the call that *leader* has taken over, or a call for *leader* and those who wait."""
        with self.lock:
            if leader.shared is None:
                return self._shared(leader)
            leader.phase = Phase.RIDING
            return leader.shared

    def _shared(self, first: Entry[I, R]) -> SharedCall[I, R]:
        entries = self._like(first)
        shared = SharedCall(self, entries)
        for entry in entries:
            entry.phase, entry.shared = Phase.RIDING, shared
        self.shared.add(shared)
        return shared

    def _next(self) -> Entry[I, R] | None:
        while self._waiting:
            entry = self._waiting.popleft()
            if entry.phase is Phase.WAITING:
                return entry
        return None

    def _like(self, first: Entry[I, R]) -> list[Entry[I, R]]:
        """Take those who can ride with *first* out of the line, in order. Who has left is forgotten."""
        if not self._waiting:
            return [first]
        verb, kind = self.verb, self.verb.kind(first.item)
        count, room = verb.bounds()
        room -= verb.weight(first.item)
        taken, others = [first], deque[Entry[I, R]]()
        while self._waiting:
            entry = self._waiting.popleft()
            if entry.phase is not Phase.WAITING:
                continue
            room -= verb.weight(entry.item)
            if len(taken) >= count or room < 0:
                self._waiting.appendleft(entry)
                break
            (taken if verb.kind(entry.item) == kind else others).append(entry)
        others.extend(self._waiting)
        self._waiting = others
        return taken

    def give_up(self, entry: Entry[I, R]) -> bool:
        """End the wait of *entry*, whose time is up or whose caller has left. Its result is an error then.

        Return False if it has ended already, or must lead.
        """
        with self.lock:
            return self._give_up(entry)

    def _give_up(self, entry: Entry[I, R]) -> bool:
        if entry.phase in (Phase.ENDED, Phase.LEADING):
            return False
        shared = entry.shared
        entry.phase = Phase.ENDED
        entry.result = shared.timed_out() if shared else BackendTimeout(f"{_LATE}; nothing was changed")
        if isinstance(entry.result, OutcomeUnknown):
            self.verb.doubt(entry.item)
        return True

    def expire(self, now: float, late: float) -> list[Entry[I, R]]:
        """End the waits whose time is up at *now*. A call under way has *late* seconds more. Return who was ended."""
        with self.lock:
            waiting = [entry for entry in self._waiting if entry.until <= now]
            riding = [each for shared in self.shared for each in shared.entries if each.until + late <= now]
            return [entry for entry in (*waiting, *riding) if self._give_up(entry)]

    def earliest(self) -> float | None:
        """Return when the first of those who wait or ride gives up; None if there is nobody."""
        with self.lock:
            riding = (entry for shared in self.shared for entry in shared.entries)
            times = [entry.until for entry in (*self._waiting, *riding) if entry.phase is not Phase.ENDED]
            return min(times, default=None)


_LATE = "no answer from Redis in time"


class SharedCall(Generic[I, R]):
    """One call on behalf of several callers: `step` says what to do next, and `answer` takes what came of it.

    As long as it is certain that nothing was executed, a caller that leaves takes its item away, and the call is made
    anew for the others. From then on the call is *fixed*: it is repeated as it is, so that Redis recognizes it.
    """

    def __init__(self, line: Line[I, R], entries: list[Entry[I, R]]) -> None:
        self.entries = entries
        self.ended = False
        self._line, self._verb = line, line.verb
        self._fixed = self._trying = False
        self._until = 0.0
        self._step: Step | None = None
        self._tried: Any = None
        self._op: Op[Sequence[R | Exception]] | None = None

    def step(self) -> Step | None:
        """Return what to do next; None if the call has ended, or everybody has left."""
        with self._line.lock:
            if self.ended:
                return None
            live = [entry for entry in self.entries if entry.phase is not Phase.ENDED]
            if not self._fixed and len(live) < len(self.entries):
                self.entries = live
                self._restart()
            if not live:
                self._close()
                return None
            self._trying = self._step is None or isinstance(self._step, Call)
        if self._step is None:
            self._begin()
        return self._step

    def answer(self, outcome: Any) -> None:
        """Take the reply to the last step, or the failure with which it ended."""
        failed = isinstance(outcome, Exception)
        step = self._step
        with self._line.lock:
            self._trying = False
            if isinstance(step, Call) and step.script.name not in _NOTHING_DONE:
                self._fixed = self._fixed or not _is_harmless(outcome)
        if self._op is None:
            results = None if failed else self._verb.results(self._tried, outcome)
            if results is not None:
                self._tried = None
                self._end(results)
                return
            self._op = self._general()
            next(self._op)  # the call that was just made
        try:
            self._step = self._op.throw(outcome) if failed else self._op.send(outcome)
        except StopIteration as done:
            self._end(done.value)
        except Exception as error:  # noqa: BLE001 (the callers get it)
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the call: everybody gets an error like *error*."""
        self._end([error] * len(self.entries))

    def heir(self) -> Entry[I, R] | None:
        """Return who goes on with this call when its leader leaves; None if everybody has left. It must be woken."""
        with self._line.lock:
            for entry in self.entries:
                if entry.phase is Phase.RIDING:
                    entry.phase = Phase.LEADING
                    return entry
            return None

    def wake(self, leader: Entry[I, R] | None = None) -> None:
        """Wake the callers, but for the *leader*, which makes the call itself."""
        for entry in self.entries:
            if entry is not leader:
                entry.wake()

    def timed_out(self) -> Exception:
        """Return the error for a caller that gives up now."""
        if self._fixed or self._trying:
            return OutcomeUnknown(f"{_LATE}; the call may have happened")
        return BackendTimeout(f"{_LATE}; nothing was changed")

    def _begin(self) -> None:
        self._until = max(entry.until for entry in self.entries)
        self._tried = self._verb.attempt([entry.item for entry in self.entries], self._until)
        if self._tried is not None:
            self._step = self._tried.call
        else:
            self._op = self._general()
            self._step = next(self._op)

    def _general(self) -> Op[Sequence[R | Exception]]:
        tried, self._tried = self._tried, None
        return self._verb.op([entry.item for entry in self.entries], self._until, tried)

    def _restart(self) -> None:
        """Forget the call that was made; the next step makes another one."""
        self._let_go()
        self._step = None

    def _let_go(self) -> None:
        if self._op is not None:
            self._op.close()
            self._op = None
        if self._tried is not None:
            self._verb.drop(self._tried)
            self._tried = None

    def _close(self) -> None:
        self._let_go()
        self.ended = True
        self._line.shared.discard(self)

    def _end(self, results: Sequence[R | Exception]) -> None:
        with self._line.lock:
            for entry, result in zip(self.entries, results, strict=True):
                if entry.phase is not Phase.ENDED:
                    entry.phase, entry.result = Phase.ENDED, result
            self._close()


def _is_harmless(outcome: Any) -> bool:
    """Return whether nothing was executed for certain."""
    return isinstance(outcome, Refused) or (isinstance(outcome, Unanswered) and not outcome.sent)


def own(result: R | Exception | None) -> R:
    """Return the result of one caller, or raise its error: a copy, since others may get the same one."""
    if isinstance(result, Exception):
        error = type(result).__new__(type(result), *result.args)
        error.__dict__.update(result.__dict__)
        raise error from result.__cause__
    return result  # type: ignore[return-value] # of an entry that has ended

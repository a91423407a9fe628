"""One call on behalf of several callers of one verb. No I/O: a driver does what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from shardq.errors import BackendTimeout, OutcomeUnknown
from shardq.ops.queue.steps import Call, Known, Op, Refused, Step, Unanswered, Withdrawn
from shardq.ops.sharing.caller import Caller, Phase
from shardq.ops.sharing.verb import Verb

I = TypeVar("I")  # noqa: E741 (an item: what a caller wants)
R = TypeVar("R")
_NOTHING_DONE: Final = frozenset({"open", "assignment", "facts", "knows"})
"""Scripts that look a queue up, or ask where a message goes. Their replies say nothing about what the callers want."""


_LATE_TEXT: Final = "no answer from Redis in time"


class SharedCall(Generic[I, R]):
    """One call on behalf of several callers: `step` says what to do next, and `answer` takes what came of it.

    Once it has ended, `unclaimed` gives back what nobody got. *lock* is that of the coalescer, and *on_end* is called
    with it.

    As long as it is certain that nothing was executed, a caller that leaves takes its item away, and the call is made
    again for the others. From then on the call is *fixed*: it is repeated as it is, so that Redis recognizes it.
    """

    def __init__(
        self,
        verb: Verb[I, R],
        callers: list[Caller[I, R]],
        lock: Lock,
        on_end: Callable[[SharedCall[I, R]], object],
    ) -> None:
        self.callers = callers
        self.ended = False
        self._verb, self._lock, self._on_end = verb, lock, on_end
        self._fixed = self._sent = False
        self._until = 0.0
        self._step: Step | None = None
        self._tried: Any = None
        self._first: Any = None
        self.unclaimed: Op[None] | None = None
        self._op: Op[Sequence[R | Exception]] | None = None

    def step(self) -> Step | None:
        """Return what to do next; None if the call has ended, or everybody has left."""
        with self._lock:
            if self.ended:
                return None
            live = [caller for caller in self.callers if caller.phase is not Phase.ENDED]
            # Those who left learned that nothing was sent, so their items may not be in the next try.
            if not self._fixed and len(live) < len(self.callers):
                self.callers = live
                self._restart()
            if not live:
                self._close()
                return None
            self._sent = False
        if self._step is None:
            self._begin()
        if isinstance(self._step, Call) and self._step.script.name not in _NOTHING_DONE:
            self._step.on_send = self._sending
        return self._step

    def answer(self, outcome: Any) -> None:
        """Take the reply to the last step, or the failure with which it ended."""
        if isinstance(outcome, Withdrawn):
            return  # the next step begins again
        failed = isinstance(outcome, Exception)
        step = self._step
        with self._lock:
            self._sent = False
            if isinstance(step, Call) and step.script.name not in _NOTHING_DONE:
                # From the first try on that may have happened, another set of items would be another call for Redis.
                self._fixed = self._fixed or not _is_harmless(outcome)
        if self._op is None:
            results = None if failed else self._verb.results(self._tried, outcome)
            if results is not None:
                self._tried = None
                self._end(results)
                return
            self._op = self._slow_path()
            next(self._op)  # the call that was just made
        try:
            self._step = self._op.throw(outcome) if failed else self._op.send(outcome)
            while isinstance(self._step, Known):
                self._tell(self._step)
                self._step = next(self._op)
        except StopIteration as done:
            self._end(done.value)
        except Exception as error:  # noqa: BLE001 (the callers get it)
            self.fail(error)

    def _tell(self, known: Known) -> None:
        """End the waits of those whose results are *known*."""
        results = {id(item): result for item, result in known.results}
        with self._lock:
            told = [each for each in self.callers if id(each.item) in results and each.phase is not Phase.ENDED]
            for caller in told:
                caller.phase, caller.result = Phase.ENDED, results[id(caller.item)]
        for caller in told:
            caller.wake()

    def fail(self, error: Exception) -> None:
        """End the call: everybody gets an error like *error*."""
        self._end([error] * len(self.callers))

    def heir(self) -> Caller[I, R] | None:
        """Return who continues this call when its leader leaves; None if everybody has left. It must be woken."""
        with self._lock:
            for caller in self.callers:
                if caller.phase is Phase.IN_CALL:
                    caller.phase = Phase.LEADING
                    return caller
            return None

    def wake(self, leader: Caller[I, R] | None = None) -> None:
        """Wake the callers, but for the *leader*, which makes the call itself."""
        for caller in self.callers:
            if caller is not leader:
                caller.wake()

    def timed_out(self) -> Exception:
        """Return the error for a caller that gives up now."""
        if self._fixed or self._sent:
            return OutcomeUnknown(f"{_LATE_TEXT}; the call may have happened")
        return nothing_sent()

    def _sending(self) -> None:
        """Note that the call is sent now; or withdraw it if somebody has left, since nothing was sent for them."""
        with self._lock:
            # Between `step` and here somebody may have left, and learned that nothing was sent: that must be true.
            if not self._fixed and any(caller.phase is Phase.ENDED for caller in self.callers):
                raise Withdrawn
            self._sent = True

    def _begin(self) -> None:
        # The one with most time decides how long tries continue. Others give up by themselves (`Coalescer.expire`).
        self._until = max(caller.until for caller in self.callers)
        self._tried = self._verb.attempt([caller.item for caller in self.callers], self._until)
        self._first = self._tried
        if self._tried is not None:
            self._step = self._tried.call
        else:
            self._op = self._slow_path()
            self._step = next(self._op)

    def _slow_path(self) -> Op[Sequence[R | Exception]]:
        tried, self._tried = self._tried, None
        return self._verb.op([caller.item for caller in self.callers], self._until, tried)

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
        if self._fixed and self._first is not None:
            self.unclaimed = self._verb.unclaimed(self._first)
        self.ended = True
        # A call and its callers know each other. This ends here, so that they and their messages are freed when they
        # leave, and not by a garbage collector that would take a third of the time of many callers.
        for caller in self.callers:
            caller.shared = None
        self._step = self._first = None
        self._on_end(self)

    def _end(self, results: Sequence[R | Exception]) -> None:
        with self._lock:
            present = [caller.phase is not Phase.ENDED for caller in self.callers]
            results = self._verb.give_out(self._first, results, present)
            for caller, result in zip(self.callers, results, strict=True):
                if caller.phase is not Phase.ENDED:
                    caller.phase, caller.result = Phase.ENDED, result
            self._close()


def nothing_sent() -> BackendTimeout:
    """Return the error for a caller that gives up before its item was sent."""
    return BackendTimeout(f"{_LATE_TEXT}; nothing was changed")


def _is_harmless(outcome: Any) -> bool:
    """Return whether nothing was executed for certain."""
    return isinstance(outcome, Refused) or (isinstance(outcome, Unanswered) and not outcome.sent)

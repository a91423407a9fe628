"""Where scenes get their numbers: each question is asked once for all who look, and not again while it is fresh."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from shardq.client import AsyncClient, AsyncQueue
from shardq.model import ActionStatus

T = TypeVar("T")
FRESH_SECONDS: Final = 2.0
"""Seconds for which an answer counts as that of now, unless a scene says otherwise."""
REST_FACTOR: Final = 50.0
"""An answer that took a second counts as fresh for this many seconds, at least."""
MAX_REST: Final = 300.0
"""Seconds for which an answer counts as fresh at most because of what it took."""
FAILED: Final = 1.0
"""Seconds for which all who ask get the error of a question that failed."""
MAX_ANSWERS: Final = 4000
"""Answers that are kept: those that were asked for last. An overview and its side ask three of each of 500 queues."""
KEPT_SECONDS: Final = 60.0
"""Seconds for which an answer is kept that nobody asks for, and that is not fresh any more."""
MAX_KEPT: Final = 1000
"""Queues that are kept, some 8 kB each: those that were asked about last. An overview looks at 500."""


class _Answer:
    """The answer to one question. It is asked in a task of its own, which continues if somebody who waits goes away."""

    def __init__(self, asked: Coroutine[Any, Any, Any], now: Callable[[], float], before: float) -> None:
        self.begun = now()
        self._now, self._before = now, before
        self.ended = math.inf
        self.took = before
        """Seconds that it took."""
        self.failed = False
        self.is_outdated = False
        """Whether an action has changed what it tells."""
        self.task = asyncio.ensure_future(asked)
        self.task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.ended = self._now()
        self.failed = task.cancelled() or task.exception() is not None  # which is looked at, so that it is not logged
        if not self.failed:
            self.took = self.ended - self.begun

    def is_fresh(self, seconds: float, longest: float = MAX_REST) -> bool:
        """Whether this stands for now, if an answer may be this many *seconds* old, and *longest* if it took long.

        It and the answer before are compared, and the one that took less counts: one hiccup says nothing of what a
        question costs. An answer that is outdated still rests for what it took, so that nobody makes others ask much by
        many actions.
        """
        if not self.task.done():
            return True
        now = self._now()
        if self.failed or self.ended == math.inf:  # its callback comes in this turn of the loop
            return now - min(self.ended, now) < FAILED and not self.task.cancelled()
        if now - self.ended < min(REST_FACTOR * min(self.took, self._before), longest):
            return True
        return now - self.begun < seconds and not self.is_outdated


class SceneSource:
    """Answers of Redis, shared among all who look. For one event loop."""

    def __init__(self, client: AsyncClient, *, payloads: bool = False, declared: Path | None = None) -> None:
        self.client, self.payloads = client, payloads
        self.declared = declared
        """The file that declares queues, with which screens compare them."""
        self.care: Callable[[str, Sequence[ActionStatus]], None] | None = None
        """Hears of the actions of a queue that a screen shows: it continues those that a page left behind."""
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._queues: OrderedDict[str, AsyncQueue] = OrderedDict()

    def queue(self, name: str) -> AsyncQueue:
        """Return a queue that is not created by that. It is kept: one that is made again is looked up again."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = self.client.queue(name, create=False)
        self._queues.move_to_end(name)
        if len(self._queues) > MAX_KEPT:
            self._queues.popitem(last=False)
        return found

    async def shared(
        self,
        question: Hashable,
        ask: Callable[[], Awaitable[T]],
        *,
        fresh: float = FRESH_SECONDS,
        longest: float = MAX_REST,
    ) -> T:
        """Return the answer of *ask* to this *question*, which may be *fresh* seconds old.

        It may be older if it took long: for 50 times what that took, *longest* seconds at most, it is not asked again.
        All who come meanwhile wait for one asking, and its error is raised to all of them.
        """
        answer = self._answers.get(question)
        if answer is None or not answer.is_fresh(fresh, longest):
            answer = self._ask(question, ask, answer)
        self._answers.move_to_end(question)
        found: T = await asyncio.shield(answer.task)
        return found

    def is_fresh(self, question: Hashable, fresh: float, longest: float = MAX_REST) -> bool:
        """Whether `shared` would return the last answer to this question, without a word to Redis."""
        answer = self._answers.get(question)
        if answer is None or not answer.task.done() or answer.failed or not answer.is_fresh(fresh, longest):
            return False
        self._answers.move_to_end(question)
        return True

    def last(self, question: Hashable) -> Any:
        """Return the last answer to this question, however old; None if there is none, or it failed."""
        answer = self._answers.get(question)
        return answer.task.result() if answer is not None and answer.task.done() and not answer.failed else None

    def age(self, question: Hashable) -> float | None:
        """Seconds since the answer to this question was asked for; None if there is none."""
        answer = self._answers.get(question)
        return None if answer is None else self.client.clock.monotonic() - answer.begun

    def forget(self, question: Hashable) -> None:
        """Ask this question again when somebody wants to know."""
        self._answers.pop(question, None)

    def outdate(self, queue: str) -> None:
        """Note that an action has changed a *queue*: its facts are asked for again, as soon as it has rested."""
        for question, answer in self._answers.items():
            if isinstance(question, tuple) and question[1:2] == (queue,):
                answer.is_outdated = True

    def recover(self) -> None:
        """Note that Redis is back: questions that failed are asked again at once, and others as soon as they rested."""
        for question, answer in list(self._answers.items()):
            answer.is_outdated = True
            if answer.failed:
                del self._answers[question]

    def _ask(self, question: Hashable, ask: Callable[[], Awaitable[T]], before: _Answer | None) -> _Answer:
        self._sweep()
        took = math.inf if before is None else before.took
        answer = self._answers[question] = _Answer(_asked(ask), self.client.clock.monotonic, took)
        return answer

    def _sweep(self) -> None:
        """Drop what nobody asked for in a while, and make room for one more."""
        while self._answers:
            question, oldest = next(iter(self._answers.items()))
            if len(self._answers) < MAX_ANSWERS and (not oldest.task.done() or oldest.is_fresh(KEPT_SECONDS)):
                break
            del self._answers[question]


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    return await ask()

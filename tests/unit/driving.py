"""Drive an operation by hand: no server, no mock, only what it says and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from shardq.durability import Durability
from shardq.model import QueueConfig
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Share, Sleep, Step, Wait
from shardq.ops.queue.view import QueueView
from shardq.protocol.keys import QueueKeys
from shardq.testing import ManualClock

T = TypeVar("T")
Answer = Callable[[Step], Any]


@dataclass
class Driven(Generic[T]):
    """What an operation did: its steps, and its result."""

    steps: list[Step] = field(default_factory=list)
    result: T | None = None

    @property
    def calls(self) -> list[str]:
        """The scripts that it ran, in order."""
        return [step.script.name for step in self.steps if isinstance(step, Call)]


def drive(op: Op[T], answer: Answer, clock: ManualClock) -> Driven[T]:
    """Run *op*; *answer* gives each step's reply, or an exception to throw in. Sleeps and waits take their time.

    Who waits alone waits for a slice at most, and is then told to look for himself, unless *answer* ended his wait.
    """
    done: Driven[T] = Driven()
    reply: Any = None
    resume: Callable[[Any], Step] = op.send
    while True:
        try:
            step = resume(reply)
        except StopIteration as stop:
            done.result = cast("T", stop.value)
            return done
        if isinstance(step, Share):
            verb, items = step.coalescer.verb, (step.item,)
            alone = drive(verb.op(items, step.until, verb.attempt(items, step.until)), answer, clock)
            done.steps += alone.steps
            resume, reply = op.send, (alone.result or (None,))[0]
            continue
        done.steps.append(step)
        if isinstance(step, Sleep):
            clock.advance(step.seconds)
            resume, reply = op.send, None
            continue
        reply = answer(step)
        if isinstance(step, Wait) and not step.waiter.done:
            waiter, now = step.waiter, clock.monotonic()
            clock.advance(min(waiter.until - now, waiter.wake_at - now, step.state.wait_slice))
        resume = op.throw if isinstance(reply, BaseException) else op.send


def state_of(clock: ManualClock, **config: Any) -> QueueState:
    """An opened queue of four streams, as a client sees it."""
    requested = QueueConfig(**({"streams": 4} | config))
    state = QueueState(QueueKeys("q"), requested, clock, Durability("none"), timeout=10, wait_slice=1, max_payload=1000)
    state.view = QueueView("1", requested.streams, requested.streams, requested)
    return state

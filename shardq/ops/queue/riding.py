"""Calls that ride with another one: they go out in its round trip, and nothing that becomes of them touches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Op


class Rider(Protocol):
    """Calls that ride with another: its `calls`. `answered` gets the outcome of each, and raises nothing."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls, which may be sent more than once or not at all."""

    def answered(self, outcomes: Sequence[Any]) -> None:
        """Take the reply or the failure of each call."""


def with_rider(state: QueueState, step: Call | Batch) -> Op[Any]:
    """Yield *step*, with what waits in `state.rider` behind it. Return its reply, or raise its failure."""
    rider, state.rider = state.rider, None
    if rider is None:
        return (yield step)
    own = step.calls if isinstance(step, Batch) else (step,)
    once = step.once if isinstance(step, Batch) else False
    outcomes = yield Batch((*own, *rider.calls), step.until, once=once)
    rider.answered(outcomes[len(own) :])
    if isinstance(step, Batch):
        return outcomes[: len(own)]
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
    return outcomes[0]

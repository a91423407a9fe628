"""Upkeep of partitions to which no read goes: old dead letters and results end there, too.

A read does such upkeep beside its work, where it reads. But it goes only where something is to be delivered.
"""

from __future__ import annotations

from typing import Final

from shardq.ops.queue.opening import log, open_queue
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.queue.upkeep import upkeep
from shardq.partitions.asking import MAX_AGE
from shardq.partitions.parts import Parts

UPKEEP_INTERVAL: Final = MAX_AGE
"""Seconds between two looks of a client at what is due. Mostly nothing is: each partition has its own times."""


def is_due(parts: Parts, now: float) -> bool:
    """Return whether the caller shall `keep_up` at local time *now*, beside its calls."""
    with parts.lock:
        if now < parts.common.upkeep_at:
            return False
        parts.common.upkeep_at = now + UPKEEP_INTERVAL
    return True


def keep_up(parts: Parts) -> Op[None]:
    """Do what is due in the partitions that answer, as a read there would. A failure is only logged."""
    config = parts.whole.config
    if parts.common.kept_for != config:  # what a partition has is looked up where no call has told of the change
        parts.common.kept_for = config
        for state in parts.states[1:]:
            state.forget()
    away = parts.away.numbers
    yield from run_together([_keep_up(state) for state in parts.states if state.number not in away])


def _keep_up(state: QueueState) -> Op[None]:
    failed = yield from outcome_of(open_queue(state, state.until()))
    if failed is not None:
        log.debug("upkeep of queue %r waits: %s", state.keys.name, failed)
        return
    yield from upkeep(state, state.clock.monotonic())

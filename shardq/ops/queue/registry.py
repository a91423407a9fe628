"""The list of queues: one key for all of them.

On a cluster it is elsewhere than most queues, so no script changes a queue and the list. A client that may create a
queue adds its name when it first opens the queue, also if another client has created it: so a name that got lost comes
back. A client that has no right to do so, or cannot reach the list, leaves it.
"""

from __future__ import annotations

from typing import Final

from shardq.clock import Clock
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Refused, Unanswered
from shardq.protocol.keys import SHARED_KEYS

NAMES_A_CALL: Final = 1000
PATIENCE: Final = 1.0
"""Seconds after which a queue is used although its name could not be added."""


def register(state: QueueState) -> Op[None]:
    """Add the queue's name to the list, if that is possible at once."""
    call = Call.on(SHARED_KEYS, "register", ("+", state.keys.name))
    call.until = state.clock.monotonic() + PATIENCE
    try:
        # A single try: the queue is of use without it, and the next client that opens it adds its name.
        yield call
    except (Refused, Unanswered):
        return


def unregister(state: QueueState, until: float) -> Op[None]:
    """Take the queue's name out of the list."""
    call = Call.on(SHARED_KEYS, "register", ("-", state.keys.name))
    yield from retry_until(always(call), until, state.clock)


def queue_names(until: float, clock: Clock) -> Op[list[str]]:
    """Return the names of all queues in the list, sorted. Each call of a page has until the local time *until*."""
    names: list[str] = []
    while True:
        call = Call.on(SHARED_KEYS, "queues", (names[-1] if names else "", NAMES_A_CALL))
        page = yield from retry_until(always(call), until, clock)
        names += [name.decode() for name in page]
        if len(page) < NAMES_A_CALL:
            return names

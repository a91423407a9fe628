"""Find bindings to queues that are gone, and take them away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.clock import Clock
from shardq.errors import BackendTimeout, PartlyDone, ShardqError
from shardq.ops.queue.outcome import outcome_of
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.together import run_together
from shardq.ops.topics.bindings import RouterState, change_until, confirmed, current
from shardq.protocol.keys import QueueKeys
from shardq.routing import Binding, BoundQueue

QUEUES_AT_ONCE: Final = 600
"""Queues that are looked at in a round trip."""


def bound_queues(state: RouterState, timeout: float | None) -> Op[list[BoundQueue]]:
    """Return all bindings, sorted, with whether their queues are gone. It only reads."""
    return (yield from _bound(state, state.until(timeout)))


def _bound(state: RouterState, until: float) -> Op[list[BoundQueue]]:
    router = yield from current(state, until, max_age=0)
    return (yield from look_up(sorted(router.bindings()), until, state.clock))


def look_up(bindings: Sequence[Binding], until: float, clock: Clock) -> Op[list[BoundQueue]]:
    """Return these *bindings* with whether their queues are gone; None of a queue that this user may not read."""
    names = list(dict.fromkeys(each.queue for each in bindings))
    gone: dict[str, bool | None] = {}
    for at in range(0, len(names), QUEUES_AT_ONCE):
        some = names[at : at + QUEUES_AT_ONCE]
        found = yield from run_together([_is_gone(name, until, clock) for name in some])
        for name, answer in zip(some, found, strict=True):
            # Nothing is known of the queue: that must not look like one that this user may not read.
            if isinstance(answer, BackendTimeout):
                raise answer
            gone[name] = None if isinstance(answer, ShardqError) else answer
    return [BoundQueue(*each, gone[each.queue]) for each in bindings]


def _is_gone(name: str, until: float, clock: Clock) -> Op[bool]:
    call = Call.on(QueueKeys(name), "len")
    return int((yield from retry_until(always(call), until, clock))) < 0


def unbind_gone(state: RouterState, timeout: float | None) -> Op[list[Binding]]:
    """Remove the bindings whose queues are gone. Return those that were removed. PartlyDone if it fails halfway.

    A queue and a router may be on different nodes, so no script looks at the one and changes the other. A queue that
    was made in between is bound again: its maker may have found it bound.
    """
    until = state.until(timeout)
    gone = [Binding(*each[:2]) for each in (yield from _bound(state, until)) if each.gone]
    made = yield from change_until(state, "-", gone, until)
    removed = [binding for binding, done in zip(gone, made.done, strict=True) if done]
    back = yield from outcome_of(_bind_again(state, removed, until))
    if isinstance(back, ShardqError):
        raise PartlyDone(
            f"{len(removed):,} bindings were removed, but not bound again where their queues were made meanwhile; the "
            f"error: {back}", len(removed),
        ) from back  # fmt: skip
    return confirmed(state, made, [binding for binding in removed if binding not in back])


def _bind_again(state: RouterState, removed: Sequence[Binding], until: float) -> Op[set[Binding]]:
    """Bind again those whose queues were made meanwhile. Return them."""
    back = [Binding(*each[:2]) for each in (yield from look_up(removed, until, state.clock)) if not each.gone]
    yield from change_until(state, "+", back, until)
    return set(back)

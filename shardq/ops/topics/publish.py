"""Publish by topic: find the queues, and say what became of the copy for each.

A binding may outlive its queue. Such a queue is gone: it gets no copy, and a publish creates none. That is no failure
of the publish, since nobody who repeats it could mend that. A client that may create the queue does so instead.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

from shardq.arguments import one_of
from shardq.errors import ClosedError, PartlyPublished, QueueMissing, ShardqError, Unrouted
from shardq.model import Written
from shardq.ops.queue.opening import find_queue
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.queue.upkeep import upkeep
from shardq.ops.sharing.caller import copied
from shardq.ops.topics.bindings import RouterState, current
from shardq.routing.topic import check_topic

log = logging.getLogger("shardq")
MAX_GONE: Final = 10_000
"""Queues that are gone and are remembered; then a client begins again, and logs them once more."""


def match_queues(router: RouterState, topic: str, unmatched: str, timeout: float | None) -> Op[list[str]]:
    """Return the sorted names of the queues that *topic* goes to. Unrouted if none and *unmatched* is "raise"."""
    check_topic(topic)
    one_of("unmatched", unmatched, ("return", "raise"))
    queues = sorted((yield from current(router, router.until(timeout))).match(topic))
    if queues:
        router.published += 1
        return queues
    router.unrouted += 1
    if unmatched == "raise":
        raise Unrouted(f"no queue is bound to a pattern that matches {topic!r} in router {router.keys.name!r}")
    return []


def went_nowhere(router: RouterState, topic: str, unmatched: str) -> None:
    """Deal with a *topic* that was published, all of whose queues are gone, as if none were bound to it."""
    # `match_queues` has counted it already.
    router.published -= 1
    router.unrouted += 1
    if unmatched == "raise":
        name = router.keys.name
        raise Unrouted(f"no queue that {topic!r} goes to in router {name!r} exists: `shardq topics list` shows them")


def to_open(router: RouterState, states: Sequence[QueueState]) -> list[QueueState]:
    """Return which queues are to be looked up together before anything is written: those that are not known yet.

    A single one is looked up with its write, in one round trip with those to the other queues. So are those that are
    gone: else each publish would take a round trip more.
    """
    unknown = [state for state in states if not state.epoch and state.keys.name not in router.gone]
    return unknown if len(unknown) > 1 else []


def open_all(states: Sequence[QueueState], until: float) -> Op[None]:
    """Look up these queues together."""
    yield from run_together([find_queue(state, until) for state in states])


def ids_of(router: RouterState, states: Sequence[QueueState], outcomes: Sequence[Any]) -> dict[str, Written]:
    """Return the ids by queue, without those that are gone. PartlyPublished if other *outcomes* are errors."""
    found = {state.keys.name: outcome for state, outcome in zip(states, outcomes, strict=True)}
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if not errors:
        note_gone(router, (), there=found)
        return found
    for error in errors:
        # The client is closed, or this is a bug: neither is reported per queue.
        if isinstance(error, ClosedError) or not isinstance(error, ShardqError):
            raise copied(error)
    gone = {state.keys.name for state in states if is_gone(state, found[state.keys.name])}
    note_gone(router, gone, there=[name for name, each in found.items() if isinstance(each, str)])
    results: dict[str, Any] = {
        name: copied(each) if isinstance(each, Exception) else each for name, each in found.items() if name not in gone
    }
    first = next((each for each in results.values() if isinstance(each, ShardqError)), None)
    if first is not None:
        raise PartlyPublished(results, first) from first
    return results


def is_gone(state: QueueState, outcome: Any) -> bool:
    """Return whether a write with this *outcome* found no queue, and this client's next one will create none."""
    return isinstance(outcome, QueueMissing) and not state.creates


def note_gone(router: RouterState, gone: Collection[str], *, there: Collection[str]) -> None:
    """Note which queues are *gone* and which are *there*. Each that is gone is logged once for as long as it is."""
    if router.gone:
        router.gone.difference_update(there)
    new = sorted(set(gone) - router.gone) if gone else []
    if not new:
        return
    if len(router.gone) + len(new) > MAX_GONE:
        router.gone.clear()
    router.gone.update(new)
    log.warning(
        "router %r: %d bound queues do not exist, such as %r: they were deleted, or nobody has declared them yet. "
        "Messages go to the other queues only; `shardq topics unbind --gone` removes such bindings",
        router.keys.name, len(new), new[0],
    )  # fmt: skip


def upkeep_all(states: Sequence[QueueState]) -> Op[None]:
    """Do the upkeep of several queues together, after a write to each."""
    yield from run_together([upkeep(state, state.clock.monotonic()) for state in states])

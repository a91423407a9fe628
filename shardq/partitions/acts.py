"""Actions by a filter on a queue with partitions: one in each, all of the same id, at work side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from shardq.arguments import whole
from shardq.errors import ConfigError, QueueMissing, ShardqError
from shardq.model import ActionStatus, Where
from shardq.model.action import ActionKind
from shardq.ops.operate import actions, counting
from shardq.ops.operate.actions import Running
from shardq.ops.queue.outcome import ignore_failure, outcome_of
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.queue.who import Who
from shardq.partitions import sums
from shardq.partitions.changes import all_changed
from shardq.partitions.parts import Parts, all_of

T = TypeVar("T")


def begin(
    parts: Parts,
    kind: ActionKind,
    where: Where,
    rate: float | None,
    limit: int | None,
    who: Who,
    timeout: float | None,
    via: str = "",
    action_id: str = "",
) -> Op[list[Running]]:
    """Begin an action in all partitions. *rate* and *limit* are shared out. ConfigError if another one is under way.

    It begins in the head, so of two that begin at once one is refused before it has begun anywhere.
    """
    share, action_id = rate and rate / len(parts.states), action_id or actions.new_id()
    limits = yield from _limits(parts, kind, where, limit, timeout)
    begun: list[Running] = []
    for state, most in zip(parts.states, limits, strict=True):
        op = actions.begin(state, kind, where, share, most, who, timeout, via, action_id)
        running = yield from outcome_of(parts.unless_removed(state, op, None))
        if isinstance(running, ShardqError):
            for each in begun:
                yield from ignore_failure(_stopped(each, timeout))
            raise running
        begun += [running] if running else []
    return begun


def _limits(
    parts: Parts, kind: ActionKind, where: Where, limit: int | None, timeout: float | None
) -> Op[list[int | None]]:
    """Return on how many messages to act in each partition: on those that it has, on no more than *limit* in all."""
    if limit is None:
        return [None] * len(parts.states)
    whole("limit", limit, 1, actions.MAX_LIMIT)

    def count(state: QueueState) -> Op[int]:
        now = (yield from sight(state, state.until(timeout))).time
        return (yield from counting.count(state, kind, where, now, limit, timeout))

    limits: list[int | None] = []
    left = limit
    for found in all_of(
        (yield from run_together([parts.unless_removed(each, count(each), 0) for each in parts.states]))
    ):
        limits.append(most := min(found, left))
        left -= most
    return limits


def _stopped(running: Running, timeout: float | None) -> Op[None]:
    yield from actions.stop(running.state, running.id, timeout)
    yield from actions.work(running, timeout)


def take_over(parts: Parts, action_id: str, timeout: float | None, how: str = "take") -> Op[list[Running]]:
    """Continue an action in all partitions in which it can be taken over. ConfigError if there is none."""
    found = yield from run_together([actions.take_over(state, action_id, timeout, how) for state in parts.states])
    return known(found)


def work(running: Sequence[Running], seconds_to_wait: float | None) -> Op[ActionStatus]:
    """Work on an action in all partitions until it is over, or for *seconds*. Return how it is then."""
    all_of((yield from run_together([_work(each, seconds_to_wait) for each in running])))
    return (yield from status(running, None))


def _work(running: Running, seconds_to_wait: float | None) -> Op[None]:
    """Work on it in one partition. It is over in one that was drained, and is not there any more."""
    try:
        yield from actions.work(running, seconds_to_wait)
    except QueueMissing:
        parts: Parts | None = running.state.whole.parts if running.state.whole else None
        if parts is None or running.state.number < parts.map.written:
            raise
        running.is_over = True


def status(running: Sequence[Running], timeout: float | None) -> Op[ActionStatus]:
    """Return how an action is, as Redis has it."""
    return sums.action(known((yield from run_together([actions.status(each, timeout) for each in running]))))


def stop(running: Sequence[Running], timeout: float | None, who: Who) -> Op[ActionStatus]:
    """Stop an action in all partitions."""
    stopped = yield from run_together([actions.stop(each.state, each.id, timeout, who) for each in running])
    found = [(each.state.number, outcome) for each, outcome in zip(running, stopped, strict=True)]
    return sums.action(all_changed(running[0].state.keys.name, found, ConfigError))


def known(found: Sequence[T | ShardqError]) -> list[T]:
    """Return the results of partitions that knew the action that they were asked for; the others said ConfigError.

    If none did, or another error came, raise it.
    """
    results: list[T] = []
    failed: ShardqError | None = None
    for each in found:
        if not isinstance(each, ShardqError):
            results.append(each)
        elif failed is None or not isinstance(each, ConfigError):
            failed = each
    if failed is not None and not (results and isinstance(failed, ConfigError)):
        raise failed
    return results

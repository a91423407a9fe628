"""Furnish a partition: make it as the head is, before anything is written to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from shardq.model import Control, Controls, Limits, QueueConfig
from shardq.model.shares import shared
from shardq.ops.operate import assign, controls, limits, plans, queues, weights
from shardq.ops.queue.opening import create
from shardq.ops.queue.retry import ask
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.who import Who

C = TypeVar("C", bound=Control)
FIELDS_A_CALL: Final = 1000
SAME_END: Final = 1.0
"""Seconds by which the ends of a limit may differ: each node has a clock of its own."""
_GIVEN: Final[Sequence[tuple[str, Callable[..., Op[Any]], str, Any]]] = (
    ("limits", limits.set_limits, "limits", Limits()),
    ("weights", weights.set_weights, "weight", 1),
)
"""Shard keys' own values: the name among controls, how it is given, its field there, and that of nobody."""
_COPIED: Final = tuple(name for name in QueueConfig.__struct_fields__ if name not in ("streams", "partitions"))


def furnish(head: QueueState, state: QueueState, count: int, timeout: float | None) -> Op[None]:
    """Create a partition if it is not there, and give it what the head has: settings, shards, plans, limits, pauses.

    It gets its part of the whole queue's values, as one of *count* partitions. Its epoch moves in any case. So who
    looked at it before does not delete it now (`tidy`).
    """
    wanted_settings = shared(head.config, state.number, count)
    # A queue whose window was switched off knows its shard keys still: so must a partition that comes later.
    [knows_keys] = yield from ask(head, "HMGET", head.keys.meta, "accounts")
    state.requested = replace(wanted_settings, window=1) if knows_keys == b"1" else wanted_settings
    yield from create(state, state.until(timeout))
    state.requested = wanted_settings
    yield from queues.configure(state, {name: getattr(state.requested, name) for name in _COPIED}, timeout)
    if state.wanted != head.wanted:
        yield from queues.resize(state, head.wanted, timeout)
    if head.assigned.by_key.keys() != state.assigned.by_key.keys():
        yield from assign.unassign(state, None, timeout)
        yield from assign.assign(state, head.assigned.by_key, head.assigned.max_overlap or None, timeout)
    wanted = yield from controls.controls(head, None, timeout)
    yield from _follow(state, wanted, (yield from controls.controls(state, None, timeout)), timeout)


def _follow(state: QueueState, wanted: Controls, found: Controls, timeout: float | None) -> Op[None]:
    """Make what a partition has of its own, which was *found*, what is *wanted*. Plans come first: limits name them."""
    for name, plan in wanted.plans.items():
        if name not in found.plans or replace(plan, tenants=0) != replace(found.plans[name], tenants=0):
            yield from plans.set_plan(state, name, plan, timeout)
    for kind, give, of_each, none in _GIVEN:
        mine, theirs = getattr(found, kind), getattr(wanted, kind)
        for some, lasting, who in _given(theirs, mine, wanted.time):
            given = {key: getattr(each, of_each) for key, each in some.items()}
            yield from give(state, given, timeout, lasting, who)
        for gone in _parts([key for key in mine if key not in theirs]):
            yield from give(state, dict.fromkeys(gone, none), timeout)
    yield from _follow_pauses(state, wanted, found, timeout)
    for name in found.plans.keys() - wanted.plans.keys():
        yield from plans.delete_plan(state, name, timeout)


def _follow_pauses(state: QueueState, wanted: Controls, found: Controls, timeout: float | None) -> Op[None]:
    for paused, lasting, who in _given(wanted.paused, found.paused, wanted.time):
        for key in paused:
            yield from limits.pause(state, key, lasting, timeout, who)
    for key in found.paused.keys() - wanted.paused.keys():
        yield from limits.resume(state, key, timeout)


def _given(
    wanted: Mapping[Any, C], found: Mapping[Any, C], now: float
) -> Iterator[tuple[dict[Any, C], float | None, Who]]:
    """Yield what is to be given: that of several shard keys with one end, for how long, and who gave it first."""
    groups: dict[tuple[float, str, str], dict[Any, C]] = {}
    for key, each in wanted.items():
        if key not in found or not _is_same(each, found[key]):
            groups.setdefault((each.until, each.by, each.note), {})[key] = each
    for (until, by, note), every in groups.items():
        lasting = None if until == float("inf") else max(0.001, until - now)
        for some in _parts([*every]):
            yield {key: every[key] for key in some}, lasting, Who(by or None, note or None)


def _is_same(one: Control, other: Control) -> bool:
    same_end = one.until == other.until or abs(one.until - other.until) < SAME_END
    return same_end and replace(one, until=0, since=None) == replace(other, until=0, since=None)


def _parts(keys: list[Any]) -> Iterator[list[Any]]:
    return (keys[at : at + FIELDS_A_CALL] for at in range(0, len(keys), FIELDS_A_CALL))

"""Changes that a queue cannot make, found before anything is changed, as far as they can be known before."""

from __future__ import annotations

from collections.abc import Collection

from shardq.assignment import Assignment
from shardq.declared.declaration import DeclaredQueue
from shardq.errors import ConfigError, ShardqError
from shardq.model import QueueConfig


def check_feasible(
    declared: DeclaredQueue,
    actual: QueueConfig,
    target: QueueConfig,
    assigned: Assignment | None,
    plans: Collection[str],
) -> None:
    """ShardqError if a queue with the settings *actual* cannot have what is *declared*, which makes them *target*.

    *assigned* has the shards that are stored with it, None if the queue does not exist; *plans* are those that it has.
    """
    what = f"queue {declared.name!r}"
    _check_plans(what, declared, plans)
    if (declared.limits or declared.plans) and assigned is None and "accounts" not in target.settings():
        raise ShardqError(f"{what}: limits: it has no window, so it does not know its shard keys: let window be 1")
    if target.parents and (child := next(filter(_is_child, declared.limits or ()), None)):
        raise ShardqError(f"{what}: limits of {child!r}: it has parents: limits are a parent's, which is before '/'")
    _check_shrink(what, actual, target, assigned)
    try:
        _plan(declared, target, assigned)
    except ConfigError as error:
        raise ShardqError(f"{what}: assignment: {error}") from None


def _check_plans(what: str, declared: DeclaredQueue, plans: Collection[str]) -> None:
    known = plans if declared.plans is None else declared.plans
    for key, limits in (declared.limits or {}).items():
        if isinstance(limits, str) and limits not in known:
            raise ShardqError(f"{what}: limits of {key!r}: there is no plan {limits!r}: declare it in plans")


def _is_child(key: str) -> bool:
    return key.partition("/")[0] not in ("", key)


def _check_shrink(what: str, actual: QueueConfig, target: QueueConfig, assigned: Assignment | None) -> None:
    above = [key for key, shard in assigned.items() if max(shard) >= target.streams] if assigned else []
    if above:
        raise ShardqError(
            f"{what}: streams: {actual.streams} -> {target.streams}: {what} cannot shrink: {len(above):,} assigned "
            f"shard keys have streams beyond that, such as {above[0].decode(errors='replace')!r}: unassign them first"
        )


def _plan(declared: DeclaredQueue, target: QueueConfig, assigned: Assignment | None) -> None:
    """Choose shards as `Queue.assign` will choose them."""
    if not declared.assigned:
        return
    known = dict[str | bytes, tuple[int, ...]](assigned.items()) if assigned else {}
    width = assigned.width if assigned and known else min(target.streams, target.streams_per_shard)
    overlap = declared.max_overlap
    if overlap is None:
        overlap = assigned.max_overlap if assigned and known else min(1, width - 1)
    planned = Assignment.of(known, target.streams, width, max_overlap=overlap)
    for key in declared.assigned:
        planned.add(key)

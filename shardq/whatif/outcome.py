"""The outcome of a history, or of its replay: how long jobs waited, whether the objective was met, and what it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final

import msgspec

from shardq.whatif.history import History
from shardq.whatif.replay import Replayed

AS_IT_WAS: Final = "as it was"
REPLAYED: Final = "replayed"
"""The names of what was, and of its replay with nothing otherwise."""

FEW_JOBS: Final = 20
"""A tenant with fewer jobs has no p99 that says anything, unless all have fewer."""


class Waits(msgspec.Struct, frozen=True):
    """How long some jobs waited for their first delivery, in seconds; None where there are none."""

    jobs: int
    p50: float | None
    p99: float | None


class Projection(msgspec.Struct, frozen=True):
    """The outcome under a `name`.

    `all` are the waits of all jobs, `quiet` those of the quieter half of the tenants, and `worst` those of the tenant
    with the longest p99, whose name is `worst_tenant`. `in_time` is the share of the jobs that waited at most as long
    as the objective says; a job that was never delivered is none of them, and is counted in `never`. `slot_seconds` are
    those of all workers, and `busy` is the share of these in which a handler ran.
    """

    name: str
    all: Waits
    quiet: Waits
    worst: Waits
    worst_tenant: str
    in_time: float
    never: int
    slot_seconds: float
    busy: float


def outcome_was(history: History, within: float) -> Projection:
    """Return what the history itself came to. *within* is the wait of the objective, in seconds."""
    waits = [each.waited for each in history.arrivals]
    slot_seconds = sum(
        each.slots
        * max(0.0, min(_or(each.end, history.end), history.end) - max(_or(each.begin, history.begin), history.begin))
        for each in history.stays
    )
    return _outcome(AS_IT_WAS, history, waits, slot_seconds, within)


def outcome_of(name: str, history: History, replayed: Replayed, within: float) -> Projection:
    """Return what a replay of the history came to."""
    waits = [
        None if ran.first_at is None else max(0.0, ran.first_at - each.ready_at)
        for each, ran in zip(history.arrivals, replayed.jobs, strict=True)
    ]
    return _outcome(name, history, waits, replayed.slot_seconds, within)


def _outcome(
    name: str, history: History, waits: Sequence[float | None], slot_seconds: float, within: float
) -> Projection:
    due = [
        (each.shard_key, waited)
        for each, waited in zip(history.arrivals, waits, strict=True)
        if waited is not None or each.cancelled_at is None
    ]
    by_tenant: dict[str, list[float]] = {}
    for key, waited in due:
        if waited is not None:
            by_tenant.setdefault(key, []).append(waited)
    quiet = quiet_tenants(history)
    worst = _worst(by_tenant)
    worked = sum(each.ran for each, waited in zip(history.arrivals, waits, strict=True) if waited is not None)
    return Projection(
        name,
        waits_of(waited for each in by_tenant.values() for waited in each),
        waits_of(waited for key, each in by_tenant.items() if key in quiet for waited in each),
        waits_of(by_tenant.get(worst, ())),
        worst,
        sum(waited is not None and waited <= within for _, waited in due) / max(1, len(due)),
        sum(waited is None for _, waited in due),
        slot_seconds,
        worked / slot_seconds if slot_seconds else 0.0,
    )


def quiet_tenants(history: History) -> frozenset[str]:
    """Return the quieter half of the tenants: those whose jobs ran for the shortest time in all; of one tenant, it."""
    ran: dict[str, float] = {}
    for each in history.arrivals:
        ran[each.shard_key] = ran.get(each.shard_key, 0.0) + each.ran
    ordered = sorted(ran, key=lambda key: (ran[key], key))
    return frozenset(ordered[: max(1, len(ordered) // 2)])


def waits_of(found: Iterable[float]) -> Waits:
    """Return the percentiles of some waits: each is the wait of a job.

    >>> waits_of([3.0, 1.0, 2.0])
    Waits(jobs=3, p50=2.0, p99=3.0)
    """
    ordered = sorted(found)
    return Waits(len(ordered), percentile(ordered, 0.5), percentile(ordered, 0.99))


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the least of the *ordered* values that so large a share of them does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


def _worst(by_tenant: Mapping[str, Sequence[float]]) -> str:
    """Return the tenant with the longest p99, among those that have many jobs, if any has; '' if there are none."""
    many = {key: each for key, each in by_tenant.items() if len(each) >= FEW_JOBS} or by_tenant
    return max(many, key=lambda key: (percentile(sorted(many[key]), 0.99) or 0.0, key), default="")


def _or(time: float | None, other: float) -> float:
    return other if time is None else time

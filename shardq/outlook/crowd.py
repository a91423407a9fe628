"""Those that wait, as backlogs of a fluid: the largest each by itself, all others in groups of about the same size."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from shardq.model.waiter import Waiter
from shardq.outlook.facts import Facts
from shardq.outlook.fluid import FluidPart, flow
from shardq.outlook.pace import DrainPace

MAX_SHARD_KEYS = 20
"""Shard keys that are shown, and reckoned each by itself."""
GROUP_STEP = 1.5
"""Backlogs that differ by less than this factor are in one group."""
LARGE_SHARE = 0.01
"""The share of the backlog from which on a shard key is known to be looked at, also where only some are."""
_COSTS = (0.02, 50.0)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Those that wait: `shown` each by itself with its part, and the parts of all `others`."""

    shown: tuple[tuple[Waiter, FluidPart], ...]
    others: tuple[FluidPart, ...]
    tenants_waiting: int

    @property
    def weights(self) -> float:
        """The sum of the weights of those that share the turns."""
        parts = [part for _, part in self.shown] + list(self.others)
        return sum(each.weight * each.count for each in parts if each.left and not each.free_at)

    def served(
        self,
        capacity: float,
        background: float,
        *,
        changed: Mapping[str | bytes, FluidPart] | None = None,
        without: str | bytes | None = None,
    ) -> Served:
        """Work out when each is served: with the parts in *changed* in place of theirs, and *without* one of them."""
        own = {
            waiter.shard_key: replace((changed or {}).get(waiter.shard_key, part))
            for waiter, part in self.shown
            if waiter.shard_key != without
        }
        others = [replace(each) for each in self.others]
        flow([*own.values(), *others], capacity, background)
        return Served(own, others)


@dataclass(frozen=True, slots=True)
class Served:
    """When each part of a crowd is served."""

    own: Mapping[str | bytes, FluidPart]
    others: list[FluidPart]

    def of(self, key: str | bytes) -> float:
        """Return in how many seconds one that is shown is served; infinite if never."""
        return self.own[key].done_at

    def last(self, beside: str | bytes | None = None) -> float:
        """Return in how many seconds all are served that wait for a turn alone, but for one; 0 if there are none."""
        parts = [part for key, part in self.own.items() if key != beside] + self.others
        return max((each.done_at for each in parts if not each.is_held), default=0.0)

    def last_held(self) -> float:
        """Return in how many seconds all are served that wait for a limit or a pause; infinite if there are none."""
        parts = [*self.own.values(), *self.others]
        return max((each.done_at for each in parts if each.is_held), default=math.inf)


def crowd_of(facts: Facts, pace: DrainPace) -> Crowd:
    """Return those that wait."""
    rows = [each for each in facts.waiters.rows if each.backlog or each.delayed]
    rows.sort(key=lambda each: (-each.backlog - each.delayed, _bytes(each.shard_key)))
    costs = _costs(facts, pace)
    first, rest = _divided(rows, facts.asked)
    shown = tuple((each, part_of(facts, pace, each, costs.get(each.shard_key, 1.0))) for each in first)
    backlog = facts.stats.backlog
    if not shown and backlog:
        # Without a window nobody knows whose messages wait: as if all were of one.
        return Crowd((), (FluidPart(left=backlog, free_at=_ends_in(facts, facts.paused_until)),), 0)
    factor = _factor(facts, first, rest)
    parts = [part_of(facts, pace, each, costs.get(each.shard_key, 1.0), alone=False) for each in rest]
    waiting = sum(each.backlog > 0 for each in first) + round(len(rest) * factor)
    return Crowd(shown, tuple(_grouped(parts, factor)), waiting)


def _divided(rows: list[Waiter], asked: Collection[str | bytes]) -> tuple[list[Waiter], list[Waiter]]:
    """Return those that are shown, those that are *asked* for among them, and all others that have a backlog."""
    first = [each for at, each in enumerate(rows) if at < MAX_SHARD_KEYS or each.shard_key in asked]
    return first, [each for each in rows[MAX_SHARD_KEYS:] if each.backlog and each.shard_key not in asked]


def _bytes(key: str | bytes) -> bytes:
    """Return a shard key to sort by; another program may have written any."""
    return key if isinstance(key, bytes) else key.encode(errors="surrogatepass")


def part_of(
    facts: Facts,
    pace: DrainPace,
    waiter: Waiter,
    cost: float = 1.0,
    *,
    limited: bool = True,
    paused: bool = True,
    alone: bool = True,
) -> FluidPart:
    """Return the backlog of one, as if it were not *limited*, or not *paused*, where these are False."""
    top = math.inf
    if limited and waiter.rate:
        top = waiter.rate
    if limited and waiter.max_in_flight and pace.seconds:
        top = min(top, waiter.max_in_flight / (pace.seconds * cost))
    pause, own = _ends_in(facts, facts.paused_until), _ends_in(facts, waiter.paused_until if paused else None)
    return FluidPart(
        # Its last message comes in the middle of the last round of turns. (Of many that would be missed as a whole.)
        left=max(0.5, waiter.backlog - 0.5) if waiter.backlog and alone else waiter.backlog,
        weight=waiter.weight,
        cost=cost,
        top=top,
        credit=float(waiter.allowance or 0) if limited and waiter.rate else 0.0,
        free_at=max(pause, own),
        is_paused=own > pause,
    )


def _ends_in(facts: Facts, until: float | None) -> float:
    return 0.0 if until is None else max(0.0, until - facts.now)


def _costs(facts: Facts, pace: DrainPace) -> dict[str | bytes, float]:
    """Return how much longer than others the jobs of shard keys take, for those that workers report."""
    if not pace.seconds:
        return {}
    done: dict[str | bytes, float] = {}
    took: dict[str | bytes, float] = {}
    for worker in facts.working:
        for each in worker.tenants:
            done[each.shard_key] = done.get(each.shard_key, 0) + each.done
            took[each.shard_key] = took.get(each.shard_key, 0.0) + each.done * each.seconds
    least, most = _COSTS
    return {
        key: min(most, max(least, took[key] / count / pace.seconds))
        for key, count in done.items()
        if count and took[key]
    }


def _factor(facts: Facts, shown: list[Waiter], rest: list[Waiter]) -> float:
    """Return for how many others each of those stands that are not shown."""
    if facts.waiters.are_all:
        return 1.0
    backlog = facts.stats.backlog
    small = sum(each.backlog for each in rest if each.backlog < LARGE_SHARE * backlog)
    large = sum(each.backlog for each in (*shown, *rest)) - small
    return max(1.0, (backlog - large) / small) if small else 1.0


def _grouped(parts: list[FluidPart], factor: float) -> list[FluidPart]:
    groups: dict[tuple[float, ...], list[FluidPart]] = {}
    for each in parts:
        size = round(math.log(each.left) / math.log(GROUP_STEP))
        key = (size, each.weight, _rounded(each.top), _rounded(each.free_at), _rounded(each.cost))
        groups.setdefault(key, []).append(each)
    return [
        replace(
            same[0],
            left=sum(each.left for each in same) / len(same),
            credit=sum(each.credit for each in same) / len(same),
            count=len(same) * factor,
        )
        for same in groups.values()
    ]


def _rounded(number: float) -> float:
    """Return a number to two digits, so that those that are about the same become the same."""
    return float(f"{number:.1e}") if math.isfinite(number) else number

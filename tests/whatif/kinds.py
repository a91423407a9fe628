"""Ten hours of a queue, each of another kind, and other ways to run it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from shardq import Limits
from shardq.model import Plan
from tests.whatif.truth import Way, Work

HOUR: Final = 3_600.0
ALWAYS: Final = (0.0, 1e9)


def workers(count: int, slots: int = 2) -> Sequence[tuple[int, float, float]]:
    return [(slots, *ALWAYS)] * count


@dataclass(frozen=True)
class Hour:
    """An hour as it was, and other ways by their names."""

    works: Sequence[Work]
    was: Way
    others: dict[str, Way] = field(default_factory=dict)


def arrivals(dice: random.Random, count: int, keys: Sequence[str], ran: Sequence[float]) -> list[Work]:
    """So many jobs that come at random over the hour."""
    return [
        Work(round(dice.uniform(0, HOUR), 3), dice.choice(keys), (round(dice.choice(ran), 3),)) for _ in range(count)
    ]


def crews(was: Way, *counts: int) -> dict[str, Way]:
    return {f"{count} workers": replace(was, workers=workers(count)) for count in counts}


def steady(dice: random.Random) -> Hour:
    works = arrivals(dice, 1_500, [f"t{number}" for number in range(20)], (6, 12, 24))
    was = Way(workers(4))
    return Hour(works, was, crews(was, 3, 5, 8))


def bursts(dice: random.Random) -> Hour:
    keys = [f"t{number}" for number in range(12)]
    works = arrivals(dice, 500, keys, (5, 10))
    for burst in range(10):
        key = dice.choice(keys)
        works += [
            Work(round(300.0 * burst + dice.uniform(0, 5), 3), key, (float(dice.choice((4, 8))),)) for _ in range(90)
        ]
    was = Way(workers(3))
    return Hour(works, was, crews(was, 2, 4, 6))


def flood(dice: random.Random) -> Hour:
    works = arrivals(dice, 700, [f"quiet-{number}" for number in range(8)], (4, 8))
    works += [Work(round(600 + dice.uniform(0, 60), 3), "flood", (float(dice.choice((4, 6, 8))),)) for _ in range(800)]
    was = Way(workers(2))
    return Hour(works, was, {**crews(was, 3, 4), "one flow": replace(was, settings={"window": 0, "fair": "messages"})})


def weights(dice: random.Random) -> Hour:
    works = arrivals(dice, 400, ["gold"], (8, 12)) + arrivals(dice, 1_000, ["tin", "zinc", "lead"], (8, 12))
    was = Way(workers(2))
    return Hour(works, was, {
        "gold 4": replace(was, weights={"gold": 4}), "zinc 9": replace(was, weights={"zinc": 9}), **crews(was, 3),
    })  # fmt: skip


def limits(dice: random.Random) -> Hour:
    works = arrivals(dice, 700, ["greedy"], (8, 16)) + arrivals(dice, 700, ["a", "b", "c", "d"], (4, 8))
    was = Way(workers(3), limits={"greedy": Limits(max_in_flight=2)})
    return Hour(works, was, {
        "no cap": replace(was, limits={}),
        "cap 4": replace(was, limits={"greedy": Limits(max_in_flight=4)}),
        "rate": replace(was, limits={"greedy": Limits(rate=0.25, burst=5)}),
    })  # fmt: skip


def delayed(dice: random.Random) -> Hour:
    keys = [f"t{number}" for number in range(10)]
    works = arrivals(dice, 700, keys, (6, 10))
    works += [replace(each, delay=float(dice.choice((60, 300, 900)))) for each in arrivals(dice, 700, keys, (6, 10))]
    was = Way(workers(2))
    return Hour(works, was, crews(was, 1, 3, 4))


def failures(dice: random.Random) -> Hour:
    works = []
    for each in arrivals(dice, 1_200, [f"t{number}" for number in range(10)], (6, 12)):
        tries = 1 if dice.random() < 0.75 else dice.choice((2, 3, 4))
        works.append(replace(each, ran=each.ran * tries))
    was = Way(workers(3))
    return Hour(works, was, crews(was, 2, 4, 5))


def many_tenants(dice: random.Random) -> Hour:
    keys = [f"t{number}" for number in range(400)]
    shares = [1 / (number + 1) for number in range(400)]
    works = [
        Work(round(dice.uniform(0, HOUR), 3), key, (float(dice.choice((5, 10))),))
        for key in dice.choices(keys, shares, k=1_500)
    ]
    was = Way(workers(3))
    return Hour(works, was, {
        **crews(was, 2, 5), "few streams": replace(was, settings={"streams": 2, "streams_per_shard": 1}),
    })  # fmt: skip


def long_and_short(dice: random.Random) -> Hour:
    works = arrivals(dice, 90, ["slow", "slower"], (120, 240)) + arrivals(dice, 1_300, ["a", "b", "c"], (2, 4))
    was = Way([*workers(4), (2, 1_200.0, 2_400.0)])
    return Hour(works, was, {
        **crews(was, 3, 6), "by messages": replace(was, settings={"fair": "messages"}),
    })  # fmt: skip


def plans(dice: random.Random) -> Hour:
    free = [f"free-{number}" for number in range(6)]
    works = arrivals(dice, 500, ["paid"], (6, 10)) + arrivals(dice, 900, free, (6, 10))
    plan = {"free": Plan(max_in_flight=1), "gold": Plan(weight=5)}
    on: dict[str, Limits | str] = {"paid": "gold", **dict.fromkeys(free, "free")}
    was = Way(
        workers(2), plans=plan, limits=on,
        later=[(900.0, lambda queue: queue.pause("free-1")), (1_500.0, lambda queue: queue.resume("free-1"))],
    )  # fmt: skip
    return Hour(works, was, {
        "free may 3": replace(was, plans={**plan, "free": Plan(max_in_flight=3)}),
        "gold 1": replace(was, plans={**plan, "gold": Plan(weight=1)}),
        **crews(was, 4),
    })  # fmt: skip


KINDS: Final = {
    each.__name__: each
    for each in (steady, bursts, flood, weights, limits, delayed, failures, many_tenants, long_and_short, plans)
}


def hour(kind: str) -> Hour:
    """The hour of a kind: the same one each time."""
    return KINDS[kind](random.Random(f"what if {kind}"))

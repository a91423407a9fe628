"""Ten kinds of hours, recorded and replayed under other settings: as the queue itself comes out under each of them.

What is true is what the queue itself gave in three runs: it draws which reads serve those who wait, so that a p99 of
1,400 jobs differs from one run of the queue to the next, by a quarter in some kinds. A replay tells a median of three
seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
from msgspec.structs import replace

from shardq import Limits
from shardq.jobs.making import LiveQueue, make, settings_if_there
from shardq.whatif.alternative import Alternative
from shardq.whatif.history import History, Stay
from shardq.whatif.outcome import outcome_of, waits_of
from shardq.whatif.replay import replayed
from shardq.whatif.server import MovedServer
from shardq.whatif.tables import recorded as recorded_tables
from tests.whatif.kinds import KINDS, hour
from tests.whatif.truth import BEGAN, Driver, Way, Work

RUNS: Final = 3
SHARE: Final = 0.1
"""A p99 is right within a tenth of what was seen ..."""
SECONDS: Final = 0.5
"""... or a small part of the shortest job: what nearly nobody waits for is decided by chance."""


@pytest.fixture(scope="module")
def moved() -> Iterator[MovedServer]:
    with MovedServer() as server:
        yield server


def truth_of(works: Sequence[Work], way: Way, moved: MovedServer) -> float:
    """The p99 of the waits in *way*."""
    client, clock = moved.emptied(BEGAN)
    with client:
        found = waits_of(Driver(works, way, client, clock).run()).p99
    assert found is not None
    return found


def recorded(works: Sequence[Work], way: Way, moved: MovedServer, path: Path) -> History:
    """The history that `shardq jobs` tells of what the driver does, with its workers, which give no sign of life."""
    client, clock = moved.emptied(BEGAN)
    with client:
        Driver(works, way, client, clock).run()
        make(LiveQueue(client, ["q"]), path, partial(settings_if_there, client))
    history = recorded_tables(path).history("q")
    assert history is not None
    return replace(
        history,
        stays=[Stay(slots, BEGAN + begin, BEGAN + end if end < 1e8 else None) for slots, begin, end in way.workers],
    )


def otherwise(name: str, was: Way, way: Way) -> Alternative:
    """What is otherwise in *way*."""
    found: dict[str, Any] = {
        "settings": {key: value for key, value in way.settings.items() if was.settings.get(key) != value},
        "weights": {key: way.weights.get(key, 1) for key in {*was.weights, *way.weights}},
        "plans": {key: plan for key, plan in way.plans.items() if was.plans.get(key) != plan},
    }
    if way.limits != was.limits:
        found["limits"] = {key: way.limits.get(key, Limits()) for key in {*was.limits, *way.limits}}
    if way.workers != was.workers:
        found |= {"workers": len(way.workers), "slots": way.workers[0][0]}
    return Alternative(name, **found)


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_an_hour_comes_out_as_the_queue_itself_under_each_setting(
    kind: str, moved: MovedServer, tmp_path: Path
) -> None:
    kept = hour(kind)
    history = recorded(kept.works, kept.was, moved, tmp_path)
    seen: dict[str, list[float]] = {}
    told: dict[str, float] = {}
    for name, way in {"was": kept.was, **kept.others}.items():
        seen[name] = [truth_of(kept.works, way, moved) for _ in range(RUNS)]
        outcomes = [
            outcome_of(name, history, replayed(history, otherwise(name, kept.was, way), moved, seed), 1.0)
            for seed in range(RUNS)
        ]
        assert [each.never for each in outcomes] == [0] * RUNS
        told[name] = median(each.all.p99 or 0.0 for each in outcomes)
    for name, found in seen.items():
        low, high = min(found) * (1 - SHARE) - SECONDS, max(found) * (1 + SHARE) + SECONDS
        assert low <= told[name] <= high, (kind, seen, told)
    truths = {name: median(found) for name, found in seen.items()}
    for one, other in permutations(truths, 2):
        if truths[one] > truths[other] * (1 + 2 * SHARE) + 2 * SECONDS:  # else they are hardly apart
            assert told[one] > told[other], (kind, seen, told)
    print(kind, *(f"{name}: {truths[name]:.2f} {told[name]:.2f};" for name in truths))

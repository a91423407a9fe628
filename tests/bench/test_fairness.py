"""The models of benchmarks/fairness: they lose nothing, keep a tenant's order, and hand out as the real queue does."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fairness.contenders import CONTENDERS, SHAPES, Contender
from benchmarks.fairness.disciplines import Ring, Sharded
from benchmarks.fairness.server import Real
from benchmarks.fairness.waits import BOUND, times
from benchmarks.fairness.window import Limit, Windowed, divided, fixed
from benchmarks.fairness.workload import Workload, simulate
from shardq import Client
from tests.servers import Server

pytestmark = pytest.mark.runs_in("test-all")

steps = st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=200)  # a read, or a write of this tenant


@pytest.mark.parametrize("each", CONTENDERS, ids=lambda each: each.name)
@given(steps=steps)
def test_nothing_is_lost_and_a_reader_never_idles(each: Contender, steps: list[int | None]) -> None:
    """Each message is handed out once, and while there is one a read finds one."""
    queue = each.model(8, 3, "")
    inside: Counter[int] = Counter()
    for number, tenant in enumerate(steps):
        if tenant is None:
            found = queue.read()
            assert (found is not None) == bool(inside.total())
            inside.subtract([found[1]] if found else [])
        else:
            queue.write(tenant, number)
            inside[number] += 1
    while found := queue.read():
        inside.subtract([found[1]])
    assert not any(inside.values())


@pytest.mark.parametrize("limit", [fixed(1), fixed(3), divided(6)])
@given(steps=steps)
def test_the_overflow_keeps_a_tenants_order(limit: Limit, steps: list[int | None]) -> None:
    """With one stream the window hands out each tenant's messages in the order in which they were written."""
    queue = Windowed(1, 1, limit)
    seen = defaultdict(list)
    for number, tenant in enumerate(steps):
        if tenant is not None:
            queue.write(tenant, number)
        elif found := queue.read():
            seen[found[0]].append(found[1])
    while found := queue.read():
        seen[found[0]].append(found[1])
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_a_tenant_does_not_overtake_itself_when_its_window_widens() -> None:
    """Room that others left goes to what waits in overflow, not to what is written next."""
    queue = Windowed(1, 1, divided(4))
    queue.write(1, 0)
    queue.write(0, 0, 1, 2)
    assert queue.read() == (1, 0)
    queue.write(0, 3)
    assert [queue.read() for _ in range(5)] == [(0, 0), (0, 1), (0, 2), (0, 3), None]


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_window_is_what_others_wait_behind(window: int) -> None:
    """In one stream, whoever comes after a flood waits for exactly `window` of its messages."""
    queue = Windowed(1, 1, fixed(window))
    queue.write(0, *range(100))
    queue.write(1, 0)
    assert [queue.read() for _ in range(window + 1)] == [*((0, number) for number in range(window)), (1, 0)]


@given(steps=steps)
def test_the_ring_takes_turns(steps: list[int | None]) -> None:
    """While a tenant waits, no other one is served twice."""
    queue = Ring()
    waiting: Counter[int] = Counter()
    passed: dict[int, Counter[int]] = {}
    for tenant in steps:
        if tenant is not None:
            queue.write(tenant, 0)
            waiting[tenant] += 1
            passed.setdefault(tenant, Counter())
        elif found := queue.read():
            waiting[found[0]] -= 1
            passed.pop(found[0])
            for others in passed.values():
                others[found[0]] += 1
                assert others[found[0]] <= 1
            if waiting[found[0]]:
                passed[found[0]] = Counter()


def test_window_1_bounds_the_wait_and_sharding_alone_does_not() -> None:
    """The model of design.md, promise 5: 20 floods, 64 streams, 6 per shard."""
    load = Workload(20, dequeues=5000, tail=5000, seed=3)
    waits = {
        name: sorted(wait for wait, _ in simulate(queue, load).values())
        for name, queue in (
            ("ideal", Ring()), ("one", Windowed(64, 6, fixed(1))), ("alone", Sharded(64, 6)),
        )
    }  # fmt: skip
    p99 = {name: found[int(0.99 * len(found))] for name, found in waits.items()}
    assert p99["one"] <= 3 * p99["ideal"] < math.inf
    assert p99["alone"] == math.inf


@pytest.mark.once
@pytest.mark.parametrize(("streams", "per_shard", "flooders"), [(16, 2, 4), (64, 6, 20)])
def test_the_model_hands_out_what_the_real_queue_does(
    server: Server, streams: int, per_shard: int, flooders: int
) -> None:
    """Every quiet message waits exactly as long on the server as in the model, one writer and reader."""
    load = Workload(flooders, dequeues=400, tail=200, backlog=40, rate=0.2)
    settings = {"streams": streams, "streams_per_shard": per_shard, "window": 0}
    with Client.from_url(server.url) as client:
        real = simulate(Real(client, "fair", settings, salt="1/"), load)
    assert len(real) > 50
    assert real == simulate(Sharded(streams, per_shard, salt="1/"), load)


@pytest.mark.once
@pytest.mark.parametrize(("streams", "per_shard"), SHAPES)
@pytest.mark.parametrize("batch", [1, 100])
def test_beside_20_floods_window_1_keeps_the_bound_on_the_real_queue(
    server: Server, streams: int, per_shard: int, batch: int
) -> None:
    """The figure of design.md, in messages, so no clock has a part in it: p99 at most 3 x that of ideal fair queueing.

    Without the window it is missed, but for one by one from 256 streams, where floods leave nearly all a clean one.
    """
    dequeues = 300 if batch == 1 else 1_500
    load = Workload(20, dequeues=dequeues, tail=dequeues // 2, backlog=75, rate=0.2, batch=batch, seed=5)
    ideal = [wait for wait, _ in simulate(Ring(), load).values()]
    with Client.from_url(server.url) as client:
        waits = {
            window: [
                wait
                for wait, _ in simulate(
                    Real(client, f"w{window}", {"streams": streams, "streams_per_shard": per_shard, "window": window}),
                    load,
                ).values()
            ]
            for window in (1, 0)
        }
    assert len(ideal) > 50
    assert times(waits[1], ideal) <= BOUND
    assert times(waits[0], ideal) > (1 if streams == 256 else BOUND)


@pytest.mark.once
@pytest.mark.parametrize(("streams", "per_shard"), [(16, 2), (64, 6)])
@pytest.mark.parametrize("batch", [10, 32, 50, 100, 500])
@pytest.mark.parametrize("flooders", [60, 100])
def test_window_1_keeps_the_bound_in_batches_of_any_size(
    server: Server, streams: int, per_shard: int, batch: int, flooders: int
) -> None:
    """More floods than a batch has messages, and fewer: in messages p99 is at most 3 x that of ideal fair queueing."""
    dequeues = max(1_500, 4 * batch) // batch * batch
    backlog = max(30, 3 * batch // flooders)
    load = Workload(flooders, dequeues=dequeues, tail=dequeues // 2, backlog=backlog, rate=0.1, batch=batch, seed=5)
    ideal = [wait for wait, _ in simulate(Ring(), load).values()]
    settings = {"streams": streams, "streams_per_shard": per_shard, "window": 1}
    with Client.from_url(server.url) as client:
        waits = [wait for wait, _ in simulate(Real(client, "sizes", settings), load).values()]
    assert len(ideal) > 50
    assert times(waits, ideal) <= BOUND

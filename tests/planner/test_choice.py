"""The plan beside a search through all N and M, and its costs beside a real server."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardq import Client
from shardq.errors import ConfigError
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.write.command import LoneWrite, call_for
from shardq.ops.write.outgoing import Outgoing
from shardq.planner import Plan, cost, frontier, plan
from shardq.planner.costs import QUEUE_BYTES, STREAM_BYTES
from shardq.sharding import Odds
from shardq.testing import ManualClock
from tests.servers import Server
from tests.unit.driving import state_of
from tests.waiting import eventually


@settings(max_examples=30)
@given(st.integers(1, 6), st.sampled_from([0.5, 0.9, 0.95, 0.99]), st.integers(1, 60))
def test_the_frontier_is_what_a_search_finds(noisy: int, isolation: float, most: int) -> None:
    """For each M the fewest streams, as long as more M saves streams; the plan is the best of them."""
    wanted: list[tuple[int, int]] = []
    for m in range(1, 17):
        fits = [n for n in range(m, most + 1) if 1 - Odds(n, m).blocked(noisy) >= isolation]
        if fits and (not wanted or fits[0] < wanted[-1][0]):
            wanted.append((fits[0], m))
        elif wanted:
            break
    found = frontier(1000, noisy, isolation, most=most)
    assert [(each.streams, each.streams_per_shard) for each in found] == wanted
    if wanted:
        best = plan(1000, noisy, isolation, most=most)
        assert best.isolation >= isolation
        assert best.streams * best.busy == min(each.streams * each.busy for each in found)
    else:
        with pytest.raises(ConfigError, match="plan for fewer noisy tenants"):
            plan(1000, noisy, isolation, most=most)


@pytest.mark.runs_in("test-all")
@given(st.integers(1, 20), st.floats(0, 15.9), st.sampled_from([600, 4096]))
def test_a_plan_gives_what_was_asked_to_the_last_digit(noisy: int, nines: float, most: int) -> None:
    """Also of an isolation that falls short of 1 by a digit of a float or two."""
    asked = min(max(1 - 10**-nines, 0.01), 1 - 2**-53)
    for each in frontier(1000, noisy, asked, most=most):
        assert each.isolation >= asked
        short = Fraction(each.clean[0]) - (1 - Fraction(asked))
        assert short <= Fraction(1, 2**54)  # what is lost in showing it as a float


@given(st.integers(2, 100), st.integers(1, 6), st.integers(1, 30))
def test_more_streams_always_help(n: int, m: int, noisy: int) -> None:
    """The search by halves relies on it."""
    more, fewer = (Plan(each, m, 100, noisy).isolation for each in (n + 1, n))
    assert more >= fewer


def test_a_plan_counts_tenants() -> None:
    """Averages over tenants: quiet ones without a clean stream, and those with the very same shard."""
    chosen = Plan(16, 2, 1201, 4)
    assert chosen.without_clean == pytest.approx(1197 * Odds(16, 2).blocked(4))
    assert chosen.same_shard == pytest.approx(10)
    assert chosen.lost(16)[-1] == 1


@pytest.mark.parametrize("isolation", [0, 1, 1.5, -0.1, float("nan"), "0.9", True])
def test_an_isolation_is_a_share(isolation: float) -> None:
    with pytest.raises(ConfigError, match="isolation must be a share between 0 and 1"):
        plan(1000, 20, isolation)


@pytest.mark.parametrize(("tenants", "noisy"), [(0, 1), (10, 11), (10, 0), (2**40, 1), (1000.0, 1)])
def test_tenants_are_counted_in_whole_numbers(tenants: int, noisy: int) -> None:
    with pytest.raises(ConfigError, match=r"(tenants|noisy) must be an int"):
        plan(tenants, noisy)


@pytest.mark.runs_in("test-all")
def test_the_memory_is_what_a_server_needs(server: Server) -> None:
    """An empty queue of 1,024 streams costs within a factor of two of what the plan says."""
    _fill_and_drain(server, "first", 2, 1)  # scripts: these cost once
    before = _used(server)
    _fill_and_drain(server, "planned", 1024, 4)
    used = _used(server) - before
    assert cost(1024, 4).memory == QUEUE_BYTES + 1024 * STREAM_BYTES
    assert cost(1024, 4).memory / 2 < used < cost(1024, 4).memory * 2


@pytest.mark.parametrize(("n", "m"), [(16, 2), (64, 6), (250, 3), (250, 1), (1024, 4)])
def test_the_keys_are_those_that_writes_declare(n: int, m: int) -> None:
    """One message, and 100 of 100 tenants (within a tenth: which streams they are dealt is chance)."""
    clock = ManualClock()
    state = state_of(clock, streams=n, streams_per_shard=m)
    messages = [Outgoing(f"tenant-{number}", "b", b"") for number in range(100)]
    sequence = ProducerSequence("l")
    _, alone = (LoneWrite(state, state.view, each, sequence, 1.0) for each in messages[:2])  # the first one begins it
    assert len(alone.call.keys) == cost(n, m).write_keys
    many = len(call_for(state, state.view, ProducerSequence("l"), messages, 1.0).keys)
    assert many == pytest.approx(cost(n, m).batch_keys, rel=0.1)


def _fill_and_drain(server: Server, name: str, streams: int, per_shard: int) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue(name, streams=streams, streams_per_shard=per_shard)
        queue.write_many([(b"", f"tenant-{number}") for number in range(2000)])
        while found := queue.read_many(1000):
            queue.ack_many(found)


def _used(server: Server) -> int:
    """The bytes of what is kept: clients have gone with their buffers, and what is freed by threads is."""
    eventually(lambda: server.run("INFO", "clients")["connected_clients"] == 1)
    eventually(lambda: not server.run("INFO", "memory")["lazyfree_pending_objects"])
    return int(server.run("INFO", "memory")["used_memory"])

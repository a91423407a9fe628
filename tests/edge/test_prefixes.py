"""What was sent before makes frames smaller on a full link, and neither messages nor the call depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from shardq.datasink.messages import Request
from shardq.edge import Edge, EdgeMessage
from shardq.edge.compression import Compressor
from shardq.edge.effort import Effort
from shardq.edge.parcels import packed
from shardq.edge.prefixes import MIN_PART, PATIENCE, ProducerPrefixes
from shardq.testing import ManualClock
from tests.edge.sink import Sink, running
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(120), pytest.mark.once, pytest.mark.runs_in("test-all")]
MOST = 2**19


@pytest.fixture
def sink() -> Iterator[Sink]:
    with running(Sink(batches=500, most_prefix=MOST)) as sink:
        yield sink


@pytest.fixture
def edge(sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edge]:
    """A producer whose link is always full."""
    monkeypatch.setattr(Effort, "uses_prefix", True)
    with Edge(sink.address, spool=tmp_path / "s.db", dictionary=False) as edge:
        yield edge


def words(rng: Random, count: int) -> list[bytes]:
    """Payloads of 1,000 bytes, each of which has the same 450,000 bytes in common with all others, and not with few."""
    common = [rng.randbytes(90) for _ in range(4500)]
    return [b"%06d:" % number + b"".join(rng.choices(common, k=11)) for number in range(count)]


def sent(edge: Edge, payloads: list[bytes]) -> None:
    for at in range(0, len(payloads), 100):
        edge.send_many(
            EdgeMessage(each, f"t-{number % 5}", "jobs") for number, each in enumerate(payloads[at : at + 100])
        )
    edge.flush(60)


def arrived(sink: Sink) -> list[bytes]:
    return sorted(sink.stored.values())


@pytest.mark.runs_in("test", "test-all")
def test_frames_are_made_with_what_was_sent_before(sink: Sink, edge: Edge, rng: Random) -> None:
    payloads = words(rng, 4000)
    sent(edge, payloads[:1000])
    eventually(lambda: edge._delivering._prefixes.use, 30)
    before, earlier = len(sink.lengths), len(sink.requests)
    sent(edge, payloads[1000:])
    assert arrived(sink) == payloads
    assert sink.unknown == 0, "each frame could be read"
    assert len(sink.requests) == len(payloads) + edge.status().delivery.again, "none twice but for an ack that was late"
    came = [len(sink.payload(each)) for each in sink.requests[earlier:]]  # more than once where an ack was late
    assert sum(sink.lengths[before:]) < 0.5 * sum(came), "of random bytes, which no frame makes smaller alone"
    assert max(sink.named) > 1, "a new one takes the place of the one before"


def test_a_gateway_that_forgets_says_so_and_gets_all_without(sink: Sink, edge: Edge, rng: Random) -> None:
    payloads = words(rng, 6000)
    for at in range(0, 6000, 1000):
        sent(edge, payloads[at : at + 1000])
        if not at:
            eventually(lambda: edge._delivering._prefixes.use, 30)
        sink.prefixes.clear()
    assert arrived(sink) == payloads
    assert edge.status().delivery.connections == 1
    assert edge.status().delivery.again > 0


def test_a_gateway_that_never_has_room_gets_frames_without(sink: Sink, edge: Edge, rng: Random) -> None:
    sent(edge, [b"first"])
    sink.most_prefix = 1
    payloads = words(rng, 3000)
    sent(edge, payloads)
    assert arrived(sink) == [*payloads, b"first"]
    assert sink.unknown == 0
    assert len(sink.requests) == 3001 + edge.status().delivery.again
    assert set(sink.named) == {0}


def test_an_older_gateway_hears_nothing_of_prefixes(sink: Sink, edge: Edge, rng: Random) -> None:
    """The sink asserts that no batch names one, and that none is offered."""
    sink.act = lambda request, number: "cut" if number == 1 else "ack"
    sink.most_prefix = 0
    edge.send(b"first", queue="jobs", shard_key="t")
    eventually(lambda: edge.status().delivery.connections > 1, 30)
    payloads = words(rng, 2000)
    sent(edge, payloads)
    assert arrived(sink) == [*payloads, b"first"]
    assert set(sink.named) <= {0}


def test_calls_that_are_cut_again_and_again_lose_nothing(sink: Sink, edge: Edge, rng: Random) -> None:
    """Each call begins without a prefix."""
    sink.act = lambda request, number: rng.choices(["ack", "drop", "lose", "cut"], [9970, 20, 5, 5])[0]
    payloads = words(rng, 6000)
    edge.send_many(EdgeMessage(each, "t", "jobs") for each in payloads)
    eventually(lambda: len(sink.stored) > 5000, 90)
    sink.act = lambda request, number: "ack"
    edge.flush(60)
    assert arrived(sink) == payloads
    assert sink.doubled == []
    assert edge.status().spool.refused == 0
    assert max(sink.named) > 0


def test_what_times_out_is_not_under_way_any_more(sink: Sink, edge: Edge, rng: Random) -> None:
    """Else nothing would go out again, as much as should be being under way for ever."""
    payloads = [b"%06d:" % number + rng.randbytes(10_000) for number in range(600)]
    sent(edge, payloads[:300])
    sink.act = lambda request, number: "keep" if number <= 450 else "ack"
    sent(edge, payloads[300:])
    assert arrived(sink) == payloads


def test_a_message_alone_is_a_batch_where_that_has_a_prefix(sink: Sink, edge: Edge, rng: Random) -> None:
    content = rng.randbytes(200_000)
    for number in range(8):
        edge.send(b"%d" % number + content, queue="jobs", shard_key="t")
        edge.flush()
    eventually(lambda: edge._delivering._prefixes.use, 30)
    edge.send(content, queue="jobs", shard_key="t")
    edge.send(b"x" * 300_000, queue="jobs", shard_key="t")
    edge.flush()
    assert sorted(map(len, sink.stored.values())) == [200_000, *[200_001] * 8, 300_000]
    assert min(sink.lengths) < 2000


def part(prefixes: ProducerPrefixes, size: int) -> int | None:
    found = prefixes.part(bytes(size))
    return found.at if found else None


def offer(prefixes: ProducerPrefixes) -> tuple[int, int, int] | None:
    found = prefixes.offer()
    return (found.number, found.at, found.bytes) if found else None


def used(prefixes: ProducerPrefixes) -> int:
    return prefixes.use.number if prefixes.use else 0


def test_parts_follow_each_other_and_the_last_ones_are_offered_again_and_again() -> None:
    prefixes = ProducerPrefixes(ManualClock(), 90_000)
    assert [part(prefixes, size) for size in (20_000, MIN_PART - 1, 90_001)] == [0, None, None]
    assert offer(prefixes) is None
    assert part(prefixes, 20_000) == 20_000
    assert offer(prefixes) == (1, 0, 40_000)
    assert [part(prefixes, 20_000) for _ in range(4)] == [40_000, 60_000, 80_000, 100_000]
    assert offer(prefixes) is None, "nobody has said that the first is known"
    prefixes.told([])
    assert used(prefixes) == 0
    prefixes.told([1])
    assert used(prefixes) == 1
    assert offer(prefixes) == (2, 40_000, 80_000)
    prefixes.told([1])
    assert used(prefixes) == 1
    prefixes.told([1, 2])
    assert used(prefixes) == 2
    prefixes.told([])
    assert used(prefixes) == 0
    assert [part(prefixes, 30_000) for _ in range(2)] == [120_000, 150_000]
    assert offer(prefixes) == (3, 120_000, 60_000)


def test_a_prefix_that_the_gateway_never_knows_is_given_up() -> None:
    clock = ManualClock()
    prefixes = ProducerPrefixes(clock, 90_000)
    part(prefixes, 90_000)
    assert offer(prefixes) == (1, 0, 90_000)
    part(prefixes, 90_000)
    clock.advance(PATIENCE - 1)
    assert offer(prefixes) is None
    clock.advance(2)
    assert offer(prefixes) == (2, 90_000, 90_000)


def test_there_is_none_for_a_gateway_that_knows_none() -> None:
    prefixes = ProducerPrefixes(ManualClock(), 0)
    assert part(prefixes, 90_000) is None
    assert offer(prefixes) is None


def test_a_prefix_that_does_not_pay_is_not_used_and_seldom_offered(
    rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.edge.prefixes.TRIED_OF_PREFIXES", 1)
    prefixes, compressor = ProducerPrefixes(ManualClock(), 40_000), Compressor()
    requests = [Request(version=1, message_id=b"%d" % each, plain_message=rng.randbytes(500)) for each in range(60)]
    content = packed(requests, None, is_batch=True).content
    for number, pays in enumerate([True, False, True], 1):
        prefixes.part(content if pays else rng.randbytes(30_000))
        if number == 3:
            assert offer(prefixes) is None
            prefixes.use = None
        assert offer(prefixes) is not None
        prefixes.told([number])
        assert prefixes.use is not None
        found = [packed(requests, compressor, prefixes.use, is_batch=True) for _ in range(5)]
        assert {each.prefix for each in found} == {number if pays else 0}
        assert prefixes.use.pays_for(is_hard=False) == pays

"""What goes out at once: all that waits, within the bounds of the gateway, and nothing waits for more."""

from __future__ import annotations

import itertools
from random import Random
from types import SimpleNamespace

import pytest

from shardq.clock import SystemClock
from shardq.codec import Codecs
from shardq.datasink.messages import Request
from shardq.datasink.runs import runs_of
from shardq.edge import EdgeMessage
from shardq.edge.compose import SPAN_SECONDS, Ids, compose
from shardq.edge.parcels import COLUMNS, ParcelBounds, packed
from shardq.testing import ManualClock
from tests.edge.sink import Sink
from tests.edge.test_delivering import Made, arrived, made, many, sink
from tests.waiting import eventually

__all__ = ["made", "sink"]  # pytest finds the fixtures here

pytestmark = pytest.mark.timeout(120)


def test_a_lone_message_goes_at_once_as_a_request_of_its_own(sink: Sink, made: Made) -> None:
    edge = made()
    for number in range(3):
        edge.send(b"%d:" % number, queue="jobs", shard_key="t")
        edge.flush()
    assert sink.sizes == [1, 1, 1]
    assert {each.WhichOneof("payload") for each in sink.requests} == {"plain_message"}


def test_what_waits_goes_together(sink: Sink, made: Made) -> None:
    edge = made()
    edge.send_many(many(2000))
    edge.flush(60)
    assert arrived(sink) == list(range(2000))
    if sink.batches:
        assert len(sink.sizes) < 200
        assert max(sink.sizes) <= sink.batches
        assert sum(sink.lengths) < 200 * 2000 * 0.1, "with ids and all"
    else:
        assert set(sink.sizes) == {1}


def test_a_gateway_that_takes_fewer_gets_fewer_at_once(sink: Sink, made: Made) -> None:
    sink.batches = min(sink.batches, 7)
    edge = made()
    edge.send_many(many(200))
    edge.flush(60)
    assert arrived(sink) == list(range(200))
    assert max(sink.sizes) == max(sink.batches, 1)


def test_messages_that_fill_a_batch_to_its_last_byte_are_within_its_bound(sink: Sink, made: Made, rng: Random) -> None:
    """The sink asserts the bound. What no batch has room for goes alone."""
    edge = made(compress=False)
    sizes = [rng.choice((2**16, 2**17, 2**18)) - rng.randrange(160) for _ in range(60)] + [10, 2**20, 10]
    edge.send_many(
        EdgeMessage(b"%d:" % number + bytes(size - 9), f"t-{number % 3}", "jobs") for number, size in enumerate(sizes)
    )
    edge.flush(60)
    assert len(sink.stored) == len(sizes)
    assert edge.status().delivery.connections == 1


def test_a_message_takes_less_in_a_batch_than_as_a_request(rng: Random) -> None:
    """So what is counted before it is put together is enough."""
    ids, codecs = Ids(SystemClock()), Codecs()
    for _ in range(200):
        messages = [
            EdgeMessage(
                rng.randbytes(rng.choice((0, 1, 200, 20_000))), rng.choice(("t", rng.randbytes(9))),
                rng.choice(("a", f"q{rng.random()}")), headers=rng.choice((None, {"a": str(rng.random())})),
                delay=rng.choice((0.0, rng.random())),
            )
            for _ in range(rng.choice((2, 3, 200)))
        ]  # fmt: skip
        requests = [compose(each, codecs, 2**20, ids.take(1)[0]) for each in messages]
        content = packed([Request.FromString(each) for each in requests], None, is_batch=True).content
        assert len(content) <= COLUMNS + sum(map(len, requests))


def test_a_member_that_cannot_be_read_goes_alone_and_plain(sink: Sink, made: Made) -> None:
    """So goes each message of a batch that the gateway cannot take apart. Nothing is lost, or goes for ever."""
    refused = set[bytes]()

    def act(request: Request, number: int) -> str:
        if sink.sizes[-1] == 1 and request.WhichOneof("payload") == "plain_message":
            return "ack"
        refused.add(request.message_id)
        return "refuse NOT_DECODABLE"

    sink.act = act
    edge = made()
    edge.send_many(many(300))
    edge.flush(60)
    assert arrived(sink) == list(range(300))
    assert len(refused) >= 290
    assert edge.status().spool.refused == 0


def test_bounds_of_a_gateway_that_says_too_much_are_not_believed() -> None:
    told = SimpleNamespace(max_batch_messages=2**32 - 1, max_batch_bytes=2**63)
    assert ParcelBounds.told(told) == (500, 2**18)
    assert not ParcelBounds().takes_batches


def test_a_producer_speaks_to_each_gateway_as_that_one_can(sink: Sink, made: Made) -> None:
    """A gateway of the time before takes the place of a new one, and the other way round."""
    edge = made()
    for batches in (sink.batches, 500 - sink.batches, sink.batches):
        sink.batches = batches
        sink.act = lambda request, number: "cut"
        edge.send_many(many(1))
        connections = edge.status().delivery.connections
        eventually(lambda before=connections: edge.status().delivery.connections > before, 30)  # type: ignore[misc]
        sink.act = lambda request, number: "ack"
        edge.send_many(many(100))
        edge.flush(60)


def test_ids_are_unique_sort_by_time_and_follow_each_other_for_a_second() -> None:
    clock = ManualClock()
    ids = Ids(clock)
    found = [ids.take(3), ids.take(1)]
    clock.advance(SPAN_SECONDS / 2)
    found.append(ids.take(10_000))
    assert len(runs_of(itertools.chain(*found))) == 1
    clock.advance(SPAN_SECONDS)
    found.append(ids.take(2))
    made = list(itertools.chain(*found))
    assert made == sorted(set(made))
    assert {len(each) for each in made} == {16}
    assert len(runs_of(made)) == 2
    assert abs(int.from_bytes(made[-1][:6], "big") - clock.wall() * 1000) < 2
    assert Ids(clock).take(1)[0][6:] != made[-1][6:]

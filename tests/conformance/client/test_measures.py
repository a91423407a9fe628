"""What is measured of the calls of both clients: how long they took, what they wrote, read and could not write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client, LeaseLost, Queue, QueueFull, QueueMissing, UniqueConflict
from shardq.model import Message
from shardq.telemetry import Tally, begin_tally
from shardq.telemetry.instruments import CONSUMED, DURATION, PICKUP, REFUSED, SENT, Instrument
from tests.conformance.conftest import OpenQueue
from tests.telemetry import measuring


@pytest.fixture
def tally() -> Iterator[Tally]:
    with measuring.tally_on() as tally:
        yield tally


def calls(tally: Tally, instrument: Instrument = DURATION) -> dict[tuple[str, ...], int]:
    """How many values there are, by operation and error."""
    found = measuring.values(tally, instrument)
    return {key: sum(value.counts) for key, value in found.items()}


def test_each_call_is_measured_by_its_operation(queue: Queue, tally: Tally) -> None:
    queue.write(1, shard_key="t")
    queue.write_many([(number, "t") for number in range(4)])
    first = queue.read()
    first.extend(60)
    first.ack()
    second, third, *rest = queue.read_many(4)
    second.nack()
    third.reject("no")
    assert queue.read_many(9, ack=rest)[0].count == 2
    assert queue.read_many(9) == []
    assert calls(tally) == {
        ("write",): 2, ("read",): 3, ("extend",): 1, ("ack",): 2, ("nack",): 1, ("reject",): 1,
    }  # fmt: skip
    assert measuring.values(tally, SENT) == {("write",): 5}
    assert measuring.values(tally, CONSUMED) == {("read",): 6}
    assert calls(tally, PICKUP) == {("false",): 5, ("true",): 1}


def test_a_call_that_fails_has_the_errors_class(queue: Queue, client: Client, tally: Tally) -> None:
    queue.write(1, shard_key="t")
    delivery = queue.read()
    delivery.ack()
    with pytest.raises(LeaseLost):
        delivery.nack()
    with pytest.raises(QueueMissing):
        client.queue(f"{queue.name}-none").write(1, shard_key="t")
    found = calls(tally)
    assert found["nack", "LeaseLost"] == found["write", "QueueMissing"] == 1
    assert measuring.values(tally, SENT)["write", "QueueMissing"] == 1


def test_what_a_queue_refuses_is_counted_by_reason(open_queue: OpenQueue, tally: Tally) -> None:
    queue = open_queue(max_len=2)
    queue.write(1, shard_key="t", unique_key="one")
    with pytest.raises(UniqueConflict):
        queue.write(1, shard_key="t", unique_key="one", on_conflict="raise")
    with pytest.raises(Exception, match="2 of 3 messages"):
        queue.write_many([Message(number, "t") for number in range(3)])
    with pytest.raises(QueueFull):
        queue.write(1, shard_key="t")
    with queue.client.writer() as writer, pytest.raises(QueueFull):
        writer.write(queue, 1, shard_key="t").result(30)
    assert measuring.values(tally, REFUSED) == {("unique",): 1, ("max_len",): 4}
    assert measuring.values(tally, SENT) == {("write",): 2, ("write", "UniqueConflict"): 1, ("write", "QueueFull"): 4}


def test_what_is_published_counts_in_each_queue(client: Client, queue_name: str, tally: Tally) -> None:
    names = [f"{queue_name}-{number}" for number in range(2)]
    for name in names:
        client.queue(name, create=True)
        client.bind("orders.#", name)
    client.bind("orders.#", f"{queue_name}-gone")
    client.publish("orders.eu", 1, shard_key="t")
    sent = {sample.labels: sample.value for sample in tally.samples() if sample.instrument is SENT}
    assert {labels[0][1]: value for labels, value in sent.items()} == dict.fromkeys(names, 1)


def test_nothing_is_counted_before_anybody_wants_it(queue: Queue) -> None:
    with measuring.nothing_measured():
        queue.write(1, shard_key="t")
        queue.read().ack()
        assert begin_tally().samples() == []

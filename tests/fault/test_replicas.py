"""durability="replica(n)": a write waits for replicas, and says when too few confirmed it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from shardq import DurabilityUnknown, PartlyWritten
from shardq.drivers import wire
from shardq.keys import QueueKeys
from tests.fault.conftest import Open
from tests.servers import Replicated, available


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicated]:
    """A primary and one replica."""
    with Replicated(next(iter(available()), None)) as pair:
        yield pair


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica may take its time."""
    monkeypatch.setattr(wire, "REPLICA_TIMEOUT_MS", 20_000)


@pytest.mark.usefixtures("patient")
def test_a_write_that_a_replica_confirmed_is_told_as_done(pair: Replicated, open_client: Open, queue_name: str) -> None:
    queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name)
    ids = [queue.write("one", shard_key="t"), *queue.write_many([("many", "t")] * 3)]
    assert sorted(delivery.message_id for delivery in queue.read_many(10)) == sorted(ids)
    assert pair.replicas[0].run("EXISTS", QueueKeys(queue_name).meta) == 1


def test_a_write_that_no_replica_confirmed_is_told_with_its_id_and_is_delivered(
    pair: Replicated, open_client: Open, queue_name: str
) -> None:
    queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name)
    with contextlib.suppress(DurabilityUnknown):
        queue.write("-", shard_key="t")
    queue.read().ack()
    pair.replicas[0].pause()
    try:
        with pytest.raises(DurabilityUnknown, match="0 of 1 replicas") as one:
            queue.write("one", shard_key="t")
        with pytest.raises(PartlyWritten) as many:
            queue.write_many([("many", "t")] * 2)
    finally:
        pair.replicas[0].resume()
    results = [result for result in many.value.results if isinstance(result, DurabilityUnknown)]
    assert len(results) == 2
    known = {one.value.result, *(each.result for each in results)}
    assert {delivery.message_id for delivery in queue.read_many(10)} == known
    pair.wait_in_sync()


def test_more_replicas_than_there_are_never_confirm(pair: Replicated, open_client: Open, queue_name: str) -> None:
    queue = open_client(pair.primary.url, durability="replica(2)").queue(queue_name)
    tries, told = 0, ""
    while "1 of 2" not in told and tries < 5:  # the one that there is may be late
        tries += 1
        with pytest.raises(DurabilityUnknown, match="of 2 replicas") as unknown:
            queue.write("one", shard_key="t")
        told = str(unknown.value)
    assert "1 of 2" in told
    assert queue.len() == tries

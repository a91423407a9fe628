"""durability="replica(n)": a write waits for replicas, and says when too few confirmed it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import DurabilityUnknown, PartlyWritten
from shardq.keys import QueueKeys
from tests.fault.conftest import Open
from tests.servers import Replicated, available


@pytest.fixture(scope="module")
def pair() -> Iterator[Replicated]:
    """A primary and one replica."""
    with Replicated(next(iter(available()), None)) as pair:
        yield pair


def test_a_write_that_a_replica_confirmed_is_told_as_done(pair: Replicated, open_client: Open, queue_name: str) -> None:
    queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name)
    ids = [queue.write("one", shard_key="t"), *queue.write_many([("many", "t")] * 3)]
    assert sorted(delivery.message_id for delivery in queue.read_many(10)) == sorted(ids)
    assert pair.replicas[0].run("EXISTS", QueueKeys(queue_name).meta) == 1


def test_a_write_that_no_replica_confirmed_is_told_with_its_id_and_is_delivered(
    pair: Replicated, open_client: Open, queue_name: str
) -> None:
    queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name)
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
    queue.write("again", shard_key="t")


def test_more_replicas_than_there_are_never_confirm(pair: Replicated, open_client: Open, queue_name: str) -> None:
    queue = open_client(pair.primary.url, durability="replica(2)").queue(queue_name)
    with pytest.raises(DurabilityUnknown, match="1 of 2 replicas"):
        queue.write("one", shard_key="t")
    assert queue.len() == 1

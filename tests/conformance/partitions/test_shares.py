"""Weights are shares of the whole queue, also of tenants whose homes are different partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from shardq import Client, Queue
from shardq.partitions.homes import home
from tests.servers import Server

PARTITIONS = 3
NAMES = [f"tenant-{number}" for number in range(40)]
HOMES = [[name for name in NAMES if home(name, PARTITIONS) == number] for number in range(PARTITIONS)]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url) as client:
        yield client


def declared(client: Client, name: str, parents: int = 0) -> Queue:
    """A queue with partitions in which turns cost alike."""
    queue = client.queue(
        name, partitions=PARTITIONS, streams=4, streams_per_shard=2, window=1, fair="messages", parents=parents
    )
    queue.declare()
    return queue


def shares(queue: Queue, weights: Mapping[str, int], batch: int) -> dict[str, float]:
    """What each of these tenants gets for its weight, in parts of what it should get, while all have more."""
    total = sum(weights.values())
    for tenant, weight in weights.items():
        queue.write_many([(None, tenant)] * (60 * weight))
    found = Counter[str]()
    while found.total() < 30 * total:
        some = queue.read_many(batch) if batch > 1 else [queue.read()]
        found.update(str(each.shard_key) for each in some)
        queue.ack_many(some)
    return {tenant: found[tenant] / found.total() * total / weight for tenant, weight in weights.items()}


@pytest.mark.parametrize("batch", [1, 12, 60])
def test_a_tenants_weight_counts_beside_tenants_of_other_partitions(
    client: Client, queue_name: str, batch: int
) -> None:
    weights = {HOMES[0][0]: 4, HOMES[1][0]: 1, HOMES[1][1]: 1, HOMES[2][0]: 2}
    queue = declared(client, queue_name)
    queue.set_weights({tenant: weight for tenant, weight in weights.items() if weight > 1})
    found = shares(queue, weights, batch)
    assert all(0.75 <= share <= 1.3 for share in found.values()), found


def test_weights_of_plans_and_of_parents_are_shares(client: Client, queue_name: str) -> None:
    parents = [HOMES[0][0], HOMES[1][0], HOMES[2][0]]
    queue = declared(client, queue_name, parents=1)
    queue.set_plan("gold", weight=3)
    queue.set_limits({parents[0]: "gold"})
    queue.set_weights({parents[1]: 2})
    found = shares(queue, {f"{parents[0]}/a": 3, f"{parents[1]}/b": 2, f"{parents[2]}/c": 1}, 1)
    assert all(0.75 <= share <= 1.3 for share in found.values()), found

"""A failover that loses the last changes of a queue: who saw them learns it, whatever is changed next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardq import Client, Limits, Queue
from tests.conformance.census import take
from tests.fault.conftest import Open
from tests.proxy import Proxy
from tests.servers import Replicated, Server, available
from tests.surface import differences, moves_of_the_epoch

NAMES = [f"tenant-{number}" for number in range(60)]
Act = Callable[[Queue], Any]

CHANGES: dict[str, Act] = {
    "resize": lambda queue: queue.resize(8),
    "assign": lambda queue: queue.assign(NAMES[:5]),
    "configure": lambda queue: queue.configure(max_len=1),
    "weigh": lambda queue: queue.set_weights({NAMES[0]: 3}),
    "limit": lambda queue: queue.set_limits({NAMES[0]: Limits(rate=5)}),
    "pause": lambda queue: queue.pause(),
    "plan": lambda queue: queue.set_plan("gold", rate=5),
}
"""By the function that moves the epoch."""

APART = {
    "knows": "it tells of a map: the epoch alone is lost, and the next client that goes by that map tells it again",
    "purge": "it is what follows, below",
    "shrink": "it takes away streams that are empty",
}
NEXT: dict[str, Act] = CHANGES | {"configure": lambda queue: queue.configure(max_deliveries=7)}


@pytest.fixture
def pair() -> Iterator[Replicated]:
    """A primary and one replica."""
    with Replicated(next(iter(available()), None)) as pair:
        yield pair


def test_each_function_that_moves_the_epoch_is_lost() -> None:
    assert differences(CHANGES, moves_of_the_epoch(), APART) == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("lost", CHANGES)
@pytest.mark.parametrize("following", NEXT)
def test_a_change_after_one_that_was_lost_is_not_taken_for_it(
    server: Server, open_client: Open, queue_name: str, lost: str, following: str
) -> None:
    """What a failover leaves of the queue is put back as it was before the change that it lost."""
    queue = open_client(server.url).queue(queue_name, streams=4, streams_per_shard=2)
    queue.write("first", shard_key="t")
    kept = {key: server.run("DUMP", key) for key in server.run("KEYS", "*")}
    CHANGES[lost](queue)
    server.run("FLUSHALL")
    for key, value in kept.items():
        server.run("RESTORE", key, 0, value)
    with Client.from_url(server.url) as other:
        NEXT[following](other.queue(queue_name, create=True))
        stats = other.queue(queue_name, create=True).stats()
        shards = dict(other.queue(queue_name, create=True).assignment().items())
        ids = queue.write_many([(name, name) for name in NAMES])
        assert (queue.stats().streams, len(stats.streams)) == (
            other.queue(queue_name, create=True).stats().streams,
            len(stats.streams),
        )
        assert max(int(each.rpartition("-")[2]) for each in ids) < len(stats.streams)
        assert {key: queue.state.shard(key) for key in shards} == shards
        assert queue.state.config == other.queue(queue_name, create=True).settings()
        assert other.queue(queue_name, create=True).purge() == 61
    with server.client() as raw:
        assert take(raw, queue.state.keys).problems() == []


@pytest.mark.runs_in("test-all")
def test_a_promoted_replica_that_lacks_a_resize_serves_those_who_saw_it(pair: Replicated, queue_name: str) -> None:
    with Proxy(pair.primary.url) as proxy, Client.from_url(proxy.url) as client:
        queue = client.queue(queue_name, streams=4)
        queue.write("first", shard_key="t")
        pair.wait_in_sync()
        [replica] = pair.replicas
        replica.run("REPLICAOF", "NO", "ONE")  # from here on it lacks what the primary is told
        assert queue.resize(8) == (8, 8)
        proxy.lead_to(replica.url)
        with Client.from_url(replica.url) as other:
            other.queue(queue_name, create=True).configure(max_deliveries=7)
            ids = queue.write_many([(name, name) for name in NAMES])
            assert {int(each.rpartition("-")[2]) for each in ids} <= {0, 1, 2, 3}
            assert queue.stats().streams == other.queue(queue_name, create=True).stats().streams
            assert queue.purge() == 61

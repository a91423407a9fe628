"""Members of the index of leases that another program wrote: they stop nobody, and the next read removes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client, Queue
from tests.servers import Server
from tests.waiting import eventually

STRANGE = {"strange": 5, "a:b": 6, "": 9e15}


@pytest.fixture(params=[{}, {"parents": 1}, {"total_in_flight": 50}], ids=str)
def queue(request: pytest.FixtureRequest, server: Server, queue_name: str) -> Iterator[Queue]:
    with Client.from_url(server.url) as client:
        jobs = client.queue(queue_name, streams=4, streams_per_shard=2, create=True, **request.param)
        jobs.write_many([(number, "t/1") for number in range(4)])
        assert len(jobs.read_many(2, visibility_timeout=0.1)) == 2
        eventually(lambda: jobs.stats().in_flight == 0, what="the leases are over")
        with server.client() as plain:
            plain.zadd(jobs.state.keys.leases, STRANGE)
            plain.hset(jobs.state.keys.meta, "lease_at", "5")
        yield jobs


def test_figures_are_told_all_the_same(queue: Queue) -> None:
    assert queue.stats().in_flight == 0
    (listed,) = queue.tenants()
    for told in (listed, queue.tenant(listed.shard_key), *queue.tenants("oldest")):
        assert (told.backlog, told.in_flight) == (4, 0)
    assert queue.len() >= 4


def test_a_read_removes_them_and_goes_on(queue: Queue, server: Server) -> None:
    assert sorted(each.payload for each in queue.read_many(9)) == [0, 1, 2, 3]
    with server.client() as plain:
        assert not ({*STRANGE} - {""}) & {each.decode() for each in plain.zrange(queue.state.keys.leases, 0, -1)}
    assert (queue.stats().backlog, queue.stats().in_flight) == (0, 4)


def test_a_purge_removes_them_and_goes_on(queue: Queue) -> None:
    assert queue.purge() == 4
    assert (queue.stats().backlog, queue.len()) == (0, 0)

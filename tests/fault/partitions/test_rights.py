"""The users that `shardq server acl --partitioned` makes do their work in all partitions, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from shardq import BackendError, Client, Worker
from shardq.partitions.homes import home
from tests.acl import Users
from tests.servers import Server
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(20)]


@pytest.fixture
def users(server: Server) -> Iterator[Users]:
    users = Users(server, partitions=True)
    yield users
    users.remove()


def test_each_role_does_its_work_in_all_partitions(server: Server, users: Users) -> None:
    with Client.from_url(server.url) as owner:
        owner.queue("jobs", partitions=PARTITIONS, streams=4, streams_per_shard=2, result_ttl=60).declare()
    clients = {role: Client.from_url(users.url(role)) for role in ("producer", "consumer", "observer", "operator")}
    try:
        jobs = {role: client.queue("jobs", partitions=PARTITIONS, create=False) for role, client in clients.items()}
        jobs["producer"].write("first", shard_key="t")
        jobs["producer"].write_many([(tenant, tenant) for tenant in TENANTS])
        assert jobs["observer"].len() == jobs["observer"].stats().backlog == len(TENANTS) + 1
        assert len(jobs["observer"].tenants()) == 20
        assert len(jobs["observer"].peek(100).messages) == len(TENANTS) + 1
        jobs["operator"].pause(TENANTS[0], seconds=60)
        jobs["operator"].resume(TENANTS[0])
        seen: list[object] = []

        def handle(delivery: object) -> str:
            seen.append(delivery)
            return "done"

        worker = Worker(jobs["consumer"], handle, concurrency=4, signals=False)
        thread = Thread(target=worker.run)
        thread.start()
        try:
            eventually(lambda: len(seen) == len(TENANTS) + 1)
            eventually(lambda: jobs["observer"].len() == 0)
        finally:
            worker.stop()
            thread.join(30)
    finally:
        for client in clients.values():
            client.close()
    assert {home(tenant, PARTITIONS) for tenant in TENANTS} == {0, 1, 2}


def test_they_have_no_other_rights(server: Server, users: Users) -> None:
    with Client.from_url(server.url) as owner:
        owner.queue("jobsnot", partitions=PARTITIONS, streams=4, streams_per_shard=2).declare()
    with Client.from_url(users.url("producer")) as client, pytest.raises(BackendError):
        client.queue("jobsnot").write("x", shard_key="t")

"""Which connections calls use, and that a connection that ends is no concern of the caller."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest

from shardq import AsyncClient, DurabilityUnknown
from shardq.drivers.resp import is_lean
from shardq.drivers.shared_link import LARGE
from shardq.drivers.target import Target
from shardq.protocol.scripts import library
from tests.clients import CLIENT_KINDS, ClientKind, opened
from tests.servers import Server

SMALL = 200


def connections(server: Server) -> set[str]:
    """The connections for calls that clients of shardq have."""
    with server.client() as client:
        return {each["id"] for each in client.client_list() if "shardq-call" in each["name"]}


def load_library(server: Server) -> None:
    """It is so long that a client sends it by itself."""
    with server.client() as client:
        client.function_load(library().text, replace=True)


@pytest.fixture
def lean(server: Server) -> bool:
    """Whether this test's clients take the lean path."""
    return is_lean(Target.parse(server.url))


@pytest.mark.parametrize("kind", CLIENT_KINDS)
def test_a_new_connection_asks_nobody_for_the_version_of_redis_py(
    server: Server, queue_name: str, kind: ClientKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py reads it from disk, which takes longer than to connect."""

    def version(name: str) -> str:
        pytest.fail(f"the version of {name} is asked for")

    with opened(kind, server.url) as client:
        monkeypatch.setattr("importlib.metadata.version", version)
        client.queue(queue_name, create=True).read_many(1)


@pytest.mark.parametrize("kind", CLIENT_KINDS)
def test_hiredis_is_given_no_number_to_pack(
    server: Server, queue_name: str, kind: ClientKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that raises meanwhile would kill the process. redis-py packs the number of the database."""
    given, pack = list[Any](), hiredis.pack_command

    def noting(words: tuple[Any, ...]) -> Any:
        given.extend(words)
        return pack(words)

    monkeypatch.setattr(hiredis, "pack_command", noting)
    with opened(kind, server.url.replace("?db=0", "?db=3")) as client:
        queue = client.queue(queue_name, streams=2)
        queue.write(1, shard_key="t", delay=0.0, deadline=600.0)
        queue.read(block=30).ack()
    assert given
    assert {type(each) for each in given} <= {str, bytes, float}


async def test_the_short_calls_of_all_tasks_share_a_connection(server: Server, queue_name: str, lean: bool) -> None:
    load_library(server)
    others = connections(server)
    async with AsyncClient.from_url(server.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=4)

        async def work(number: int) -> int:
            await queue.write(number, shard_key="t")
            delivery = await queue.read(block=60)
            await delivery.ack()
            return int(delivery.payload)

        done = await asyncio.gather(*map(work, range(SMALL)))
        assert sorted(done) == [*range(SMALL)]
        assert (len(connections(server) - others) == 1) is lean


@pytest.mark.parametrize("path", ["lean"], indirect=True)  # redis-py sends each request by itself
async def test_a_large_request_and_one_that_waits_for_replicas_go_by_themselves(
    server: Server, queue_name: str
) -> None:
    load_library(server)
    others = connections(server)
    async with AsyncClient.from_url(server.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=4)
        await queue.write("small", shard_key="t")
        assert len(connections(server) - others) == 1
        await queue.write(b"x" * 2 * LARGE, shard_key="t")
        assert len(connections(server) - others) == 2
    others = connections(server)
    async with AsyncClient.from_url(server.url, timeout=60, durability="replica(1)") as client:
        queue = client.queue(queue_name, streams=4)
        with pytest.raises(DurabilityUnknown):
            await queue.write("small", shard_key="t")
        assert len(connections(server) - others) == 2


@pytest.mark.parametrize("client_kind", CLIENT_KINDS)
def test_a_connection_that_the_server_closed_is_replaced(server: Server, queue_name: str, client_kind: Any) -> None:
    with opened(client_kind, server.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=4)
        for number in range(20):
            assert queue.write(number, shard_key="t")
            server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert sorted(each.payload for each in queue.read_many(100)) == [*range(20)]


@pytest.mark.parametrize("client_kind", CLIENT_KINDS)
def test_a_server_that_forgot_the_scripts_gets_them_again(server: Server, queue_name: str, client_kind: Any) -> None:
    with opened(client_kind, server.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=4)
        for number in range(3):
            assert queue.write(number, shard_key="t")
            server.run("SCRIPT", "FLUSH")
        assert queue.len() == 3

"""Which connections calls use, and that a connection that ends is no concern of the caller."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import hiredis
import pytest

from shardq import AsyncClient, BackendTimeout, DurabilityUnknown, OutcomeUnknown
from shardq.drivers.async_link import LARGE_REQUEST_BYTES
from shardq.protocol.scripts import library
from tests.clients import CLIENT_KINDS, ClientKind, opened
from tests.proxy import Proxy
from tests.servers import Server

SMALL = 200


def connections(server: Server) -> set[str]:
    """The connections for calls that clients of shardq have."""
    with server.client() as client:
        return {each["id"] for each in client.client_list() if "shardq-call" in each["name"]}


def readers(server: Server) -> set[str]:
    """The connections for blocking reads that clients of shardq have."""
    with server.client() as client:
        return {each["id"] for each in client.client_list() if "shardq-read" in each["name"]}


def age(client: Any, seconds: float) -> None:
    """Make all idle connections of *client* think that they have been idle for so much longer."""
    links = client._driver._links
    if isinstance(links, dict):
        for each in links.values():
            for link in each._idle:
                link.used_at -= seconds
    else:
        for link in links._open:
            link._heard_at -= seconds


def load_library(server: Server) -> None:
    """It is so long that a client sends it by itself."""
    with server.client() as client:
        client.function_load(library().text, replace=True)


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


async def test_the_short_calls_of_all_tasks_share_a_connection(server: Server, queue_name: str) -> None:
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
        assert len(connections(server) - others) == 1


async def test_a_large_request_and_one_that_waits_for_replicas_go_by_themselves(
    server: Server, queue_name: str
) -> None:
    load_library(server)
    others = connections(server)
    async with AsyncClient.from_url(server.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=4)
        await queue.write("small", shard_key="t")
        assert len(connections(server) - others) == 1
        await queue.write(b"x" * 2 * LARGE_REQUEST_BYTES, shard_key="t")
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


@pytest.mark.parametrize("client_kind", CLIENT_KINDS)
def test_a_single_connection_is_enough_for_all_that_does_not_block(
    server: Server, queue_name: str, client_kind: ClientKind
) -> None:
    others = connections(server)
    with opened(client_kind, server.url, timeout=60, max_connections=1) as client:
        queue = client.queue(queue_name, streams=4)
        queue.write("small", shard_key="t")
        queue.write("x" * 2 * LARGE_REQUEST_BYTES, shard_key="t")
        queue.write_many([(number, "t") for number in range(SMALL)])
        first = queue.read()
        second = queue.read(ack=first)
        assert {len(first.payload), len(second.payload)} == {5, 2 * LARGE_REQUEST_BYTES}
        second.ack()
        assert sorted(each.payload for each in queue.read_many(SMALL, block=60)) == [*range(SMALL)]
        assert queue.read_many(1, block=0.05) == []
        assert len(connections(server) - others) == 1


@pytest.mark.parametrize("client_kind", CLIENT_KINDS)
@pytest.mark.parametrize("count", [1, 4])
def test_a_connection_that_was_idle_for_too_long_is_replaced(
    server: Server, queue_name: str, client_kind: ClientKind, count: int
) -> None:
    """`health_check_interval` in the URL says for how long, whether the connection is shared or not."""
    others = connections(server) | readers(server)

    def used() -> tuple[set[str], set[str]]:
        queue.write("work", shard_key="t")
        queue.read(block=60).ack()
        assert queue.read_many(1, block=0.05) == []
        return connections(server) - others, readers(server) - others

    with opened(client_kind, f"{server.url}&health_check_interval=30", timeout=60, max_connections=count) as client:
        load_library(server)
        queue = client.queue(queue_name, streams=4)
        first = used()
        assert list(map(len, first)) == [1, 1]
        age(client, 20)
        assert used() == first
        age(client, 40)
        second = used()
        assert list(map(len, second)) == [1, 1]
        assert not first[0] & second[0]
        assert not first[1] & second[1]


@pytest.mark.parametrize("client_kind", CLIENT_KINDS)
@pytest.mark.parametrize("count", [1, 4])
def test_no_call_waits_on_a_connection_that_the_network_has_forgotten_meanwhile(
    server: Server, queue_name: str, client_kind: ClientKind, count: int
) -> None:
    """Without `health_check_interval`, the first call afterwards has no answer, and the next one a new connection."""
    for interval in (0, 30):
        with Proxy(server.url) as proxy:
            url = f"{proxy.url}?health_check_interval={interval}"
            with opened(client_kind, url, timeout=60, max_connections=count) as client:
                queue = client.queue(f"{queue_name}-{interval}", streams=4)
                queue.write("before", shard_key="t")
                proxy.forget()
                age(client, 40)
                if not interval:
                    with pytest.raises((BackendTimeout, OutcomeUnknown)):
                        queue.write("lost", shard_key="t", timeout=0.3)
                begun = time.monotonic()
                queue.write("after", shard_key="t")
                assert time.monotonic() - begun < 4.5, "a try takes 5 s if the server says nothing"
                assert sorted(each.payload for each in queue.read_many(9)) == ["after", "before"]

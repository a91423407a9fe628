"""Whole clients: their calls are functions, and scripts of the same text where no library can be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from shardq.protocol import scripts
from shardq.testing import fake_client
from tests.clients import CLIENT_KINDS, opened
from tests.conformance.drivers.libraries import commands, emptied, forget_commands, loaded
from tests.servers import Replicated, Server, ServerKind
from tests.waiting import eventually

FORBIDDEN = "reset on >PASSWORD ~* +@all -function"


@pytest.fixture
def server(server: Server) -> Server:
    """A server without libraries, which counts commands from now on."""
    return emptied(server)


@pytest.fixture(params=CLIENT_KINDS)
def open_client(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens clients of this kind."""
    with ExitStack() as stack:
        yield lambda url, **settings: stack.enter_context(opened(request.param, url, timeout=60, **settings))


def is_blocked(server: Server) -> bool:
    return int(server.info("clients")["blocked_clients"]) > 0


def test_a_client_runs_functions_where_there_are_any(server: Server, queue_name: str, open_client: Any) -> None:
    queue = open_client(server.url).queue(queue_name, streams=4)
    for number in range(3):
        queue.write(number, shard_key="t")
        delivery = queue.read(block=60)
        assert delivery.payload == number
        delivery.ack()
    queue.write_many([(number, "t") for number in range(20)])
    first = queue.read()
    server.run("FUNCTION", "FLUSH")
    rest = queue.read_many(20, ack=first)
    assert (len(rest), queue.stats().in_flight) == (19, 19)
    assert loaded(server) == {scripts.library().name}
    assert commands(server)["fcall"] >= 10
    assert commands(server)["function|load"] == 2


def test_a_blocked_read_gets_its_message_although_the_functions_are_gone(
    server: Server, queue_name: str, open_client: Any
) -> None:
    queue = open_client(server.url).queue(queue_name, streams=4)
    with ThreadPoolExecutor(1) as pool:
        for number in range(3):
            reading = pool.submit(queue.read, block=60)
            eventually(lambda: is_blocked(server))
            server.run("FUNCTION", "FLUSH")
            queue.write(number, shard_key="t")
            assert reading.result(60).payload == number


def test_a_blocked_read_of_a_user_without_functions_runs_a_script(
    server: Server, queue_name: str, open_client: Any
) -> None:
    server.run("ACL", "SETUSER", "restricted", *FORBIDDEN.split())
    queue = open_client(server.url.replace("unix://", "unix://restricted:PASSWORD@")).queue(queue_name, streams=4)
    with ThreadPoolExecutor(1) as pool:
        for number in range(3):
            reading = pool.submit(queue.read, block=60)
            eventually(lambda: is_blocked(server))
            queue.write(number, shard_key="t")
            assert reading.result(60).payload == number
            seen = commands(server)
            forget_commands(server)
            if number:  # what the first one learnt holds for the connection that blocks, too
                assert {"evalsha"} == {*seen} - {"evalsha_ro"}
                assert seen["evalsha"] <= 4
    server.run("ACL", "DELUSER", "restricted")


def test_a_full_server_is_drained_by_a_client_that_comes_then(
    server: Server, queue_name: str, open_client: Any
) -> None:
    writer = open_client(server.url).queue(queue_name, streams=4)
    for number in range(3):
        writer.write(number, shard_key="t")
    server.run("FUNCTION", "FLUSH")
    server.run("CONFIG", "SET", "maxmemory", 1)
    queue = open_client(server.url).queue(queue_name, create=False)
    found = [queue.read(block=60) for _ in range(3)]
    for delivery in found:
        delivery.ack()
    assert {delivery.payload for delivery in found} == {0, 1, 2}
    assert (queue.len(), loaded(server)) == (0, set())
    server.run("CONFIG", "SET", "maxmemory", 0)


def test_a_write_that_waits_for_replicas_brings_the_library(
    kind: ServerKind | None, queue_name: str, open_client: Any
) -> None:
    with Replicated(kind) as pair:
        queue = open_client(pair.primary.url, durability="replica(1)").queue(queue_name, streams=4)
        queue.write("x", shard_key="t")
        pair.wait_in_sync()
        assert loaded(pair.primary) == loaded(pair.replicas[0]) != set()
        assert queue.read(block=60).payload == "x"


def test_the_fake_runs_the_same_text_as_scripts(queue_name: str) -> None:
    queue = fake_client().queue(queue_name, create=True)
    queue.write("x", shard_key="t")
    assert queue.read().payload == "x"

"""The health check says whether messages can be stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shardq import AsyncClient
from shardq.datasink import messages
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, request
from tests.gateway.test_storing import made
from tests.servers import Server

pytestmark = pytest.mark.once
CHECK = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
WITHIN = 5.0  # the bound of the promise


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop."""
    with Server() as server:
        yield server


class Health:
    """Asks a gateway how it is."""

    def __init__(self, channel: Any) -> None:
        self._check = channel.unary_unary(
            CHECK,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )

    async def says(self, service: str = "") -> Any:
        return (await self._check(health_pb2.HealthCheckRequest(service=service))).status

    async def becomes(self, status: Any) -> float:
        """Ask until the answer is *status*, for both names; how long that took."""
        began = time.monotonic()
        while [await self.says(), await self.says(messages.SERVICE)] != [status, status]:
            assert time.monotonic() - began < 60
            await asyncio.sleep(0.25)  # who asks more often has no calls left
        return time.monotonic() - began


@contextmanager
def paused(server: Server) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


@contextmanager
def gone(server: Server) -> Iterator[None]:
    server.kill9()
    try:
        yield
    finally:
        server.start()


@contextmanager
def full(server: Server) -> Iterator[None]:
    server.run("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        server.run("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def without_rights(server: Server) -> Iterator[None]:
    server.run("ACL", "SETUSER", "default", "-fcall", "-evalsha", "-eval")
    try:
        yield
    finally:
        server.run("ACL", "SETUSER", "default", "+@all")


@contextmanager
def with_another_password(server: Server) -> Iterator[None]:
    """The password is another one, and connections that knew the old one are closed."""
    server.run("CONFIG", "SET", "requirepass", "changed")
    with server.client(password="changed") as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call, unused-ignore]
        try:
            yield
        finally:
            client.execute_command("CONFIG", "SET", "requirepass", "")  # type: ignore[no-untyped-call, unused-ignore]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("trouble", [paused, gone, full, without_rights, with_another_password])
@pytest.mark.parametrize("kind", ["any", "named"])
async def test_health_says_within_five_seconds_whether_messages_can_be_stored(
    start: Start, own_server: Server, queue_name: str, tokens: TokenFile, trouble: Callable[..., Any], kind: str
) -> None:
    tokens.add("edge", queues=["*"] if kind == "any" else [queue_name])
    async with (
        start(tokens=tokens.path, url=own_server.url) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        health = Health(channel)
        assert await health.says() == SERVING
        with trouble(own_server):
            assert await health.becomes(NOT_SERVING) < WITHIN
            assert await health.says("liveness") == SERVING
        assert await health.becomes(SERVING) < WITHIN
        with own_server.client() as client:
            assert not list(client.scan_iter("shardq:*")), "to look leaves nothing behind"


async def test_what_was_stored_shows_it_without_a_look(
    start: Start, redis_client: AsyncClient, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(redis_client, queue_name)
    async with start() as (gateway, address), Producer(address) as producer:
        tried: list[bool] = []

        async def no_try() -> bool:
            tried.append(True)
            return True

        monkeypatch.setattr(gateway.readiness, "_try", no_try)
        await producer.send(request(1, queue_name))
        await producer.until(lambda: producer.acked)
        await gateway.readiness.look()
        assert not tried
        await gateway.readiness.look()
        assert tried


async def test_a_gateway_that_starts_without_redis_is_not_ready(start: Start, own_server: Server) -> None:
    own_server.kill9()
    async with (
        start(url=own_server.url) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        assert await Health(channel).says() == NOT_SERVING
        own_server.start()
        assert await Health(channel).becomes(SERVING) < WITHIN


@pytest.mark.parametrize(
    ("queues", "status"),
    [([["foreign"], ["mine"]], SERVING), ([["foreign"], ["*"]], NOT_SERVING), ([["mi*"]], SERVING)],
    ids=["one of two", "all that are named", "none is named"],
)
async def test_queues_without_rights_count_only_if_they_are_all_that_are_named(
    start: Start, own_server: Server, tokens: TokenFile, queues: list[list[str]], status: Any
) -> None:
    for number, some in enumerate(queues):
        tokens.add(f"token-{number}", queues=some)
    own_server.run("ACL", "SETUSER", "default", "resetkeys", "~shardq:{mine}:*")
    async with (
        start(tokens=tokens.path, url=own_server.url) as (_, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        assert await Health(channel).says() == status

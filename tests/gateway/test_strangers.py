"""What strangers can do to a gateway: they have budgets of their own, and all others are served as before."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2

from shardq import AsyncClient
from shardq.datasink import messages
from shardq.gateway import strangers, visitor
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, happened, request
from tests.gateway.stranger import (
    CHECK,
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    NOBODY,
    PING,
    RST_STREAM,
    Stranger,
    calls,
    frame,
    headers,
    literal,
)  # fmt: skip
from tests.gateway.test_storing import made

pytestmark = pytest.mark.once
WATCH = "/grpc.health.v1.Health/Watch"
HEALTH_WITHIN = 1.0  # the bound of the promise
ALONE = [("grpc.use_local_subchannel_pool", 1)]


async def check_health(address: str) -> float:
    """Ask over a new connection whether the gateway serves; how long that took."""
    began = time.monotonic()
    async with grpc.aio.insecure_channel(address, options=ALONE) as channel:
        check = channel.unary_unary(CHECK, response_deserializer=health_pb2.HealthCheckResponse.FromString)
        answer = await check(b"", timeout=20)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    return time.monotonic() - began


@asynccontextmanager
async def crowd(address: str, count: int, says: bytes = b"", source: str = NOBODY) -> AsyncIterator[list[Stranger]]:
    """So many connections of strangers, as far as they are let in."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                found.append(await Stranger.come(address, source, says=says))
                stack.push_async_callback(found[-1].leave)
        yield found


async def others_are_served(address: str, token: str, queue: str) -> None:
    """New producers are let in and their messages stored, and health answers in time, each over a new connection.

    The best of five times counts: this machine may stand still.
    """
    took = []
    for number in range(5):
        took.append(await check_health(address))
        async with Producer(address, token, options=ALONE) as producer:
            await producer.send(request(number, queue))
            await producer.until(lambda: producer.acked or producer.code)
            assert producer.acked == [b"id-%d" % number]
    assert min(took) < HEALTH_WITHIN


async def test_calls_whose_requests_never_come_keep_nobody_out(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("honest")
    async with start(tokens=tokens.path) as (_, address), crowd(address, 8, calls(95)) as slow:
        await slow[0].until(lambda: slow[0].frames)
        await others_are_served(address, secret, queue_name)
        for each in slow:
            await each.until(lambda: each.gone.is_set() or len({at for _, at in each.frames if at}) == 95)  # noqa: B023


async def test_a_call_with_one_request_has_a_second_for_it(start: Start) -> None:
    async with start() as (_, address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(CHECK)()
        assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_rubbish_for_the_health_check_is_refused_without_a_traceback(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with start() as (_, address), grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            await channel.unary_unary(CHECK)(b"\xff\xff rubbish")
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in caplog.text


@pytest.mark.runs_in("test-all")
async def test_a_thousand_connections_keep_nobody_out(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("honest")
    async with start(tokens=tokens.path, connections_per_address=20) as (gateway, address), crowd(address, 1000):
        await happened(lambda: gateway.door.entrances[0].strangers.by_name[NOBODY].turned_away >= 900)
        assert len(gateway.door.entrances[0].strangers.by_name[NOBODY].strangers) <= 20
        await others_are_served(address, secret, queue_name)


@pytest.mark.runs_in("test-all")
async def test_strangers_of_many_addresses_are_bounded_in_all(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("honest")
    async with start(tokens=tokens.path, connections_per_address=20) as (gateway, address), AsyncExitStack() as stack:
        for number in range(2, 42):
            await stack.enter_async_context(crowd(address, 5, source=f"127.0.1.{number}"))
        await happened(lambda: len(gateway.door.entrances[0].strangers.by_name) == 40)
        assert len(gateway.door.entrances[0].strangers.everyone()) == 20 * strangers.ALL_STRANGERS_FACTOR
        await others_are_served(address, secret, queue_name)


FLOODS = {
    "resets": calls(1) + frame(RST_STREAM, 0, 1, bytes(4)),
    "denied": calls(95, messages.SEND),
    "checks": calls(95),
    "pings": frame(PING, 0, 0, bytes(8)) * 100,
    "headers": frame(HEADERS, 0, 1, headers()) + frame(CONTINUATION, 0, 1, literal("x", "y" * 100)) * 100,
    "wide": frame(HEADERS, END_HEADERS, 1, headers() + literal("x", "y" * 15_000)),
    "rubbish": bytes(range(256)) * 100,
}


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_is_not_even_read_and_keeps_nobody_out(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, kind: str
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("honest")
    async with start(tokens=tokens.path) as (gateway, address), crowd(address, 20) as found:
        before = gateway.door.passed
        pouring = [asyncio.create_task(each.pour(FLOODS[kind], 10_000)) for each in found]
        try:  # until then this process is busy with what the gateway's kernel takes in
            await happened(lambda: all(each.waits or each.gone.is_set() for each in found))
            await others_are_served(address, secret, queue_name)
        finally:
            for task in pouring:
                task.cancel()
            await asyncio.gather(*pouring, return_exceptions=True)
        assert gateway.door.passed - before < 20 * strangers.BYTES_AND_RATE


async def test_a_stranger_that_guesses_tokens_is_cut_off(start: Start, tokens: TokenFile) -> None:
    tokens.add("honest")
    async with start(tokens=tokens.path) as (gateway, address), AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(crowd(address, 1, calls(90, messages.SEND, f"guess-{number}")))
            for number in range(3)
        ]
        await found[-1][0].gone.wait()
        assert gateway.totals().denied < strangers.CALLS * 2


async def test_a_connection_without_a_token_ends_and_one_with_a_token_stays(
    start: Start, tokens: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitor, "PATIENCE", 0.5)
    secret = tokens.add("honest")
    async with start(tokens=tokens.path) as (gateway, address), Producer(address, secret) as producer:
        await producer.until(lambda: producer.news)
        async with crowd(address, 1) as found:
            await found[0].gone.wait()
        assert not producer.code
        assert len(gateway.connections) == 1


async def test_all_methods_count_in_the_budget_of_a_token(start: Start, tokens: TokenFile) -> None:
    secret, other = tokens.add("greedy"), tokens.add("other")
    bearer = (("authorization", f"Bearer {secret}"),)
    async with (
        start(tokens=tokens.path, connections_per_token=3) as (gateway, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        watches = [channel.unary_stream(WATCH)(b"", metadata=bearer) for _ in range(3)]
        for watch in watches:
            await watch.read()
        for method in (messages.SEND, WATCH):
            call = channel.stream_stream(method)(metadata=bearer)
            assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await check_health(address)
        async with Producer(address, other) as producer:
            await producer.until(lambda: producer.news)
        watches[0].cancel()
        await happened(lambda: gateway.calls["greedy"] == 2)
        async with Producer(address, secret) as producer:
            await producer.until(lambda: producer.news)


@pytest.mark.runs_in("test-all")
async def test_an_address_for_health_checks_is_free_also_for_those_who_share_their_own_with_a_stranger(
    start: Start, tokens: TokenFile
) -> None:
    """As behind a proxy that hides addresses: the stranger's budget is used up, and so is that of the checks."""
    async with start(tokens=tokens.path, connections_per_address=8, health="127.0.0.1:0") as (gateway, address):
        first, health = gateway.door.entrances
        async with crowd(address, 40, source="127.0.0.1"):
            await happened(lambda: first.strangers.by_name["127.0.0.1"].turned_away)
            assert min([await check_health(health.address) for _ in range(5)]) < HEALTH_WITHIN

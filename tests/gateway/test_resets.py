"""Calls that are begun and reset at once, and frames that are no messages: with a token or without, they are bounded.

gRPC's own part of them is done in threads of its own, and costs others what the machine has no more processors for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from shardq import AsyncClient
from shardq.datasink.messages import SEND
from shardq.files import MIB
from shardq.gateway.rates import CALLS, Rates
from shardq.gateway.settings import GatewaySettings
from shardq.gateway.tokens import UNCHECKED
from shardq.testing import ManualClock
from tests.gateway.conftest import Start, TokenFile
from tests.gateway.producer import Producer, happened, request
from tests.gateway.stranger import CHECK, PRIORITY, Stranger, calls, frame, resets
from tests.gateway.test_storing import made

pytestmark = pytest.mark.once
PER_TOKEN = 8
SPENT = CALLS * PER_TOKEN
MANY = 200
"""Calls that are begun at once."""


async def pour(known: Stranger, more: Callable[[int], bytes]) -> None:
    """Say *more* of a stream's number again and again, until the other side ends the connection."""
    first = 3
    try:
        while not known.gone.is_set():
            await known.pour(more(first), 1)
            first += 2 * MANY
            await asyncio.sleep(0)
    except OSError:
        pass


@asynccontextmanager
async def poured(address: str, token: str, more: Callable[[int], bytes]) -> AsyncIterator[Stranger]:
    """While a connection with a call under way says *more*."""
    known = await Stranger.come(address, says=calls(1, SEND, token))
    await known.until(lambda: (0, 1) in known.frames, timeout=30)  # the gateway's news
    pouring = asyncio.create_task(pour(known, more))
    try:
        yield known
    finally:
        pouring.cancel()
        await asyncio.gather(pouring, return_exceptions=True)
        await known.leave()


@pytest.mark.parametrize("kind", ["with the token", "without one", "health checks", "no calls"])
async def test_a_connection_that_only_makes_work_is_ended_and_others_go_on(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, kind: str
) -> None:
    await made(redis_client, queue_name)
    evil, honest = tokens.add("evil"), tokens.add("honest")
    more: dict[str, Callable[[int], bytes]] = {
        "with the token": lambda first: resets(MANY, SEND, evil, first=first),
        "without one": lambda first: resets(MANY, SEND, first=first),
        "health checks": lambda first: resets(MANY, CHECK, first=first),
        "no calls": lambda _: frame(PRIORITY, 0, 1, bytes(5)) * 4000,
    }
    async with (
        start(tokens=tokens.path, connections_per_token=PER_TOKEN) as (gateway, address),
        Producer(address, honest) as producer,
    ):
        async with poured(address, evil, more[kind]) as known:
            number = 0
            while not known.gone.is_set():
                await producer.send(request(number, queue_name))
                await producer.until(lambda: b"id-%d" % number in producer.acked)  # noqa: B023
                number += 1
        begun = gateway.totals().connections
        passed = gateway.door.passed
    assert begun <= SPENT + 2, "of the calls that were reset most were never served"
    assert passed <= 16 * MIB
    assert number == len(producer.acked)


async def test_calls_in_which_something_comes_count_as_messages(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    await made(redis_client, queue_name)
    secret = tokens.add("t")
    async with start(tokens=tokens.path, connections_per_token=1) as (gateway, address):
        for number in range(3 * CALLS):
            async with Producer(address, secret) as producer:
                await producer.send(request(number, queue_name))
                await producer.until(lambda: producer.acked)
            await happened(lambda: not gateway.connections)


def test_calls_in_which_nothing_comes_are_few() -> None:
    settings = GatewaySettings("127.0.0.1:0", insecure=True, connections_per_token=PER_TOKEN)
    clock = ManualClock()
    rates = Rates(UNCHECKED, settings, clock)
    assert [rates.begin_call() for _ in range(SPENT + 1)] == [True] * SPENT + [False]
    clock.advance(1)
    assert [rates.begin_call() for _ in range(SPENT // 16 + 1)] == [True] * (SPENT // 16) + [False]
    rates.use_call()
    assert [rates.begin_call() for _ in range(2)] == [True, False]


async def test_large_messages_in_parts_end_no_connection(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(bytes_per_second=0) as (gateway, address):
        async with Producer(address) as producer:
            await producer.send(*[request(number, queue_name, plain_message=bytes(MIB)) for number in range(20)])
            await producer.send(*[request(number, queue_name, plain_message=b"") for number in range(20, 1000)])
            await producer.until(lambda: len(producer.acked) + len(producer.dropped) == 1000)
        assert gateway.door.passed > 20 * MIB

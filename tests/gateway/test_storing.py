"""What a gateway acks is in the queue, once; what it refuses is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable

import pytest
from backports import zstd

from shardq import AsyncClient
from shardq.gateway.connection import MESSAGES_A_BATCH
from tests.gateway.conftest import GatewayProcess, Start
from tests.gateway.producer import Producer, happened, request
from tests.servers import Server

pytestmark = pytest.mark.once


async def contents(client: AsyncClient, name: str) -> list[object]:
    """The payloads in a queue, which is emptied."""
    queue, found = client.queue(name, create=True), []
    while deliveries := await queue.read_many(1000):
        found += [each.payload for each in deliveries]
        await queue.ack_many(deliveries)
    return found


async def made(client: AsyncClient, name: str, **settings: object) -> None:
    """Make a queue, since a gateway makes none."""
    await client.queue(name, streams=4, **settings).read_many(1)  # type: ignore[arg-type]


async def test_a_message_arrives_as_it_was_sent(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    await made(redis_client, queue_name)
    async with start() as (_, address), Producer(address) as producer:
        packed = zstd.compress(b'{"a": 1}' * 50)
        await producer.send(
            request(1, queue_name, key=b"tenant-1", plain_message=b"\x00\xff", headers={"kind": "raw"}),
            request(2, queue_name, key=b"\xff\xfe", plain_message=b'{"a": 1}', codec="j"),
            request(3, queue_name, zstd_compressed=packed),
            request(4, queue_name, plain_message=b""),
        )
        await producer.until(lambda: len(producer.acked) == 4)
        assert producer.news.capacity == 1000
        assert producer.news.max_message == 1024 * 1024
    queue = redis_client.queue(queue_name, create=True)
    found = {each.body: each for each in await queue.read_many(9)}
    assert set(found) == {b"\x00\xff", b'{"a": 1}', b'{"a": 1}' * 50, b""}
    assert found[b"\x00\xff"].headers == {"kind": "raw"}
    assert found[b"\x00\xff"].shard_key == "tenant-1"
    assert found[b'{"a": 1}'].payload == {"a": 1}
    assert found[b'{"a": 1}'].shard_key == b"\xff\xfe"


@pytest.mark.runs_in("test-all")
async def test_ten_thousand_small_messages_are_acked_in_order(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(capacity=20_000) as (_, address), Producer(address) as producer:
        await producer.send(*[request(number, queue_name) for number in range(10_000)])
        await producer.done()
        await producer.ended()
        assert producer.acked == [b"id-%d" % number for number in range(10_000)]
    assert sorted(await contents(redis_client, queue_name)) == sorted(b"%d" % number for number in range(10_000))  # type: ignore[type-var]


async def test_a_message_that_is_sent_again_is_stored_once(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start() as (_, first), start() as (_, second):
        for address in (first, first, second):
            async with Producer(address) as producer:
                await producer.send(*[request(number, queue_name) for number in (1, 2, 1)])
                await producer.until(lambda: len(producer.acked) == 3)
    assert sorted(await contents(redis_client, queue_name)) == [b"1", b"2"]  # type: ignore[type-var]


async def test_ids_of_two_tokens_are_different_messages(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: object
) -> None:
    await made(redis_client, queue_name)
    secrets = [tokens.add(name) for name in ("one", "two")]  # type: ignore[attr-defined]
    async with start(tokens=tokens.path) as (_, address):  # type: ignore[attr-defined]
        for secret in secrets:
            async with Producer(address, secret) as producer:
                await producer.send(request(1, queue_name))
                await producer.until(lambda: producer.acked)
    assert await contents(redis_client, queue_name) == [b"1", b"1"]


@pytest.mark.runs_in("test-all")
async def test_nothing_is_lost_or_doubled_when_the_gateway_is_killed(
    run_gateway: Callable[..., GatewayProcess], redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    gateway = run_gateway("--insecure")
    acked: set[bytes] = set()
    wanted = {b"id-%d" % number: request(number, queue_name) for number in range(2000)}
    for kill_after in (300, 900, 10_000):
        async with Producer(gateway.address) as producer:
            sending = asyncio.create_task(
                _send_all(producer, [each for key, each in wanted.items() if key not in acked])
            )
            goal = min(kill_after, len(wanted) - len(acked))
            await producer.until(lambda: len(set(producer.acked)) >= goal)  # noqa: B023
            if kill_after < 10_000:
                gateway.signal(signal.SIGKILL)
                await gateway.ended()
                await producer.ended()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            acked |= set(producer.acked)
        if kill_after < 10_000:
            acked -= set(list(acked)[:50])  # as if these acks had been lost
            gateway = run_gateway("--insecure")
    assert sorted(await contents(redis_client, queue_name)) == sorted(b"%d" % number for number in range(2000))  # type: ignore[type-var]


async def _send_all(producer: Producer, requests: list[object]) -> None:
    """Send within a window of 500, until the call ends."""
    for sent, each in enumerate(requests):
        await producer.until(lambda: sent - len(producer.acked) < 500 or producer.code is not None)  # noqa: B023
        await producer.send(each)


@pytest.mark.runs_in("test-all")
async def test_no_ack_comes_before_redis_has_the_message(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    async with start(timeout=1.0) as (gateway, address), Producer(address) as producer:
        await producer.send(request(0, queue_name))
        await producer.until(lambda: producer.acked)
        server.pause()
        try:
            await producer.send(*[request(number, queue_name) for number in range(1, 2 * MESSAGES_A_BATCH)])
            await happened(lambda: gateway.totals().retried > 0)
            assert producer.acked == [b"id-0"]
        finally:
            server.resume()
        await producer.until(lambda: len(producer.acked) == 2 * MESSAGES_A_BATCH)
        assert producer.acked == [b"id-%d" % number for number in range(2 * MESSAGES_A_BATCH)]
    assert len(await contents(redis_client, queue_name)) == 2 * MESSAGES_A_BATCH


async def test_a_full_queue_delays_and_loses_nothing(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    await made(redis_client, queue_name, max_len=100)
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.send(*[request(number, queue_name) for number in range(300)])
        found: list[object] = []
        await happened(lambda: gateway.totals().retried > 0)
        async with asyncio.timeout(60):
            while len(found) < 300:
                found += await contents(redis_client, queue_name)
        await producer.until(lambda: len(producer.acked) == 300)
        assert not producer.refused
        assert not producer.dropped
    assert sorted(found) == sorted(b"%d" % number for number in range(300))  # type: ignore[type-var]


async def test_a_topic_goes_to_each_bound_queue_once(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    names = [f"{queue_name}.{number}" for number in range(2)]
    for name in names:
        await made(redis_client, name)
        await redis_client.bind("metrics.#", name)
    async with start() as (_, address), Producer(address) as producer:
        await producer.send(
            request(1, topic="metrics.cpu"), request(1, topic="metrics.cpu"), request(2, topic="elsewhere")
        )
        await producer.until(lambda: len(producer.acked) == 2 and producer.refused)
        assert producer.refused[b"id-2"].reason == 4
    assert [await contents(redis_client, name) for name in names] == [[b"1"], [b"1"]]


@pytest.mark.runs_in("test-all")
async def test_released_ids_are_forgotten_and_others_are_kept_for_a_week(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    keys = redis_client.queue(queue_name, create=True).state.keys
    async with start() as (gateway, address), Producer(address) as producer:
        await producer.say(name="edge-1", releases=True)
        await producer.send(*[request(number, queue_name) for number in range(5)])
        await producer.until(lambda: len(producer.acked) == 5)
        with server.client() as raw:
            ends = [end for _, end in raw.zrange(keys.dedup_index, 0, -1, withscores=True)]
            seconds, _ = raw.time()
        assert max(ends) > (seconds + 6.9 * 86_400) * 1000
        await producer.say(released=[b"id-0", b"id-3", b"never"])
        await happened(lambda: gateway.totals().released == 2)
        with server.client() as raw:
            left = sorted(key for key in raw.hkeys(keys.dedup) if key.startswith(b"g:"))
        assert left == sorted(b"g:insecure:" + (b"id-%d" % number).hex().encode() for number in (1, 2, 4))


async def test_an_id_is_not_forgotten_while_another_connection_holds_a_copy(
    start: Start, server: Server, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name)
    full = f"{queue_name}.full"
    await made(redis_client, full, max_len=1)
    await redis_client.queue(full, create=True).write("fills it", shard_key="t")
    async with start() as (gateway, address), Producer(address) as hangs, Producer(address) as producer:
        await hangs.send(request(9, full), request(1, queue_name))  # the second waits behind the first
        await happened(lambda: gateway.totals().retried > 0)
        await producer.say(releases=True)
        await producer.send(request(1, queue_name))
        await producer.until(lambda: producer.acked)
        await producer.say(released=[b"id-1"])
        await producer.send(request(2, queue_name))
        await producer.until(lambda: len(producer.acked) == 2)
        await gateway.releases.forget_due()
        assert gateway.totals().released == 0
        await contents(redis_client, full)
        await hangs.until(lambda: len(hangs.acked) == 2)
    assert sorted(await contents(redis_client, queue_name)) == [b"1", b"2"]  # type: ignore[type-var]


async def test_the_payload_of_a_large_batch_is_whole(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    await made(redis_client, queue_name)
    bodies = [os.urandom(1000) * 900 for _ in range(12)]
    async with start() as (_, address), Producer(address) as producer:
        await producer.send(
            *[request(n, queue_name, zstd_compressed=zstd.compress(body)) for n, body in enumerate(bodies)]
        )
        await producer.until(lambda: len(producer.acked) == 12)
    assert sorted(await contents(redis_client, queue_name)) == sorted(bodies)  # type: ignore[type-var]


@pytest.mark.parametrize("at", [0, 1])
async def test_a_gone_queue_of_a_topic_keeps_no_message_from_the_others(
    start: Start, redis_client: AsyncClient, queue_name: str, at: int
) -> None:
    """What some queue has is acked, and not refused; what none has is refused, and not acked."""
    names = [f"{queue_name}.{number}" for number in range(2)]
    for name in names:
        await made(redis_client, name)
        await redis_client.bind("metrics.#", name, router=queue_name)
    async with start(router=queue_name) as (_, address), Producer(address) as producer:
        await producer.send(request(1, topic="metrics.cpu"))
        await producer.until(lambda: producer.acked)
        await redis_client.queue(names[at]).delete(expected=1)
        await producer.send(request(2, topic="metrics.cpu"), request(3, topic="metrics.cpu"))
        await producer.until(lambda: len(producer.acked) == 3)
        other = names[1 - at]
        assert sorted(await contents(redis_client, other)) == [b"1", b"2", b"3"]  # type: ignore[type-var]
        await redis_client.queue(other).delete()
        await producer.send(request(4, topic="metrics.cpu"))
        await producer.until(lambda: producer.refused)
        assert producer.acked == [b"id-1", b"id-2", b"id-3"]
        assert producer.refused[b"id-4"].reason == 4
        await made(redis_client, names[at])
        await producer.until_acked(request(5, topic="metrics.cpu"))
        assert await contents(redis_client, names[at]) == [b"5"]
        assert await redis_client.queue(other).len() == 0


@pytest.mark.runs_in("test-all")
async def test_a_gateway_that_ends_in_a_flood_says_nothing_of_its_own_innards(
    redis_client: AsyncClient, queue_name: str, run_gateway: Callable[..., GatewayProcess]
) -> None:
    """Connections are cut off while they store: their tasks end before the client of Redis does."""
    await made(redis_client, queue_name)
    gateway = run_gateway("--insecure", "--grace", "0")
    flood = [sys.executable, "-m", "tests.gateway.flood", gateway.address, "", "tiny", "16", queue_name]
    process = await asyncio.create_subprocess_exec(*flood, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline()
        gateway.signal(signal.SIGTERM)
        code, told = await gateway.ended()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert code == 0
    assert "Traceback" not in told, told

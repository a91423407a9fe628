"""What a gateway holds is bounded: for the process, and for each token without harm to others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from shardq import AsyncClient, ConfigError
from shardq.files import MIB
from shardq.gateway.memory import MemoryBudget
from shardq.gateway.settings import GatewaySettings
from tests.gateway.conftest import GatewayProcess, Start, TokenFile
from tests.gateway.producer import Producer, happened, request
from tests.gateway.test_storing import contents, made

Run = Callable[..., GatewayProcess]


def memory_of(pid: int, field: str) -> int:
    """Bytes of a process: VmRSS now, VmHWM at its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def test_one_alone_has_a_quarter_and_who_comes_new_finds_room() -> None:
    memory = MemoryBudget(1200)
    a, b, c = map(memory.share, "abc")
    for share in (a, b, c):
        while not share.is_full:
            share.take(1)
    assert (a.used, b.used, c.used) == (300, 225, 169)
    assert memory.used < 1200
    a.give(a.used)
    assert [share.is_full for share in (a, b, c)] == [False, False, False]


def test_who_holds_nothing_may_read_one_message() -> None:
    memory = MemoryBudget(100)
    memory.take(1000)
    share = memory.share("t")
    assert not share.is_full
    share.take(1)
    assert share.is_full


async def test_readers_wait_for_room_and_all_of_them_go_on() -> None:
    memory = MemoryBudget(300)
    share = memory.share("t")
    share.take(150)
    readers = [asyncio.create_task(share.room()) for _ in range(5)]
    await asyncio.sleep(0)
    readers[0].cancel()
    share.give(60)
    share.give(90)
    await asyncio.gather(*readers[1:])
    assert not memory.waiting


async def test_room_that_another_token_gives_back_wakes_too() -> None:
    memory = MemoryBudget(300)
    mine, other = memory.share("mine"), memory.share("other")
    other.take(200)
    mine.take(60)
    reader = asyncio.create_task(mine.room())
    await asyncio.sleep(0)
    assert not reader.done()
    other.give(200)
    await reader


def test_a_budget_that_has_no_room_for_messages_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_memory"):
        GatewaySettings("127.0.0.1:0", insecure=True, max_memory=64 * MIB)
    with pytest.raises(ConfigError, match="max_memory"):
        GatewaySettings("127.0.0.1:0", insecure=True, max_message=64 * MIB, fifo_bytes=64 * MIB)


async def still(counts: list[int], seconds: float = 2.0) -> None:
    """Wait until nothing was counted for so many seconds."""
    before = -1
    while sum(counts) != before:
        before = sum(counts)
        await asyncio.sleep(seconds)


@pytest.mark.once
@pytest.mark.runs_in("test-all")
async def test_a_token_that_fills_its_share_stays_within_the_budget_and_delays_nobody(
    run_gateway: Run, redis_client: AsyncClient, queue_name: str, tokens: TokenFile
) -> None:
    """64 connections send the largest messages to a full queue, as fast as they can."""
    full = f"{queue_name}.full"
    await made(redis_client, queue_name)
    await made(redis_client, full, max_len=1)
    await redis_client.queue(full, create=True).write("fills it", shard_key="t")
    flood, quiet = tokens.add("flood", bytes_per_second=0), tokens.add("quiet")
    gateway = run_gateway("--tokens", str(tokens.path))
    pid, sent = gateway.process.pid, [0] * 64

    async def pour(number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with Producer(gateway.address, flood, options=options) as producer:
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                for each in range(30):
                    await producer.send(request(b"%d-%d" % (number, each), full, plain_message=bytes(1_000_000)))
                    sent[number] += 1

    pours = [asyncio.create_task(pour(number)) for number in range(64)]
    try:
        await still(sent)
        async with Producer(gateway.address, quiet) as producer:
            await producer.send(*[request(number, queue_name) for number in range(100)])
            await producer.until(lambda: len(producer.acked) == 100)
            assert not producer.dropped
        assert memory_of(pid, "VmHWM") < 256 * MIB
    finally:
        for each in pours:
            each.cancel()
        await asyncio.gather(*pours, return_exceptions=True)
    await happened(lambda: memory_of(pid, "VmRSS") < 128 * MIB)


@pytest.mark.once
@pytest.mark.runs_in("test-all")
async def test_what_a_full_share_held_back_is_stored_in_the_end(
    start: Start, redis_client: AsyncClient, queue_name: str
) -> None:
    await made(redis_client, queue_name, max_len=5)
    async with start() as (gateway, address), Producer(address) as producer:
        gateway.memory.most = 3_000_000
        sending = asyncio.create_task(
            producer.send(*[request(number, queue_name, plain_message=bytes(300_000)) for number in range(40)])
        )
        await happened(lambda: gateway.memory.waiting)
        assert gateway.memory.used < 2_000_000
        found: list[object] = []
        async with asyncio.timeout(60):
            while len(found) < 40:
                found += await contents(redis_client, queue_name)
        await sending
        await producer.until(lambda: len(producer.acked) == 40)
        assert not producer.dropped
    await happened(lambda: gateway.memory.used == 0)

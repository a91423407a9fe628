"""One token floods over 64 connections; the round trips of another one stay short."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import pytest

from shardq import AsyncClient
from tests.gateway.conftest import GatewayProcess, TokenFile
from tests.gateway.flood import KINDS
from tests.gateway.producer import Producer, request
from tests.gateway.test_storing import made
from tests.stalls import RunTime, main_threads

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all")]
Run = Callable[..., GatewayProcess]
TRIPS = 100


@asynccontextmanager
async def flooded(*words: str) -> AsyncIterator[Process]:
    """While a flood of 64 connections is on, whose clients run in a process of their own."""
    command = [sys.executable, "-m", "tests.gateway.flood", *words]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        await process.wait()


def used(pid: int) -> float:
    """Seconds of processor time that all threads of a process took until now."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def round_trip(producer: Producer, queue: str, name: str, gateway: int) -> float:
    """What the gateway computes, for whomever, while one message is under way: seconds, the median.

    The share of the time in which this process waits for a processor is not counted: the answer may be there.
    """
    found = []
    for number in range(TRIPS):
        message, begun = request(b"%s-%d" % (name.encode(), number), queue, key=b"quiet"), used(gateway)
        own, began = RunTime(lambda: main_threads([os.getpid()])), time.monotonic()
        await producer.send(message)
        await producer.until(lambda: message.message_id in producer.acked)  # noqa: B023
        own.look()
        ended = time.monotonic()
        found.append((used(gateway) - begun) * max(0.0, own.until(ended)) / (ended - began))
    return median(found)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_flood_of_one_token_leaves_another_ones_round_trips_short(
    run_gateway: Run, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, kind: str
) -> None:
    """In processor time, so that what else runs on the machine does not count.

    On a machine full of other work it is 1 to 30 ms. Before there were turns, a round trip took 60 times as long as
    alone, and behind some floods minutes.
    """
    await made(redis_client, queue_name)
    flood, quiet = tokens.add("flood", queues=[f"{queue_name}*"]), tokens.add("quiet")
    gateway = run_gateway("--tokens", str(tokens.path))
    async with Producer(gateway.address, quiet) as producer:
        await round_trip(producer, queue_name, "warm", gateway.process.pid)
        async with flooded(gateway.address, flood, kind, "64", queue_name) as process:
            beside = await round_trip(producer, queue_name, "beside", gateway.process.pid)
            assert process.returncode is None, "the flood has ended too early"
        assert not producer.refused
        assert not producer.dropped
    print(f"{kind}: {beside * 1000:.1f} ms")
    assert beside <= 0.1

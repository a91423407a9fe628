"""What a request may cost is known by its bytes: nothing that it counts is walked before the count is judged."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from shardq import AsyncClient
from shardq.files import MIB
from tests.gateway.conftest import GatewayProcess, Start, TokenFile
from tests.gateway.frames import FRAMES, MOST
from tests.gateway.producer import Producer, happened, request
from tests.gateway.test_neighbours import flooded, round_trip
from tests.gateway.test_storing import made

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all")]
Run = Callable[..., GatewayProcess]
TIMES = 3
LONGEST = 0.02
"""Seconds of processor time in one step of the loop."""


SPARE = 64 * MIB
"""Bytes that the allocator may keep of what was given back: less than is worth to be asked for."""


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Steps:
    """How long the longest step of an event loop took of the processor's time."""

    longest = 0.0


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """The steps of the loop from now on. The garbage of the tests before is not looked through meanwhile."""
    found, run = Steps(), asyncio.Handle._run

    def measured(self: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(self)
        found.longest = max(found.longest, time.thread_time() - begun)

    gc.collect()
    gc.freeze()
    monkeypatch.setattr(asyncio.Handle, "_run", measured)
    yield found
    gc.unfreeze()


async def answered(address: str, secret: str, frame: bytes) -> None:
    """Send a request, and wait until the gateway has answered it or has ended the call."""
    async with Producer(address, secret) as evil:
        await evil.until(lambda: evil.news)
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await evil.send(frame, request(b"behind", "none"))
            await evil.until(lambda: b"behind" in evil.refused or evil.code is not None)


@pytest.mark.parametrize("kind", FRAMES)
async def test_what_a_request_has_many_of_stops_nobody(
    start: Start, redis_client: AsyncClient, queue_name: str, tokens: TokenFile, steps: Steps, kind: str
) -> None:
    await made(redis_client, queue_name)
    secret, honest, frame = tokens.add("evil", one_tenant=True), tokens.add("honest"), FRAMES[kind]()
    assert len(frame) <= MOST
    async with start(tokens=tokens.path) as (_, address), Producer(address, honest) as other:
        await other.send(request(b"first", queue_name))
        await other.until(lambda: other.acked)
        await answered(address, secret, bytes(request(0, "none").SerializeToString()))
        steps.longest = 0.0
        for number in range(TIMES):
            evil = asyncio.create_task(answered(address, secret, frame))
            await other.send(request(number, queue_name))
            await other.until(lambda: b"id-%d" % number in other.acked)  # noqa: B023
            await evil
    print(f"{kind}: {len(frame):,} bytes, {steps.longest * 1000:.1f} ms")
    assert steps.longest <= LONGEST


@pytest.mark.parametrize("kind", FRAMES)
async def test_a_flood_of_such_requests_leaves_others_their_turn_and_no_memory_taken(
    redis_client: AsyncClient, queue_name: str, tokens: TokenFile, run_gateway: Run, kind: str
) -> None:
    await made(redis_client, queue_name)
    flood, honest, gateway = tokens.add("flood"), tokens.add("honest"), run_gateway("--tokens", str(tokens.path))
    process = gateway.process.pid
    async with Producer(gateway.address, honest) as producer:
        await round_trip(producer, queue_name, "warm", process)
        before = resident(process)
        async with flooded(gateway.address, flood, kind, "4", queue_name):
            beside = await round_trip(producer, queue_name, "beside", process)
            most = resident(process)
        await happened(lambda: resident(process) <= before + SPARE, timeout=90)  # however busy the machine is
    print(f"{kind}: {beside * 1000:.1f} ms, {most / MIB:.0f} MiB, before {before / MIB:.0f}")
    assert beside <= 0.1

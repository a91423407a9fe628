"""waiting: what do clients cost that wait for a token? A hundred are blocked, and 50 messages a second are let through.

Each client has a read that blocks, acks what it gets, and reads again. Three scripts a delivery are the floor: the read
that finds the message, the ack, and the next read, which finds nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Final

import redis

from benchmarks.report import Table, Target
from benchmarks.rounds import server_cpu
from benchmarks.settings import Place
from shardq import AsyncClient, Client, ClosedError, Limits

CLIENTS: Final = 100
RATE: Final = 50
WARM: Final = 4.0
"""Seconds until all clients have looked once, and the bursts are used up."""
BLOCK: Final = 30.0

Case = tuple[str, dict[str, Any], int, Limits | None, float]
CASES: Final[tuple[Case, ...]] = (
    ("one tenant at 50/s", {}, 1, Limits(rate=RATE, burst=1), 3.2),
    ("total_rate of 50/s", {"total_rate": RATE, "total_burst": 1}, 20, None, 3.2),
    ("100 tenants at 0.5/s", {"rate": 0.5, "burst": 1}, 100, None, 3.5),
)


def run(place: Place) -> list[Table]:
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    data: dict[str, Any] = {}
    for name, settings, tenants, limits, most in CASES:
        for way, waiting in (("asyncio", tasks), ("threads", threads)):
            got, calls, cpu, gap = measured(place, waiting, settings, tenants, limits)
            data[f"{name}, {way}"] = {"deliveries": got, "scripts": calls, "cpu": cpu, "gap": gap}
            per = calls / max(1, got)
            seconds = place.settings.seconds
            rows.append((name, way, f"{got / seconds:.1f}", f"{per:.2f}", f"{cpu / seconds:.1%}", f"{gap * 1000:.0f}"))
            targets += [
                Target(f"{name}, {way}: scripts a delivery", per, most, most=True, unit=""),
                Target(f"{name}, {way}: of the server's time", cpu / seconds, 0.05, most=True, unit=""),
            ]
    return [
        Table(
            "waiting",
            f"{CLIENTS} clients that wait for tokens",
            place.described(f"{place.settings.seconds:g} s each"),
            ("limit", "clients", "deliveries/s", "scripts each", "server", "longest gap, ms"),
            rows,
            targets,
            data,
        )
    ]


def measured(
    place: Place, waiting: Any, settings: dict[str, Any], tenants: int, limits: Limits | None
) -> tuple[int, int, float, float]:
    """Deliveries and scripts in the seconds of the measurement, the server's CPU seconds, the longest gap in s."""
    seconds = place.settings.seconds
    at: list[float] = []
    with Client.from_url(place.url) as client:
        name = f"waiting-{uuid.uuid4().hex[:8]}"
        queue = client.queue(name, streams=16, streams_per_shard=4, create=True, **settings)
        enough = round((WARM + seconds + 4) * RATE) + 100 * tenants // RATE
        queue.write_many([("x", f"t{number % tenants}") for number in range(enough)])
        if limits:
            queue.set_limits({"t0": limits})
        raw = redis.Redis.from_url(place.url)
        with waiting(place.url, name, at):
            time.sleep(WARM)
            before, calls, cpu = len(at), scripts(raw), server_cpu(raw)
            time.sleep(seconds)
            seen, calls, cpu = at[before:], scripts(raw) - calls, server_cpu(raw) - cpu
        queue.delete(expected=None, timeout=30)
    gaps = [later - earlier for earlier, later in pairwise(seen)]
    return len(seen), calls, cpu, max(gaps, default=seconds)


def scripts(raw: Any) -> int:
    """How many functions and scripts the server has run."""
    stats = raw.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("fcall", "evalsha", "eval"))


@contextmanager
def tasks(url: str, name: str, at: list[float]) -> Iterator[None]:
    """A hundred clients of asyncio."""

    async def one() -> None:
        async with AsyncClient.from_url(url) as client:
            queue = client.queue(name)
            while True:
                delivery = await queue.read(block=BLOCK)
                at.append(time.monotonic())
                await delivery.ack()

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        ends.append(asyncio.Event())
        running = [asyncio.create_task(one()) for _ in range(CLIENTS)]
        await ends[0].wait()
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    loops: list[asyncio.AbstractEventLoop] = []
    ends: list[asyncio.Event] = []
    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    yield
    loops[0].call_soon_threadsafe(ends[0].set)
    thread.join()


@contextmanager
def threads(url: str, name: str, at: list[float]) -> Iterator[None]:
    """A hundred clients, each in a thread."""
    clients = [Client.from_url(url) for _ in range(CLIENTS)]

    def one(client: Client) -> None:
        queue = client.queue(name)
        with suppress(ClosedError):
            while True:
                delivery = queue.read(block=BLOCK)
                at.append(time.monotonic())
                delivery.ack()

    running = [threading.Thread(target=one, args=(client,)) for client in clients]
    for each in running:
        each.start()
    yield
    for client in clients:
        client.close()
    for each in running:
        each.join()

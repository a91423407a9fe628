"""results: how soon callers who wait have their results, beside a list and BLPOP for each message."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from typing import Any, Final

import redis.asyncio

from benchmarks.prior_art import connect
from benchmarks.report import Table, percentile, us
from benchmarks.settings import Place
from shardq import AsyncClient, Client, Queue
from shardq.ops.results.waiters import result_waiting_of

PAYLOAD: Final = b"x" * 100
WAITERS: Final = 200
PAUSE: Final = 0.004
"""Seconds between two messages that are done."""


def run(place: Place) -> list[Table]:
    """The one table."""
    with Client.from_url(place.url) as client:
        return [_waits(place, client)]


def _waits(place: Place, client: Client) -> Table:
    """Tasks of one event loop wait for messages, which a thread finishes one after the other."""
    rounds = max(1, round(place.settings.seconds / (WAITERS * PAUSE)))
    queue = client.queue("results", result_ttl=60)
    ours, theirs, connections = [], [], {"shardq": 0, "list": 0}
    for _ in range(rounds):
        ours += asyncio.run(_awaited(place, queue, connections))
        theirs += asyncio.run(_popped(place, connections))
    at = {
        (name, share): percentile(each, share) for name, each in (("o", ours), ("t", theirs)) for share in (0.5, 0.99)
    }
    return Table(
        "results_waits",
        f"{WAITERS} tasks wait, a message is done every {1000 * PAUSE:g} ms",
        f"{place.described()}; {rounds} rounds",
        ("from the ack to the result", "median", "p99", "connections"),
        [
            ("`Queue.result`", us(1e6 * at["o", 0.5]), us(1e6 * at["o", 0.99]), f"{connections['shardq']:,}"),
            ("BLPOP, a list each", us(1e6 * at["t", 0.5]), us(1e6 * at["t", 0.99]), f"{connections['list']:,}"),
        ],
        data={"shardq": ours, "list": theirs},
    )  # fmt: skip


async def _awaited(place: Place, queue: Queue, connections: dict[str, int]) -> list[float]:
    finished: dict[str, float] = {}
    waits: list[float] = []

    async def wait(waiting: Any, message_id: str) -> None:
        await waiting.result(message_id, timeout=60)
        waits.append(time.perf_counter() - finished[message_id])

    async with AsyncClient.from_url(place.url) as client:
        waiting = client.queue(queue.name)
        ids = queue.write_many([(PAYLOAD, f"t{number}") for number in range(WAITERS)])
        tasks = [asyncio.create_task(wait(waiting, each)) for each in ids]
        while len(result_waiting_of(waiting.state).waiters()) < WAITERS:  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.01)
        connections["shardq"] = _blocked(place)
        worker = threading.Thread(target=_finish, args=(queue, finished))
        worker.start()
        await asyncio.gather(*tasks)
        worker.join()
    return waits


def _finish(queue: Queue, finished: dict[str, float]) -> None:
    for delivery in queue.read_many(WAITERS):
        time.sleep(PAUSE)
        finished[delivery.message_id] = time.perf_counter()
        delivery.ack(result=PAYLOAD)


async def _popped(place: Place, connections: dict[str, int]) -> list[float]:
    finished: dict[str, float] = {}
    waits: list[float] = []
    names = [f"results-list-{uuid.uuid4().hex}" for _ in range(WAITERS)]

    async def wait(server: Any, name: str) -> None:
        await server.blpop([name], 60)
        waits.append(time.perf_counter() - finished[name])

    def finish() -> None:
        with connect(place.url) as server:
            for name in names:
                time.sleep(PAUSE)
                finished[name] = time.perf_counter()
                server.lpush(name, PAYLOAD)

    server = redis.asyncio.Redis.from_url(place.url, socket_timeout=None, max_connections=2 * WAITERS)
    tasks = [asyncio.create_task(wait(server, name)) for name in names]
    while _blocked(place) < WAITERS:  # noqa: ASYNC110 (nothing tells of it)
        await asyncio.sleep(0.01)
    connections["list"] = _blocked(place)
    worker = threading.Thread(target=finish)
    worker.start()
    await asyncio.gather(*tasks)
    worker.join()
    await server.aclose()
    return waits


def _blocked(place: Place) -> int:
    with connect(place.url) as server:
        return int(server.info("clients")["blocked_clients"])

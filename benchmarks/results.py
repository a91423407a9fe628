"""results: what kept results cost, and how soon those who wait have them, beside a list and BLPOP for each message."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import redis.asyncio

from benchmarks.prior_art import connect
from benchmarks.report import Table, percentile, times, us
from benchmarks.rounds import Contender, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import AsyncClient, Client, Queue

PAYLOAD: Final = b"x" * 100
WAITERS: Final = 200
PAUSE: Final = 0.004
"""Seconds between two messages that are done."""

KINDS: Final[dict[str, str]] = {"none": "no results", "kept": "with results of 100 B"}


def run(place: Place) -> list[Table]:
    """Both tables."""
    with Client.from_url(place.url) as client, connect(place.url) as server:
        return [_cost(place, client, server), _waits(place, client)]


def _queue(place: Place, client: Client, name: str, **settings: Any) -> Queue:
    chosen = place.settings
    made = client.queue(
        f"results-{name}-{uuid.uuid4().hex[:8]}",
        streams=chosen.streams,
        streams_per_shard=chosen.per_shard,
        visibility_timeout=600.0,
        **settings,
    )
    made.declare()
    return made


# --- what they cost


def _cycle(queue: Queue, messages: int, batch: int) -> None:
    """Write, read and ack for quiet tenants: in batches, or one at a time (*batch* 1)."""
    keeps = queue.state.config.result_ttl is not None
    for start in range(0, messages, batch):
        if batch == 1:
            queue.write(PAYLOAD, shard_key=f"t{start % 1000}")
            delivery = queue.read()
            if keeps:
                delivery.ack(result=PAYLOAD)
            else:
                delivery.ack()
            continue
        queue.write_many([(PAYLOAD, f"t{number % 1000}") for number in range(start, start + batch)])
        left = batch
        while left:
            found = queue.read_many(left)
            left -= len(found)
            assert not queue.ack_many(found, results=[PAYLOAD] * len(found) if keeps else None)


def _cost(place: Place, client: Client, server: Any) -> Table:
    chosen = place.settings
    sizes = {chosen.batch: chosen.messages, 1: max(20, chosen.messages // 5)}
    queues = {
        "none": _queue(place, client, "none"),
        "kept": _queue(place, client, "kept", result_ttl=60, max_result_bytes=2**32),
    }
    contenders = [
        Contender(f"{kind}|{batch}", messages, _running(queue, messages, batch))
        for kind, queue in queues.items()
        for batch, messages in sizes.items()
    ]
    runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
    rows: list[tuple[str, ...]] = [
        (f"{text}, {'one at a time' if batch == 1 else f'in batches of {batch}'}",
         us(middle(runs[f"{kind}|{batch}"], "server")),
         times(ratio(runs[f"{kind}|{batch}"], runs[f"none|{batch}"], "server")),
         times(ratio(runs[f"{kind}|{batch}"], runs[f"none|{batch}"], "wall")))
        for kind, text in KINDS.items()
        for batch in sizes
    ]  # fmt: skip
    return Table(
        "results",
        "What kept results cost",
        place.described(),
        ("written, read and acked", "server CPU", "of none", "by the clock"),
        rows,
        data={name: [run._asdict() for run in each] for name, each in runs.items()},
    )


def _running(queue: Queue, messages: int, batch: int) -> Callable[[], Any]:
    return lambda: _cycle(queue, messages, batch)


# --- how soon they are there


def _waits(place: Place, client: Client) -> Table:
    """Tasks of one event loop wait for messages, which a thread finishes one after the other."""
    rounds = max(1, round(place.settings.seconds / (WAITERS * PAUSE)))
    queue = _queue(place, client, "waits", result_ttl=60)
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
        while len(waiting.state.awaiting.waiters()) < WAITERS:  # noqa: ASYNC110 (nothing tells of it)
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

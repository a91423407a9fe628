"""Reads that block, their first looks and the calls that they share, while callers leave and connections are killed."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import AsyncClient, AsyncQueue, Client, Empty, Queue
from tests.fault.sharing.test_coalescing import ended
from tests.servers import Server

MESSAGES, READERS = 120, 12
LEASE = 600  # seconds: what comes again within the test was given back, its lease did not end


def kill(server: Server) -> None:
    """End every connection of clients, also of those that are blocked."""
    server.run("CLIENT", "KILL", "TYPE", "normal")


@pytest.mark.parametrize("seed", range(2))
def test_readers_who_are_cancelled_while_connections_are_killed_lose_no_message(
    server: Server, queue_name: str, seed: int
) -> None:
    chance = random.Random(seed)

    async def some(queue: AsyncQueue) -> list[Any]:
        """What a few readers got, of whom some were cancelled at some moment, and perhaps all were cut off."""
        tasks = [asyncio.ensure_future(queue.read(block=1, visibility_timeout=LEASE)) for _ in range(READERS)]
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.005]))
        if chance.random() < 0.3:
            await asyncio.to_thread(kill, server)
        for task in chance.sample(tasks, READERS // 3):
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in results if isinstance(each, BaseException)} <= {asyncio.CancelledError, Empty}
        return [each.payload for each in results if not isinstance(each, BaseException)]

    async def main() -> None:
        async with AsyncClient.from_url(server.url, timeout=60) as client:
            queue, found = client.queue(queue_name, streams=4), list[Any]()
            await queue.write_many([(number, f"t{number % 7}") for number in range(MESSAGES)])
            for _ in range(10):
                found += await asyncio.wait_for(some(queue), 60)
            while len(found) < MESSAGES:
                found.append((await queue.read(block=20, visibility_timeout=LEASE)).payload)
            assert sorted(found) == list(range(MESSAGES))

    asyncio.run(main())


def test_blocked_threads_whose_connections_are_killed_lose_no_message(server: Server, queue_name: str) -> None:
    found: list[Any] = []
    over = threading.Event()

    def work(queue: Queue) -> None:
        while not over.is_set():
            delivery = ended(lambda: queue.read(block=0.5, visibility_timeout=LEASE))
            if not isinstance(delivery, Empty):
                found.append(delivery.payload)

    with Client.from_url(server.url, timeout=60) as client, ThreadPoolExecutor(READERS) as pool:
        queue = client.queue(queue_name, streams=4)
        queue.write("-", shard_key="-")
        queue.read().ack()
        futures = [pool.submit(work, queue) for _ in range(READERS)]
        for first in range(0, MESSAGES, 10):
            queue.write_many([(number, f"t{number % 7}") for number in range(first, first + 10)])
            kill(server)
        over.set()
        for future in futures:
            future.result(60)
        while len(found) < MESSAGES:
            found.append(queue.read(block=20, visibility_timeout=LEASE).payload)
    assert sorted(found) == list(range(MESSAGES))

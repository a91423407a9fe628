"""Callers who leave a shared call before it is sent: the others' part of it happens once, and theirs does not."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardq import AsyncClient, BackendTimeout, Client
from shardq.drivers.sharing import MAX_CALLS_UNDER_WAY
from shardq.ops.sharing.shared_call import SharedCall
from tests.fault.sharing.test_coalescing import THREADS, everything, meet, written
from tests.proxy import Proxy
from tests.servers import Server


def stored(server: Server, queue_name: str) -> Counter[Any]:
    """How often each payload was stored."""
    with Client.from_url(server.url) as client:
        return Counter(each.payload for each in everything(client.queue(queue_name, create=True)))


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_who_runs_out_of_time_before_a_shared_call_is_sent_stores_nothing(
    proxy: Proxy, server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was made with the message of the one who leaves, and is about to be sent: connecting took that long."""
    left, sending = threading.Event(), SharedCall._sending
    made: list[int] = []

    def send_late(shared: SharedCall[Any, Any]) -> None:
        if any(b"left" in caller.item.body for caller in shared.callers):
            assert left.wait(60)
            made.append(len(shared.callers))
        sending(shared)

    def leave() -> Any:
        try:
            return queue.write("left", shard_key="tenant", timeout=5)
        finally:
            left.set()

    monkeypatch.setattr(SharedCall, "_sending", send_late)
    with Client.from_url(proxy.url, timeout=60) as client, ThreadPoolExecutor(THREADS) as pool:
        queue = client.queue(queue_name, streams=2)
        queue.write("-", shard_key="-")
        queue.read().ack()
        proxy.blackhole()
        stay = [written(queue, number) for number in range(MAX_CALLS_UNDER_WAY + 3)]
        futures = meet(queue, pool, [*stay, leave])
        proxy.heal()
        *ids, error = [future.result(60) for future in futures]
    assert len(made) == 1
    assert made[0] > 1
    assert type(error) is BackendTimeout
    assert len({each for each in ids if isinstance(each, str)}) == len(stay)
    assert stored(server, queue_name) == Counter(range(len(stay)))


def test_who_is_cancelled_before_a_shared_call_is_sent_stores_nothing(
    proxy: Proxy, server: Server, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was made with the messages of all, and waits for its connection while some of them are cancelled."""
    made, step = asyncio.Event(), SharedCall.step

    def made_step(shared: SharedCall[Any, Any]) -> Any:
        made.set()
        return step(shared)

    monkeypatch.setattr(SharedCall, "step", made_step)

    async def main() -> None:
        async with AsyncClient.from_url(proxy.url, timeout=60) as client:
            queue = client.queue(queue_name, streams=2)
            await queue.write("-", shard_key="-")
            await (await queue.read()).ack()
            proxy.blackhole()
            proxy.drop()
            await asyncio.sleep(0.05)  # the client notices
            tasks = [asyncio.ensure_future(queue.write(number, shard_key="tenant")) for number in range(12)]
            await asyncio.wait_for(made.wait(), 60)
            await asyncio.sleep(0.05)
            for task in tasks[5::2]:
                task.cancel()
            await asyncio.sleep(0)
            proxy.heal()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in results[5::2])
            stay = [*results[:5], *results[6::2]]
            assert len({each for each in stay if isinstance(each, str)}) == len(stay) == 8

    asyncio.run(main())
    assert stored(server, queue_name) == Counter([0, 1, 2, 3, 4, 6, 8, 10])

"""Sentinels: the client finds the primary, and finds the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from shardq import AsyncClient, Client
from tests.servers import Replicated, Sentinels, ServerKind


@pytest.fixture
def watched(kind: ServerKind | None) -> Iterator[tuple[Replicated, Sentinels]]:
    """A primary with one replica, watched by three sentinels."""
    with Replicated(kind) as pair, Sentinels(pair, kind) as sentinels:
        yield pair, sentinels


def _url(sentinels: Sentinels) -> str:
    hosts = ",".join(f"{host}:{port}" for host, port in sentinels.addresses)
    return f"redis+sentinel://{hosts}/{sentinels.service}/0"


@pytest.mark.runs_in("test-all")
def test_calls_go_on_after_a_failover(watched: tuple[Replicated, Sentinels]) -> None:
    """A call that meets a dead primary waits for the sentinels' next one and goes on there; a killed reader's
    message, replicated with its lease, is delivered again by the new primary."""
    pair, sentinels = watched
    with Client.from_url(_url(sentinels), timeout=60) as client:
        queue = client.queue("failover", streams=4, streams_per_shard=2)
        first = queue.write(b"before", shard_key="a")
        assert queue.read(visibility_timeout=1).message_id == first
        pair.wait_in_sync()
        pair.primary.kill9()
        second = queue.write(b"after", shard_key="a")
        found: dict[str, int] = {}
        while len(found) < 2:
            delivery = queue.read(block=60)
            found[delivery.message_id] = delivery.count
            delivery.ack()
        assert found == {first: 2, second: 1}
        assert queue.len() == 0


@pytest.mark.runs_in("test-all")
def test_an_asyncio_reader_survives_a_failover(watched: tuple[Replicated, Sentinels]) -> None:
    """A reader that is blocked while the primary dies gets what is written to the next one."""
    pair, sentinels = watched

    async def scenario() -> None:
        async with AsyncClient.from_url(_url(sentinels), timeout=60) as client:
            queue = client.queue("failover", streams=4, streams_per_shard=2)
            await queue.write(b"warm", shard_key="a")
            await (await queue.read()).ack()
            pair.wait_in_sync()
            reader = asyncio.create_task(queue.read(block=60))
            await asyncio.sleep(0)
            pair.primary.kill9()
            written = await queue.write(b"after", shard_key="a")
            assert (await reader).message_id == written

    asyncio.run(scenario())

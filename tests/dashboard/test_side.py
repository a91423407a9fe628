"""What stands beside each screen: the queues, the one that needs somebody most first; each question asked once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shardq import AsyncClient, Client
from shardq.dashboard import numbers
from shardq.dashboard.scene import NotThere
from shardq.dashboard.side import side
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.errors import BackendError, BackendTimeout
from shardq.testing import ManualClock
from tests.dashboard.scenery import beats
from tests.servers import Server

pytestmark = pytest.mark.once


@pytest.fixture
async def source(server: Server) -> AsyncIterator[SceneSource]:
    async with AsyncClient.from_url(server.url) as client:
        yield SceneSource(client)


async def test_the_queue_that_needs_somebody_most_is_first(source: SceneSource) -> None:
    for name, count in (("calm", 0), ("some", 1), ("more", 3)):
        queue = source.client.queue(name, streams=1, create=True)
        await queue.declare()
        await queue.write_many([(b"x", "t")] * count)
    await source.client.queue("more").pause(by="mara")
    assert await side(source) == {
        "queues": [
            {"name": "some", "tone": "bad", "waiting": 1, "tenants": 1, "failures": 0},  # nobody reads it
            {"name": "more", "tone": "pause", "waiting": 3, "tenants": 1, "failures": 0},
            {"name": "calm", "tone": "idle", "waiting": 0, "tenants": 0, "failures": 0},
        ],
        "more": 0,
        "workers": 0,
        "schedules": 0,
    }


async def test_a_queue_that_redis_lost_is_bad(source: SceneSource, server: Server) -> None:
    queue = source.client.queue("lost", streams=1, create=True)
    await queue.declare()
    with server.client() as plain:
        plain.delete(queue.state.keys.meta)
    assert (await side(source))["queues"] == [
        {"name": "lost", "tone": "bad", "waiting": None, "tenants": 0, "failures": 0}
    ]


async def test_a_hundred_who_look_cost_what_one_costs(source: SceneSource, server: Server) -> None:
    queue = source.client.queue("jobs", streams=1, create=True)
    await queue.write(b"x", shard_key="t")
    await asyncio.gather(*(numbers.verdict(source, "jobs", 60) for _ in range(50)), *(side(source) for _ in range(50)))
    before = server.info("stats")["total_commands_processed"]
    for _ in range(100):
        await numbers.verdict(source, "jobs", 60)
        await numbers.outlook(source, "jobs", 60)
        await numbers.stats(source, "jobs", 60)
    assert server.info("stats")["total_commands_processed"] - before < 10  # what this test asks itself


async def test_of_many_queues_those_that_may_lose_their_workers_are_asked_for_as_often_as_of_few(
    server: Server, clock: ManualClock
) -> None:
    """Those that need nobody rest longer: the death of a worker that has work would be told of too late."""
    names = [f"q{number:02}" for number in range(numbers.FEW_QUEUES + 1)]
    with Client.from_url(server.url) as writer:
        for name in names:
            queue = writer.queue(name, streams=1, create=True)
            queue.write(b"1", shard_key="t")
            silent = numbers.BEAT_SILENCE if name == "q00" else 0.0
            beats(server, queue, 2, heard=int(1000 * (queue.stats().time - silent)))
    async with AsyncClient.from_url(server.url, clock=clock) as client:
        source = SceneSource(client)
        await numbers.looks(source, names)
        clock.advance(FRESH_SECONDS)
        await numbers.looks(source, names)
        ages = {name: source.age(("look", name)) for name in names}
    assert ages == {name: 0.0 if name == "q00" else FRESH_SECONDS for name in names}


async def test_an_idle_queue_whose_workers_were_not_asked_for_lately_rests_on(
    server: Server, clock: ManualClock
) -> None:
    """Of it the numbers alone are asked: that nobody asked when its workers were heard is no news of them."""
    names = [f"q{number:02}" for number in range(numbers.FEW_QUEUES + 1)]
    with Client.from_url(server.url) as writer:
        for name in names:
            queue = writer.queue(name, streams=1)
            queue.declare()
            beats(server, queue, 2, heard=int(1000 * (queue.stats().time - numbers.BEAT_SILENCE)))
    async with AsyncClient.from_url(server.url, clock=clock) as client:
        source = SceneSource(client)
        await numbers.looks(source, names)
        clock.advance(FRESH_SECONDS)
        await numbers.looks(source, names)
        assert {source.age(("look", name)) for name in names} == {FRESH_SECONDS}


async def test_a_queue_that_is_not_there_is_said_in_words(source: SceneSource) -> None:
    with pytest.raises(NotThere, match=r"There is no queue nothing\."):
        await numbers.verdict(source, "nothing")
    assert await numbers.looks(source, ["nothing"]) == {}


async def test_what_one_may_not_ask_hides_nothing_else(source: SceneSource) -> None:
    async def denied() -> int:
        raise BackendError("NOPERM")

    async def away() -> int:
        raise BackendTimeout("away")

    assert await numbers.allowed(denied()) is None
    with pytest.raises(BackendTimeout):
        await numbers.allowed(away())

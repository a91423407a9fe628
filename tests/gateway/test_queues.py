"""Names of queues that clients make up leave nothing behind, and a queue is found soon after it was made."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shardq import AsyncClient
from shardq.gateway.queues import MAX_MISSING, Queues
from shardq.gateway.storing import Storage
from shardq.testing import ManualClock
from tests.gateway.conftest import Start
from tests.gateway.growth import store_into_nowhere
from tests.gateway.producer import Producer, request
from tests.gateway.test_storing import made
from tests.servers import Server

pytestmark = pytest.mark.once


@pytest.mark.runs_in("test-all")
def test_unknown_queues_leave_nothing_behind(server: Server, queue_name: str) -> None:
    """A name took 12 KB. Some caches that are bounded keep a few hundred bytes of each, until they are full.

    A process of its own: what other tests have set up in this one, exporters say, keeps something of each call.
    """
    command = [sys.executable, "-m", "tests.gateway.growth", server.url, queue_name]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    grown, states = map(int, told.split())
    assert grown < 1_000 * 2_000
    assert states == 0


async def test_an_unknown_queue_is_looked_up_once_a_second(server: Server, server_url: str, queue_name: str) -> None:
    clock = ManualClock()
    async with AsyncClient.from_url(server_url, clock=clock) as client:
        storage = Storage(client, 60.0, "default")
        looks = []
        for seconds in (0.0, 0.4, 0.4, 0.4):
            clock.advance(seconds)
            before = server.info("commandstats").get("cmdstat_fcall", {"calls": 0})["calls"]
            await store_into_nowhere(storage, queue_name, 0, 250)
            looks.append(server.info("commandstats")["cmdstat_fcall"]["calls"] - before)
    assert looks[0] >= 250, "and once at what the server is"
    assert looks[1:] == [0, 0, 250]


async def test_a_queue_that_was_just_made_is_found(start: Start, redis_client: AsyncClient, queue_name: str) -> None:
    async with start() as (_, address), Producer(address) as producer:
        await producer.send(request(1, queue_name))
        await producer.until(lambda: producer.refused)
        await made(redis_client, queue_name)
        await producer.until_acked(request(2, queue_name))


async def test_a_queue_is_taken_for_missing_for_a_second(server_url: str) -> None:
    clock = ManualClock()
    async with AsyncClient.from_url(server_url, clock=clock) as client:
        queues = Queues(client)
        for number in range(MAX_MISSING + 5):
            queues.missed(queues.state(f"q{number}", None).keys)
        assert [queues.is_missing(f"q{number}") for number in (0, 4, 5, MAX_MISSING)] == [False, False, True, True]
        clock.advance(1.01)
        assert not queues.is_missing("q5")

"""However much there is, no screen has more than a scene may have. All of it is on one server, and names are long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from shardq import AsyncClient, Client, Queue
from shardq.dashboard.channel import MAX_SCENE
from shardq.dashboard.encoding import encoded
from shardq.dashboard.side import side
from shardq.dashboard.source import SceneSource
from shardq.model.call import Call
from shardq.model.failed import FailedTry
from tests.dashboard.scenery import beats, look_at
from tests.servers import Server, available

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(900)]
QUEUES: Final = 1_000
TENANTS: Final = 100_000
WORKERS: Final = 10_000
GROUPS: Final = 200
SCHEDULES: Final = 1_000
LONG: Final = "m" * 190
SCREENS: Final = ("queue", "tenants", "failures", "settings")


@pytest.fixture(scope="module")
def crowded() -> Iterator[Server]:
    """A server with as much as anybody has."""
    kinds = available()
    with Server(kinds[0] if kinds else None) as server, Client.from_url(server.url) as client:
        for number in range(QUEUES - 1):
            client.queue(f"q{number:03}-{LONG}", streams=1).declare()
        _fill(server, client.queue("jobs", streams=16, max_schedules=2 * SCHEDULES))
        yield server


def _fill(server: Server, queue: Queue) -> None:
    queue.declare()
    for number in range(GROUPS):
        frames = f"shop/mail.py:41 in send_{'x' * 100}\n" * 12
        error = FailedTry(f"{number} {'<b>' * 165}", f"{'E' * 90}{number}", "", frames)
        queue.write(Call(f"mail.{LONG}", {"n": number}), shard_key=f"tenant-{number}")
        queue.nack_many(queue.read_many(1), delay=3600, error=error)
        queue.write(Call(f"mail.{LONG}", {"n": number}), shard_key=f"tenant-{number}")
        queue.reject_many(queue.read_many(1), error)
    for number in range(SCHEDULES):
        queue.schedules.add(f"{LONG}-{number}", Call(f"mail.{LONG}", {}), shard_key="t" * 400, cron="*/15 * * * *")
    for start in range(0, TENANTS, 10_000):
        queue.write_many([(b"x", f"{'t' * 100}-{number}") for number in range(start, start + 10_000)])
    beats(server, queue, WORKERS, host=lambda number: f"{'h' * 200}{number}", task=f"mail.{LONG}")


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_of_the_largest_queue_fits(crowded: Server, screen: str) -> None:
    assert look_at(crowded.url, screen, "jobs")  # which checks its size


@pytest.mark.parametrize("screen", ["overview", "workers", "schedules", "settings"])
def test_a_screen_of_all_queues_fits(crowded: Server, screen: str) -> None:
    assert look_at(crowded.url, screen)


def test_a_tenant_and_a_message_fit(crowded: Server) -> None:
    with Client.from_url(crowded.url) as client:
        (dead, *_) = client.queue("jobs", create=False).dead()
    assert look_at(crowded.url, "tenant", "jobs", "tenant-7")
    assert look_at(crowded.url, "message", "jobs", dead.message_id)


def test_the_side_fits(crowded: Server) -> None:
    async def look() -> int:
        async with AsyncClient.from_url(crowded.url) as client:
            return len(encoded(await side(SceneSource(client))))

    assert asyncio.run(look()) <= MAX_SCENE

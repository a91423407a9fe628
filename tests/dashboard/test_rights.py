"""What the page shows with a user of Redis that has a role: all to an observer, and what one may not ask in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shardq import AsyncClient
from shardq.dashboard import table
from shardq.dashboard.channel import UNREADABLE, trouble
from shardq.dashboard.pulse import RedisPulse
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.side import side
from shardq.dashboard.source import SceneSource
from shardq.errors import BackendError
from shardq.protocol.roles import ROLES, rules
from tests.servers import Server

pytestmark = pytest.mark.once
PARTS: dict[str, tuple[str, ...]] = {
    "overview": (), "workers": (), "schedules": (), "settings": (),
    "queue": ("jobs",), "tenants": ("jobs",), "failures": ("jobs",), "tenant": ("jobs", "t"),
}  # fmt: skip


@pytest.fixture
async def id_of_one(server: Server) -> AsyncIterator[str]:
    async with AsyncClient.from_url(server.url) as client:
        yield str(await client.queue("jobs", streams=1).write(b"x", shard_key="t"))


async def source_of(server: Server, role: str) -> tuple[AsyncClient, SceneSource]:
    server.run("ACL", "SETUSER", "page", "reset", "on", ">x", *rules(ROLES[role], ["jobs"]))
    client = AsyncClient.from_url(server.url.replace("unix://", "unix://page:x@"))
    return client, SceneSource(client)


async def test_an_observer_sees_every_screen(server: Server, id_of_one: str) -> None:
    client, source = await source_of(server, "observer")
    try:
        async with client:
            pulse = RedisPulse(client, lambda: None)
            await pulse._ask()
            assert pulse.away_since is None
            assert (await side(source))["queues"] == [
                {"name": "jobs", "tone": "bad", "waiting": 1, "tenants": 1, "failures": 0}
            ]
            for name, parts in {**PARTS, "message": ("jobs", id_of_one)}.items():
                scene = table.scene_of(name)
                assert scene is not None
                assert (await scene(source, AskedScene(parts)))["said"], name
    finally:
        server.run("ACL", "DELUSER", "page")


async def test_a_user_without_the_rights_is_told_so_in_words(server: Server, id_of_one: str) -> None:
    client, source = await source_of(server, "producer")
    try:
        async with client:
            scene: Any = table.scene_of("queue")
            with pytest.raises(BackendError) as caught:
                await scene(source, AskedScene(("jobs",)))
            assert trouble(caught.value) == ("gone", UNREADABLE)
            pulse = RedisPulse(client, lambda: None)
            await pulse._ask()
            assert pulse.away_since is None
    finally:
        server.run("ACL", "DELUSER", "page")

"""Where there are many queues: what is asked of each, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shardq import AsyncClient
from shardq.dashboard import numbers
from shardq.dashboard.numbers import FEW_QUEUES, look, looks
from shardq.dashboard.source import SceneSource
from tests.servers import Server

pytestmark = pytest.mark.once
COUNT = 3 * FEW_QUEUES
NAMES = [f"q{number:02}" for number in range(COUNT)]
"""The first ten have no messages; each of the others has one more than the queue before it."""


class Asks:
    """How often something was asked, by its name in `numbers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.times = dict.fromkeys(names, 0)
        for name in names:
            monkeypatch.setattr(numbers, name, self._counting(name, getattr(numbers, name)))

    def _counting(self, name: str, real: Any) -> Any:
        def asked(*args: Any, **named: Any) -> Any:
            self.times[name] += 1
            return real(*args, **named)

        return asked


@pytest.fixture
async def source(server: Server) -> AsyncIterator[SceneSource]:
    async with AsyncClient.from_url(server.url) as client:
        for number, name in enumerate(NAMES):
            queue = client.queue(name, streams=1, create=True)
            await queue.declare()
            if number >= FEW_QUEUES:
                await queue.write_many([(b"x", "t")] * (1 + number))
        yield SceneSource(client)


async def test_what_is_fresh_is_not_asked_again(source: SceneSource, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await looks(source, NAMES)
    asks = Asks(monkeypatch, "look")
    monkeypatch.setattr(numbers, "FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(numbers, "CALM_FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(numbers, "QUIET_FRESH_SECONDS", 3600.0)
    assert await looks(source, [*NAMES, "gone"]) == first
    assert asks.times == {"look": 1}  # of the one that is not there


async def test_those_that_need_somebody_most_are_asked_often(
    source: SceneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads any, so it is those in which most messages wait."""
    await looks(source, NAMES)
    asked: list[str] = []
    real = look

    async def noted(source: SceneSource, queue: str, fresh: float) -> Any:
        asked.append(queue)
        return await real(source, queue, fresh)

    monkeypatch.setattr(numbers, "look", noted)
    monkeypatch.setattr(numbers, "MAX_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(numbers, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(numbers, "CALM_FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(numbers, "QUIET_FRESH_SECONDS", 3600.0)
    await looks(source, NAMES)
    assert asked == NAMES[-FEW_QUEUES:]


async def test_of_a_queue_in_which_nothing_happens_its_numbers_alone_are_asked(
    source: SceneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "MAX_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(numbers, "CALM_FRESH_SECONDS", 0.0)  # that is how old the numbers may be
    before = await look(source, "q00", 0.0)
    asks = Asks(monkeypatch, "statistics", "everything")
    after = await look(source, "q00", 0.0)
    assert (asks.times, after.full_at) == ({"statistics": 1, "everything": 0}, before.full_at)
    assert after.stats is not before.stats
    await source.client.queue("q00").write(b"x", shard_key="t")
    written = await look(source, "q00", 0.0)
    assert (asks.times, written.stats.backlog) == ({"statistics": 2, "everything": 1}, 1)
    assert written.verdict.kind == "no_worker"
    await look(source, "q00", 0.0)  # it has a message: all of it is asked
    assert asks.times == {"statistics": 2, "everything": 2}
    await look(source, "q01", 0.0)
    monkeypatch.setattr(numbers, "IDLE_SECONDS", 0.0)
    await look(source, "q01", 0.0)
    assert asks.times == {"statistics": 2, "everything": 4}


async def test_the_memory_of_a_server_is_asked_once_for_all_its_queues(
    source: SceneSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = Asks(monkeypatch, "memory_of_node", "last_minutes")
    found = await looks(source, NAMES)
    assert asks.times == {"memory_of_node": 1, "last_minutes": COUNT}
    assert {each.facts.memory for each in found.values() if each} == {found["q00"] and found["q00"].facts.memory}

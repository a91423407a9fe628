"""A rolling deploy under load, and back again: two releases whose tasks differ, of web servers and of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Literal

import pytest

from shardq import AsyncClient, AsyncQueue
from shardq.tasks import Tasks, finding
from tests.clients import CLIENT_KINDS
from tests.worker.running import RunningWorker

Done = list[tuple[str, int]]


class Releases:
    """Both releases of one application. What they have done is in `done`."""

    def __init__(self) -> None:
        self.done: Done = []
        self.before: Tasks[None] = Tasks("jobs", result_ttl=600, max_deliveries=2)
        self.after: Tasks[None] = Tasks("jobs", result_ttl=600, max_deliveries=2)
        done = self.done

        @self.before.task(name="report")
        async def old_report(number: int) -> None:
            done.append(("report", number))

        @self.after.task(name="report")
        async def report(number: int, unit: str = "EUR") -> None:
            done.append((f"report in {unit}", number))

        @self.after.task(name="invoice")
        async def invoice(number: int) -> None:
            done.append(("invoice", number))

        self.calls: dict[str, Callable[[int], list[Any]]] = {
            "before": lambda number: [old_report.call(number)],
            "after": lambda number: [report.call(number, unit="USD"), invoice.call(number)],
        }


@asynccontextmanager
async def at_work(url: str, *releases: Tasks[None]) -> AsyncIterator[None]:
    """A worker of each of these, the first one a Worker, the second one an AsyncWorker."""
    with ExitStack() as stack:
        for kind, tasks in zip(CLIENT_KINDS, releases, strict=False):
            worker = RunningWorker(kind, url, tasks, tasks, concurrency=4)
            await asyncio.to_thread(stack.enter_context, worker)
        yield
        await asyncio.to_thread(stack.close)


@pytest.mark.parametrize("way", ["forward", "back"])
async def test_a_rolling_deploy_rejects_and_loses_nothing(
    url: str, way: Literal["forward", "back"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old workers get calls of new web servers, and new ones those of old: an argument was added, and a task."""
    monkeypatch.setattr(finding, "UNKNOWN_PAUSE", 0.05)
    releases = Releases()
    first, second = (releases.before, releases.after) if way == "forward" else (releases.after, releases.before)

    async with AsyncClient.from_url(url) as client:
        queue = client.queue(releases.after)
        stopped = asyncio.Event()

        async def web(release: str) -> int:
            number = 0
            while not stopped.is_set():
                for call in releases.calls[release](number):
                    await queue.write(call, shard_key=f"t{number % 7}")
                number += 1
            return number

        servers = [asyncio.create_task(web(release)) for release in ("before", "after")]
        async with at_work(url, first, first):
            await more_done(releases.done, 50)
        async with at_work(url, first, second):
            await more_done(releases.done, 50)
        async with at_work(url, second, second):
            await more_done(releases.done, 50)
        stopped.set()
        old, new = await asyncio.gather(*servers)
        written = old + 2 * new
        async with at_work(url, releases.after):  # after a deploy back the new release comes again
            await all_done(queue, written)
        now = await queue.stats()
    assert (now.acked, now.dead, now.dead_lettered, now.backlog, now.delayed) == (written, 0, 0, 0, 0)
    done = releases.done
    assert len(done) == len(set(done)) == written
    assert {number for name, number in done if name in ("report", "report in EUR")} == set(range(old))
    assert {number for name, number in done if name == "report in USD"} == set(range(new))
    assert {number for name, number in done if name == "invoice"} == set(range(new))


async def more_done(done: Done, count: int) -> None:
    wanted = len(done) + count
    async with asyncio.timeout(60):
        while len(done) < wanted:  # noqa: ASYNC110 (tasks of two releases fill it)
            await asyncio.sleep(0.01)


async def all_done(queue: AsyncQueue, count: int) -> None:
    async with asyncio.timeout(120):
        while (await queue.stats()).acked < count:  # noqa: ASYNC110 (Redis tells)
            await asyncio.sleep(0.05)

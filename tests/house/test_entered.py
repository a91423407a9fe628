"""Through how many of our files one call goes: each is one more to open for a reader who follows it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from shardq import AsyncClient, Client
from shardq.embedded import EmbeddedServer

PACKAGE = f"{Path(__file__).resolve().parents[2] / 'shardq'}/"
MOST = {
    "write": (14, 19), "read(ack=)": (16, 25), "ack": (12, 17),
    "async write": (14, 26), "async read(ack=)": (16, 29), "async ack": (12, 25),
}  # fmt: skip
"""By call, how many files at most, and how often the file changes from one call of a function to the next."""

CALLS = 5


class Walk:
    """The files of the functions that were called, in order, while it is a profiler."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.files.append(frame.f_code.co_filename.removeprefix(PACKAGE))

    def seen(self) -> tuple[int, int]:
        """How many files, and how many changes."""
        changes = sum(one != next_one for one, next_one in zip(self.files, self.files[1:], strict=False))
        return len(set(self.files)), changes


def walked(call: Callable[[], Any]) -> tuple[Any, tuple[int, int]]:
    """Return what *call* returns, and what was seen of it."""
    walk = Walk()
    sys.setprofile(walk)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, walk.seen()


async def awaited(call: Any) -> tuple[Any, tuple[int, int]]:
    """The same of a coroutine."""
    walk = Walk()
    sys.setprofile(walk)
    try:
        result = await call
    finally:
        sys.setprofile(None)
    return result, walk.seen()


def of_threads(url: str) -> dict[str, tuple[int, int]]:
    """The least of some calls: now and then one does more, such as for a new bucket of the timer's wheel."""
    seen: dict[str, list[tuple[int, int]]] = {}

    def see(name: str, call: Callable[[], Any]) -> Any:
        result, found = walked(call)
        seen.setdefault(name, []).append(found)
        return result

    with Client.from_url(url) as client:
        queue = client.queue("threads", streams=16, streams_per_shard=4)
        queue.write_many([(b"x", "t")] * (CALLS + 3))
        queue.read(ack=queue.read()).ack()  # what is made once is there from now on
        before = queue.read()
        for _ in range(CALLS):
            see("write", partial(queue.write, b"x", shard_key="t"))
            before = see("read(ack=)", partial(queue.read, ack=before))
            see("ack", before.ack)
            before = queue.read()
    return {name: min(found) for name, found in seen.items()}


async def of_tasks(url: str) -> dict[str, tuple[int, int]]:
    seen: dict[str, list[tuple[int, int]]] = {}

    async def see(name: str, call: Any) -> Any:
        result, found = await awaited(call)
        seen.setdefault(f"async {name}", []).append(found)
        return result

    async with AsyncClient.from_url(url) as client:
        queue = client.queue("tasks", streams=16, streams_per_shard=4)
        await queue.write_many([(b"x", "t")] * (CALLS + 3))
        await (await queue.read(ack=await queue.read())).ack()
        before = await queue.read()
        for _ in range(CALLS):
            await see("write", queue.write(b"x", shard_key="t"))
            before = await see("read(ack=)", queue.read(ack=before))
            await see("ack", before.ack())
            before = await queue.read()
    return {name: min(found) for name, found in seen.items()}


def test_a_call_goes_through_few_files() -> None:
    with EmbeddedServer() as server:
        seen = of_threads(server.url) | asyncio.run(of_tasks(server.url))
    assert {name: each for name, each in seen.items() if each[0] > MOST[name][0] or each[1] > MOST[name][1]} == {}

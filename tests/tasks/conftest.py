"""A server of this folder's own, and workers of both kinds that run tasks until their queue is empty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardq import AsyncClient, AsyncWorker, Client, Worker
from shardq.tasks import Tasks
from tests.clients import CLIENT_KINDS, ClientKind
from tests.worker.conftest import default_server, url

__all__ = ["default_server", "url"]  # pytest finds the fixtures here

Work = Callable[..., None]


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client.from_url(url) as client:
        yield client


@pytest.fixture(params=CLIENT_KINDS)
def client_kind(request: pytest.FixtureRequest) -> ClientKind:
    kind: ClientKind = request.param
    return kind


each_kind = pytest.mark.parametrize(
    ("client_kind", "is_async"),
    [("sync", False), ("async", False), ("async", True)],
    indirect=["client_kind"],
    ids=["Worker", "AsyncWorker", "AsyncWorker-async"],
)
"""For each kind of worker with each kind of task that it runs."""


def of_kind(is_async: bool, function: Any) -> Any:
    """Return *function* itself, or a coroutine function that calls it."""

    async def coroutine(number: int) -> Any:
        return function(number)

    return coroutine if is_async else function


@pytest.fixture
def work(url: str, client_kind: ClientKind) -> Work:
    """Run tasks in a worker of the kind under test, until nothing of their queue is left to do."""

    async def work_async(tasks: Tasks[Any], settings: dict[str, Any]) -> None:
        async with AsyncClient.from_url(url) as client:
            await AsyncWorker(client.queue(tasks), tasks, until="empty", **settings).run()

    def work(tasks: Tasks[Any], **settings: Any) -> None:
        if client_kind == "async":
            asyncio.run(work_async(tasks, settings))
            return
        with Client.from_url(url) as client:
            Worker(client.queue(tasks), tasks, until="empty", **settings).run()

    return work

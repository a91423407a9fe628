"""A server of this folder's own, and workers of both kinds that run tasks until their queue is empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shardq import AsyncWorker, Worker
from shardq.tasks import Tasks
from shardq.worker.application import Application
from tests.clients import ClientKind
from tests.worker.conftest import client, client_kind, default_server, functions, url
from tests.worker.running import QueueOf, run_worker

__all__ = ["client", "client_kind", "default_server", "functions", "url"]  # pytest finds the fixtures here

Work = Callable[..., Worker | AsyncWorker]


@pytest.fixture
def work(url: str, client_kind: ClientKind) -> Work:
    """Run tasks in a worker of the kind under test, until nothing of their queue, or of *queues*, is left to do."""

    def work(tasks: Application, queues: Mapping[QueueOf, int] | None = None, **settings: Any) -> Worker | AsyncWorker:
        if queues is None:
            assert isinstance(tasks, Tasks)
            queues = {tasks: 1}
        return run_worker(client_kind, url, queues, tasks, until="empty", **settings)

    return work

"""What all tests of the dashboard have: a browser, a clock that the test moves, and somebody who writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client, Queue
from shardq.testing import ManualClock
from tests.dashboard.browser import chromium, open_look
from tests.servers import Server

__all__ = ["chromium", "open_look"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url, name="writer") as client:
        yield client


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> Queue:
    """A queue with the SETTINGS of the test's module."""
    queue = client.queue("jobs", **getattr(request.module, "SETTINGS", {"streams": 2}))
    queue.declare()
    return queue

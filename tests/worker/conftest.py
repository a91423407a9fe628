"""A server of this folder's own, of the default kind, and workers of both faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from shardq import Client, Queue
from shardq.worker import threads
from tests.faces import FACES, Face
from tests.servers import Server, ServerKind, available
from tests.worker.shift import Handle, Shift

Begin = Callable[..., Shift]


@pytest.fixture(scope="session")
def default_server() -> Iterator[Server]:
    kinds: list[ServerKind] = available()
    with Server(kinds[0] if kinds else None) as server:
        yield server


@pytest.fixture
def url(default_server: Server) -> str:
    default_server.start()
    default_server.run("FLUSHALL")
    return default_server.url


@pytest.fixture(autouse=True)
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocked read of a thread ends at its next slice: not a second for each test."""
    monkeypatch.setattr(threads, "BLOCK", 0.1)


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    return cast("Face", request.param)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client.from_url(url) as client:
        yield client


@pytest.fixture
def jobs(client: Client) -> Queue:
    """The queue `jobs`, created with short leases and three deliveries at most."""
    queue = client.queue("jobs", streams=8, visibility_timeout=0.5, max_deliveries=3)
    queue.read_many(1)
    return queue


@pytest.fixture
def begin(face: Face, url: str) -> Iterator[Begin]:
    """Starts a worker of the face under test on the queue `jobs`."""
    with ExitStack() as stack:

        def begin(handle: Handle, **settings: Any) -> Shift:
            return stack.enter_context(Shift(face, url, "jobs", handle, **settings))

        yield begin

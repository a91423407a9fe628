"""A server of this folder's own, of the default kind, and a poller whose clock the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client
from shardq.exporter.poller import Poller
from shardq.testing import ManualClock
from tests.conftest import as_usual
from tests.servers import Server, ServerKind, available


@pytest.fixture(scope="session")
def default_server() -> Iterator[Server]:
    kinds: list[ServerKind] = available()
    with Server(kinds[0] if kinds else None) as server:
        yield server


@pytest.fixture
def server(default_server: Server) -> Server:
    default_server.start()
    return as_usual(default_server)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url) as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def poller(client: Client, clock: ManualClock) -> Poller:
    return Poller(client, clock=clock)

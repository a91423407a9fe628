"""Clients and queues of both kinds on real servers; what is not kept yet is expected to fail."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar, cast

import pytest

from shardq import Client, Queue
from shardq.client import base
from tests.clients import ClientKind, opened
from tests.conformance.partitions.differences import PARTITIONS, expected, refused
from tests.promises.expected import EXPECTED, reason
from tests.servers import Server

Test = TypeVar("Test", bound=Callable[..., object])
OpenClient = Callable[..., Client]
OpenQueue = Callable[..., Queue]


def lone(test: Test) -> Test:
    """Run this test with the client for threads on the default server only: it takes long, or counts commands."""
    alone = pytest.mark.parametrize("client_kind", ["sync"], indirect=True)
    return cast("Test", pytest.mark.once(alone(test)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say of each test in the list of expected failures that it fails. If it passes, it must leave the list.

    It fails by an assertion: a test that ends by another error does not show what it was written for.
    """
    for item in items:
        folder, slash, name = item.nodeid.partition("tests/promises/")
        if not slash or folder:
            continue
        if why := reason(name, EXPECTED):
            item.add_marker(pytest.mark.xfail(reason=why, raises=AssertionError, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Fixtures open queues, too."""
    if not PARTITIONS or request.config.option.runxfail:
        return (yield)
    with refused():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """With partitions, leave out what is known to be different of a queue that has them. --runxfail runs it, too."""
    if not PARTITIONS or item.config.option.runxfail:
        return (yield)
    with expected(getattr(item, "originalname", "")):
        return (yield)


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> ClientKind:
    """`Client` or `AsyncClient`."""
    return cast("ClientKind", request.param)


@pytest.fixture
def open_client(client_kind: ClientKind, server: Server) -> Iterator[OpenClient]:
    """Opens clients of the kind under test, of `server` if nothing else is said; they are closed with the test."""
    with ExitStack() as stack:

        def make(url: str = "", **settings: Any) -> Client:
            return stack.enter_context(opened(client_kind, url or server.url, **{"timeout": 60.0, **settings}))

        yield make


@pytest.fixture
def client(open_client: OpenClient) -> Client:
    """A client of `server`."""
    return open_client()


@pytest.fixture
def queue_name() -> str:
    """Always the same, since it decides how tenants are dealt to streams: a promise is kept in each run, or in none."""
    return "jobs"


@pytest.fixture
def open_queue(client: Client, queue_name: str) -> OpenQueue:
    """Opens the test's queue, which exists then: settings as of `Client.queue`; *by* another client than `client`."""

    def open_queue(*, by: Client | None = None, **settings: Any) -> Queue:
        parts = {"partitions": PARTITIONS} if PARTITIONS else {}
        queue = (by or client).queue(queue_name, **{"create": True, **parts, **settings})
        queue.declare()
        return queue

    return open_queue


@pytest.fixture
def patient(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose blocked readers do not look again by themselves: what does not wake them is missed."""
    monkeypatch.setattr(base, "MAX_SLICE", 600.0)
    return open_client(wait_slice=600.0)

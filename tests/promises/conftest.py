"""Clients and queues of both kinds on real servers; what is not kept yet is expected to fail."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from enum import Enum
from typing import Any, TypeVar, cast

import pytest

from shardq import Client, Queue
from shardq.client import base
from tests.clients import ClientKind, opened
from tests.conformance.partitions.differences import (
    DIFFERENCES,
    ON_CLUSTER,
    OWN_SERVER,
    PARTITIONS,
    PLAIN,
    expected,
    refused,
)
from tests.promises.expected import EXPECTED, reason
from tests.servers import Cluster, Server

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


class Spread(Enum):
    """Where the queues of a test are."""

    USUAL = "usual"
    """Without partitions, on one server; both as SHARDQ_PARTITIONS and SHARDQ_ON say."""
    PARTED = "parted"
    """With three partitions, on one server."""
    CLUSTER = "parted-cluster"
    """With three partitions, on a cluster of three nodes."""

    @property
    def partitions(self) -> int:
        """How many each queue has; 0: there is no layer."""
        return PARTITIONS if self is Spread.USUAL else PARTITIONS or 3

    @property
    def each(self) -> int:
        """How many times as much a call may take, as it goes to all partitions."""
        return self.partitions or 1

    @property
    def is_clustered(self) -> bool:
        """Whether they are on a cluster."""
        return self is Spread.CLUSTER or (ON_CLUSTER and PARTITIONS > 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let `make test-all` show with partitions, too, what `make test` shows, unless all is shown so.

    What is known to be different is left out, as what takes long: SHARDQ_PARTITIONS=3 and SHARDQ_ON say what of that.
    """
    item: Any = metafunc.definition
    mark = item.get_closest_marker("runs_in")
    is_quick = mark is None or "test" in mark.args
    if PARTITIONS or not is_quick or "spread" not in metafunc.fixturenames or item.originalname in DIFFERENCES:
        return
    spreads = [Spread.USUAL, Spread.PARTED, *([] if own_server(item) else [Spread.CLUSTER])]
    metafunc.parametrize("spread", spreads, ids=[each.value for each in spreads], indirect=True)


def own_server(item: Any) -> bool:
    """Whether a test does something with the one server that it is on."""
    wanted = set(item._fixtureinfo.argnames)
    for name in item._fixtureinfo.argnames:  # those of its own file
        for each in item._fixtureinfo.name2fixturedefs.get(name, ()):
            wanted |= set(each.argnames) if each.baseid.endswith(".py") else set()
    return "server" in wanted


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Fixtures open queues, too."""
    if request.config.option.runxfail or not _spread_of(request.node).partitions:
        return (yield)
    with refused():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """With partitions, leave out what is known to be different of a queue that has them. --runxfail runs it, too."""
    if item.config.option.runxfail or not _spread_of(item).partitions:
        return (yield)
    if "spread" not in getattr(item, "fixturenames", ()):
        pytest.xfail(f"with partitions: {PLAIN}")
    if _spread_of(item).is_clustered and own_server(item):
        pytest.xfail(f"on a cluster: {OWN_SERVER}")
    with expected(getattr(item, "originalname", "")):
        return (yield)


def _spread_of(item: Any) -> Spread:
    callspec = getattr(item, "callspec", None)
    return cast("Spread", callspec.params.get("spread", Spread.USUAL)) if callspec else Spread.USUAL


@pytest.fixture
def spread(request: pytest.FixtureRequest) -> Spread:
    """Where the queues of the test are."""
    return cast("Spread", getattr(request, "param", Spread.USUAL))


@pytest.fixture
def server_url(request: pytest.FixtureRequest, server: Server, spread: Spread) -> str:
    """The URL of `server`, or of the cluster in its place."""
    if not spread.is_clustered:
        return server.url
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.url


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> ClientKind:
    """`Client` or `AsyncClient`."""
    return cast("ClientKind", request.param)


@pytest.fixture
def open_client(client_kind: ClientKind, server_url: str) -> Iterator[OpenClient]:
    """Opens clients of the kind under test, of `server_url` if nothing else is said; they are closed with the test."""
    with ExitStack() as stack:

        def make(url: str = "", **settings: Any) -> Client:
            return stack.enter_context(opened(client_kind, url or server_url, **{"timeout": 60.0, **settings}))

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
def open_queue(client: Client, queue_name: str, spread: Spread) -> OpenQueue:
    """Opens the test's queue, which exists then: settings as of `Client.queue`; *by* another client than `client`."""

    def open_queue(*, by: Client | None = None, **settings: Any) -> Queue:
        parts = {"partitions": spread.partitions} if spread.partitions else {}
        queue = (by or client).queue(queue_name, **{"create": True, **parts, **settings})
        queue.declare()
        return queue

    return open_queue


@pytest.fixture
def patient(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose blocked readers do not look again by themselves: what does not wake them is missed."""
    monkeypatch.setattr(base, "MAX_SLICE", 600.0)
    return open_client(wait_slice=600.0)

"""The worlds of the suite: each kind of client on each server, one parameter of a test each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from shardq import Client, Queue
from shardq.client import base
from tests.clients import Loop
from tests.conformance.partitions.differences import PARTITIONS, expected, refused
from tests.conformance.world import FakeWorld, World, raw_client
from tests.servers import Cluster, Server, ServerKind, available

KINDS = {kind.product: kind for kind in available()}
TRACED = "traced"
PARTED = "parted"
_TRACED = "ack_with_read blocking read settle write"
WITH_TRACED = {f"test_{name}" for name in _TRACED.split()}
"""Files that also run as calls go where spans are recorded: without the shortcuts of the common case, on one server."""
_PARTED = "blocking cancel children dead delay due fairness prefer read settle stats tenants unique write"
WITH_PARTED = {f"test_{name}" for name in _PARTED.split()}
"""Files that also run with queues of three partitions: on one server, and on a cluster what all servers show."""
_FAKE = "cancel dead dedup delay publish read results settle stats unique write"
ON_THE_FAKE = {f"test_{name}" for name in _FAKE.split()}
"""Files about what users test on the fake. It runs the same scripts, but Redis's commands are others' code."""
Record = Callable[[str, object], None]
OpenQueue = Callable[..., Queue]


@pytest.hookimpl(tryfirst=True)  # wherever a run begins: without it, ids of tests depend on which folders are named
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its worlds.

    What a queue does is said by its scripts, whoever calls them. So a test runs twice: with the client for threads on
    the default server, and with the one for asyncio on the other. Two marks say that this is too much or too little:
    `once` of a test that no other client or server can end otherwise, and `everywhere` of the cross-section, which
    shows each step on each server, on clusters and on the fake.
    """
    if "world" in metafunc.fixturenames:
        metafunc.parametrize("world", _worlds_of(metafunc), indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Fixtures open queues, too."""
    if request.config.option.runxfail:
        return (yield)
    with refused():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """With partitions, leave out what is known to be different of a queue that has them. --runxfail runs it, too."""
    world = getattr(item, "funcargs", {}).get("world")
    if world is None or not world.partitions or item.config.option.runxfail:
        return (yield)
    with expected(getattr(item, "originalname", "")):
        return (yield)


def _worlds_of(metafunc: pytest.Metafunc) -> list[str]:
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    module = metafunc.module.__name__.rpartition(".")[2]
    first, *others = KINDS or ["none"]
    clusters = ["sync-cluster", "async-cluster"]
    usual = [f"sync-{first}", *(f"async-{other}" for other in others or [first])]
    traced = [f"sync-{first}-{TRACED}"] if module in WITH_TRACED else []
    fake = ["fake"] if module in ON_THE_FAKE or "everywhere" in marks else []
    opens = module in WITH_PARTED and "open_queue" in metafunc.fixturenames
    parted = [f"sync-{first}-{PARTED}"] if opens else []
    if "clustered" in metafunc.fixturenames:
        return clusters
    if "once" in marks:
        return [*usual[:1], *traced, *parted]
    every = [f"async-{first}", *(f"sync-{other}" for other in others), *clusters] if "everywhere" in marks else []
    parted += [f"async-cluster-{PARTED}"] if opens and "everywhere" in marks else []
    worlds = [*usual, *every, *traced, *parted, *([] if "real" in metafunc.fixturenames else fake)]
    return list(dict.fromkeys(worlds))


@pytest.fixture
def real() -> None:
    """Not on the fake: for tests that need a server of their own process, real time, real blocking, or that take long.

    The fake runs the same scripts, more slowly than a server.
    """


@pytest.fixture
def clustered() -> None:
    """For tests of what only a cluster does."""


@pytest.fixture(scope="session")
def whole_cluster(running_cluster: Cluster) -> Cluster:
    """The cluster, every slot served; these tests move none."""
    running_cluster.wait_ok()
    return running_cluster


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    """The event loop of the asyncio client."""
    loop = Loop()
    yield loop
    loop.stop()


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[ServerKind | None], Server]]:
    """Servers that are started when first asked for, and run as long as the tests."""
    with contextlib.ExitStack() as stack:
        running: dict[ServerKind | None, Server] = {}

        def start(kind: ServerKind | None) -> Server:
            if kind not in running:
                running[kind] = stack.enter_context(Server(kind))
            return running[kind]

        yield start


@pytest.fixture(scope="session")
def looked_at() -> Iterator[Callable[[str], Any]]:
    """Plain clients by URL, to look into a server with: each is made once, as one of a cluster asks for its slots."""
    with contextlib.ExitStack() as stack:
        made: dict[str, Any] = {}

        def look(url: str) -> Any:
            if url not in made:
                made[url] = stack.enter_context(raw_client(url))
            return made[url]

        yield look


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    looked_at: Callable[[str], Any],
    record_property: Record,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    """One kind of client on one empty server."""
    client_kind, _, where = request.param.partition("-")
    where, _, form = where.partition("-")
    if form == TRACED:
        monkeypatch.setattr("shardq.client.queue.watched", lambda: True)
    loop = request.getfixturevalue("loop") if client_kind == "async" else None
    with contextlib.ExitStack() as stack:
        if request.param == "fake":
            world: World = FakeWorld()
        elif where == "cluster":
            cluster = request.getfixturevalue("whole_cluster")
            record_property("server", cluster.name)
            world = World(cluster.url, looked_at(cluster.url), loop)
            world.raw.flushall(target_nodes="primaries")
        else:
            server = request.getfixturevalue("started")(KINDS.get(where)).start()  # without any it says what to install
            record_property("server", server.name)
            world = World(server.url, looked_at(server.url), loop)
            world.raw.flushall()
        world.partitions = PARTITIONS or (3 if form == PARTED else 0)
        stack.callback(world.close)
        yield world


@pytest.fixture
def client(world: World) -> Client:
    """A client of this world."""
    return world.client()


@pytest.fixture
def patient(world: World, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client whose blocked readers do not look again by themselves: what does not wake them is missed."""
    monkeypatch.setattr(base, "MAX_SLICE", 600.0)
    return world.client(wait_slice=600.0)


@pytest.fixture
def server_client(server: Server) -> Iterator[Client]:
    """A client of `server`, for operations that only the test runs, by `Client.run`: they need no world."""
    with Client.from_url(server.url, timeout=20) as client:
        yield client


@pytest.fixture
def open_queue(client: Client, queue_name: str, world: World) -> OpenQueue:
    """Opens the test's queue: settings as of `Client.queue`; *by* another client than `client`."""

    def open_queue(*, by: Client | None = None, **settings: Any) -> Queue:
        is_parted = world.partitions and settings.get("create", True)
        parts = {"partitions": world.partitions} if is_parted else {}
        return (by or client).queue(queue_name, **{"create": True, **parts, **settings})

    return open_queue


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue of four streams, all of them everybody's shard."""
    return open_queue(streams=4, streams_per_shard=4)


@pytest.fixture
def plain_queue(open_queue: OpenQueue) -> Queue:
    """The same without a window: what is written goes straight into the streams."""
    return open_queue(streams=4, streams_per_shard=4, window=0)

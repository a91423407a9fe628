"""Fixtures for every test: real servers, a cluster, names, seeds, and waiting with a bound."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardq.protocol import scripts
from tests import waiting
from tests.report import SEED
from tests.servers import Cluster, Server, ServerKind, available

_KINDS: list[ServerKind | None] = [*available()] or [None]  # without any, starting one says what to install


def _name(kind: ServerKind | None) -> str:
    return kind.product if kind else "none"


USUAL = {"hz": 10, "maxmemory": 0, "maxmemory-policy": "noeviction", "min-replicas-to-write": 0}
"""What tests change of a server's settings."""

ON_ONE_SERVER = pytest.mark.parametrize("running_server", _KINDS[:1], ids=_name, indirect=True)
"""For tests with `server` whose fact no other product of server could change, and that take long."""

Mutate = Callable[[str, str, str], None]
Record = Callable[[str, object], None]


WORLDS = ("world", "running_server")
"""Parameters that say with which client and on which server a test runs."""


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes by nature is left to `make soak`, and so are all worlds but the first of what is heavy."""
    for item in items:
        if item.get_closest_marker("heavy") and _is_repeated(item):
            item.add_marker("soak")
    left = [] if os.environ.get("SHARDQ_SOAK") else [item for item in items if item.get_closest_marker("soak")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def _is_repeated(item: pytest.Item) -> bool:
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    return any(indices.get(name, 0) for name in WORLDS)


@pytest.fixture(scope="session", params=_KINDS, ids=_name)
def running_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for the whole run, for each kind that this machine has; `server` is the one to use in a test."""
    kind: ServerKind | None = request.param
    with Server(kind) as server:
        yield server


@pytest.fixture
def server(running_server: Server, record_property: Record) -> Server:
    """A running, empty server on a unix socket; a test may kill, restart or suspend it, or change its settings."""
    record_property("server", running_server.name)
    running_server.start()
    return as_usual(running_server)


def as_usual(server: Server) -> Server:
    """The same server, empty and with its usual settings."""
    with server.client() as client:
        for name, value in USUAL.items():
            client.config_set(name, value)
        client.flushall()
    return server


@pytest.fixture
def server_url(server: Server) -> str:
    """The URL of `server`."""
    return server.url


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    """One cluster of three nodes for the whole run; `cluster` is the one to use in a test."""
    with Cluster(_KINDS[0]) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster, record_property: Record) -> Cluster:
    """A cluster of three nodes, every slot served, no keys; where a slot is may have changed in earlier tests."""
    record_property("server", running_cluster.name)
    running_cluster.wait_ok()
    running_cluster.flush()
    return running_cluster


@pytest.fixture
def kind() -> ServerKind | None:
    """The default kind of server, for tests that start their own."""
    return _KINDS[0]


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where there is one.

    Of a server that is killed: on a busy disk Redis answers before it has written its log (docs/durability.md).
    """
    memory = Path("/dev/shm")  # noqa: S108 (the folder within it is this test's own)
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """A queue name of this test's own."""
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name)[:60]
    return f"{readable}.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A random seed of this test's own, shown when it fails; `rng` is made of the same."""
    value = SEED + zlib.crc32(request.node.nodeid.encode())
    print(f"seed {value}; SHARDQ_SEED={SEED} repeats it")  # pytest shows what was printed when a test fails
    return int(value)


@pytest.fixture
def eventually() -> Callable[..., object]:
    """`tests.waiting.eventually`: waits for a condition, with a bound."""
    return waiting.eventually


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Mutate]:
    """Run with a copy of the scripts in which one text is another."""

    def change(name: str, right: str, wrong: str) -> None:
        folder = tmp_path / "lua"
        shutil.copytree(str(scripts.root()), folder)
        path = folder / f"{name}.lua"
        source = path.read_text()
        assert source.count(right) == 1, f"{name}.lua changed: this mutant must change with it"
        path.write_text(source.replace(right, wrong))
        monkeypatch.setattr(scripts, "root", lambda: folder)
        scripts.load.cache_clear()

    yield change
    scripts.load.cache_clear()

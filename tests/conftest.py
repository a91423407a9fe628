"""Fixtures for every test: real servers, a cluster, names, seeds, and waiting with a bound."""

from __future__ import annotations

import itertools
import logging
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
from tests.clients import CLIENT_KINDS
from tests.report import SEED
from tests.servers import Cluster, Server, ServerKind, available

_KINDS: list[ServerKind | None] = [*available()] or [None]  # without any, starting one says what to install


def _name(kind: ServerKind | None) -> str:
    return kind.product if kind else "none"


USUAL = {"hz": 10, "maxmemory": 0, "maxmemory-policy": "noeviction", "min-replicas-to-write": 0}
"""What tests change of a server's settings."""

Mutate = Callable[[str, str, str], None]
Record = Callable[[str, object], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its servers; the default one is enough for a test with the mark `once`.

    What is tested with both kinds of client has one on each server: clients and servers do not depend on each other.
    """
    names = metafunc.fixturenames
    if "running_server" not in names:
        return
    kinds = _KINDS[:1] if metafunc.definition.get_closest_marker("once") else _KINDS
    if "client_kind" in names and not is_given(metafunc, "client_kind"):
        pairs = [
            pytest.param(client_kind, kind, id=f"{client_kind}-{_name(kind)}")
            for client_kind, kind in zip(CLIENT_KINDS, itertools.cycle(kinds), strict=False)
        ]
        metafunc.parametrize(("client_kind", "running_server"), pairs, indirect=True)
    else:
        metafunc.parametrize("running_server", kinds, ids=_name, indirect=True)


def is_given(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether the test has values of its own for that parameter."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any(name in str(mark.args[0]) for mark in marks)


@pytest.fixture(autouse=True)
def heard_warnings() -> Iterator[None]:
    """Hold each test to leave the library's warnings on: the tests behind it, in its process, look for them."""
    yield
    assert logging.getLogger("shardq").isEnabledFor(logging.WARNING), "this test left the library's warnings off"


@pytest.fixture(scope="session")
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
    """Run with a copy of the library in which one text of a module is another."""

    def forget() -> None:
        scripts.library.cache_clear()
        scripts.load.cache_clear()

    def change(name: str, right: str, wrong: str) -> None:
        folder = tmp_path / "lua"
        shutil.copytree(str(scripts.root()), folder)
        path = next(folder.rglob(f"{name}.lua"))
        source = path.read_text()
        assert source.count(right) == 1, f"{name}.lua changed: this mutant must change with it"
        path.write_text(source.replace(right, wrong))
        monkeypatch.setattr(scripts, "root", lambda: folder)
        forget()

    yield change
    forget()

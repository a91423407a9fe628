"""Fixtures for faults: a proxy that loses things, clients of both kinds, and the scripts known to the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from shardq import Client
from shardq.protocol.scripts import load, names
from tests.clients import CLIENT_KINDS, ClientKind, opened
from tests.conftest import is_given
from tests.proxy import Cut, Proxy, on_the_wire
from tests.servers import Server

Open = Callable[..., Client]
Cutter = Callable[..., Cut]


@pytest.hookimpl(tryfirst=True)  # wherever a run begins: without it, ids of tests depend on which folders are named
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both kinds of client for a test that starts its own servers; the others get theirs with a server each."""
    names = metafunc.fixturenames
    if "client_kind" in names and "running_server" not in names and not is_given(metafunc, "client_kind"):
        metafunc.parametrize("client_kind", CLIENT_KINDS, indirect=True)


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> ClientKind:
    """`Client` or `AsyncClient`."""
    return cast("ClientKind", request.param)


@pytest.fixture
def open_client(client_kind: ClientKind) -> Iterator[Open]:
    """Opens clients of the kind under test; they are closed with the test."""
    with ExitStack() as stack:

        def make(url: str, **settings: Any) -> Client:
            return stack.enter_context(opened(client_kind, url, **settings))

        yield make


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """In front of `server`, which knows all scripts: no request is answered NOSCRIPT."""
    with server.client() as plain, plain.pipeline(transaction=False) as pipe:
        for name in names():
            pipe.script_load(load(name).source)
        pipe.execute()
    with Proxy(server.url) as proxy:
        yield proxy


@pytest.fixture(params=["reply", "request"])
def lose(request: pytest.FixtureRequest, proxy: Proxy) -> Cutter:
    """Lose the reply to a script (the server acted) or its request (it never saw it), with the connection."""
    cut = proxy.cut_after_request if request.param == "reply" else proxy.cut_before_request

    def plan(script: str, *, skip: int = 0) -> Cut:
        return cut(on_the_wire(script), skip=skip)

    return plan

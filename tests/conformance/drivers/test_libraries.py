"""The library of functions: it is loaded where it is missing, and where it cannot be, the same text runs as scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq.clock import SystemClock
from shardq.drivers import Driver, Target
from shardq.drivers.forms import RETRY_SECONDS, SOON_SECONDS
from shardq.ops.operate.libraries import why_no_library
from shardq.ops.queue.steps import Batch, Call, Refused
from shardq.protocol.library import Library
from shardq.protocol.script import FUNCTION, HASH
from shardq.testing import ManualClock
from tests.conformance.drivers.libraries import (
    CALLERS,
    FAILING,
    Caller,
    commands,
    emptied,
    forget_commands,
    library,
    loaded,
)
from tests.proxy import Proxy
from tests.servers import Cluster, Replicated, Server, ServerKind
from tests.waiting import eventually

KEY = "{q}text"
OK = b"OK"
Open = Callable[..., Caller]


@pytest.fixture
def functions(tmp_path: Path) -> Library:
    return library(tmp_path / "one")


@pytest.fixture
def server(server: Server) -> Server:
    """A server without libraries, which counts commands from now on."""
    return emptied(server)


@pytest.fixture(params=CALLERS)
def open_caller(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens drivers of this kind, which are closed with the test."""
    opened: list[Caller] = []

    def make(url: str, clock: ManualClock | None = None) -> Caller:
        opened.append(CALLERS[request.param](url, clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def put(functions: Library, text: str = "a", key: str = KEY) -> Call:
    return Call(functions.script("put"), (key,), (text,))


def get(functions: Library, key: str = KEY) -> Call:
    return Call(functions.script("get"), (key,))


def take(functions: Library, key: str = KEY) -> Call:
    return Call(functions.script("take"), (key,))


def test_the_library_is_loaded_on_first_use_and_only_then(
    server: Server, functions: Library, open_caller: Open
) -> None:
    caller = open_caller(server.url)
    assert caller.attempt(put(functions)) == OK
    assert (commands(server)["function|load"], loaded(server)) == (1, {functions.name})
    forget_commands(server)
    assert caller.attempt(put(functions, "b")) == OK
    assert caller.attempt(get(functions)) == b"b"
    assert open_caller(server.url).attempt(take(functions)) == b"b"
    assert commands(server) == {"fcall": 2, "fcall_ro": 1}


def test_a_library_that_another_client_loads_meanwhile_is_there(
    server: Server, functions: Library, open_caller: Open
) -> None:
    with Proxy(server.url) as proxy:
        caller = open_caller(proxy.url)
        proxy.before_request(functions.text.encode(), lambda: server.run("FUNCTION", "LOAD", functions.text))
        assert caller.attempt(put(functions)) == OK
        seen = commands(server)
    assert (seen.pop("function|load"), {*seen}) == (2, {"fcall"})
    assert caller.forms.of(None) == FUNCTION


@pytest.mark.parametrize("once", [False, True], ids=["resent", "once"])
def test_a_batch_that_finds_no_library(server: Server, functions: Library, open_caller: Open, once: bool) -> None:
    caller, batch = open_caller(server.url), Batch((put(functions), get(functions)), once=once)
    outcomes = caller.attempt(batch)
    if once:  # the operation sends each of them again by itself
        assert [each.code for each in outcomes] == ["NOSCRIPT", "NOSCRIPT"]
        assert caller.attempt(put(functions)) == OK
        outcomes = caller.attempt(batch)
    assert outcomes == [OK, b"a"]


def test_functions_that_somebody_removes_come_back(server: Server, functions: Library, open_caller: Open) -> None:
    caller = open_caller(server.url)
    for number in range(3):
        assert caller.attempt(put(functions, str(number))) == OK
        server.run("FUNCTION", "FLUSH")
    assert commands(server)["function|load"] == 3
    assert "eval" not in commands(server)


def test_a_server_that_is_new_gets_the_library(server: Server, functions: Library, open_caller: Open) -> None:
    caller = open_caller(server.url)
    assert caller.attempt(put(functions)) == OK
    server.restart()
    assert loaded(server) == set()
    eventually(lambda: caller.attempt(put(functions)) == OK)
    assert loaded(server) == {functions.name}


def test_a_full_server_runs_the_same_text_as_scripts(server: Server, functions: Library, open_caller: Open) -> None:
    clock = ManualClock()
    caller, other = open_caller(server.url, clock), open_caller(server.url)
    server.run("SET", KEY, "left")
    server.run("CONFIG", "SET", "maxmemory", 1)
    refused = caller.attempt(put(functions))
    assert (refused.code, loaded(server)) == ("OOM", set())
    assert caller.attempt(get(functions)) == b"left"
    assert caller.attempt(take(functions)) == b"left"
    assert other.attempt(take(functions)) is None
    assert commands(server)["function|load"] == 2  # a refusal is remembered
    server.run("CONFIG", "SET", "maxmemory", 0)
    assert caller.attempt(put(functions)) == OK
    assert (caller.forms.of(None), loaded(server)) == (HASH, set())
    clock.advance(SOON_SECONDS)
    assert caller.attempt(put(functions)) == OK
    assert (caller.forms.of(None), loaded(server)) == (FUNCTION, {functions.name})


RESTRICTED = {
    "-function": "NOPERM",
    "-function|load": "NOPERM",
    "-function -fcall -fcall_ro": "NOPERM",
    "-fcall -fcall_ro": "NOSCRIPT",
}


def told_why(url: str) -> Any:
    """The code of the refusal with which `shardq server doctor` says why scripts are used; None if functions are."""
    driver = Driver(Target.parse(url), max_connections=1, block=1)
    try:
        refused = driver.run(why_no_library(SystemClock(), 30))
    finally:
        driver.close()
    return refused and refused.code


@pytest.mark.once
def test_why_there_can_be_no_library_is_told_and_nothing_is_loaded(server: Server) -> None:
    assert told_why(server.url) is None
    server.run("CONFIG", "SET", "maxmemory", 1)
    assert told_why(server.url) == "OOM"
    assert loaded(server) == set()


@pytest.mark.parametrize("rules", RESTRICTED)
def test_a_user_without_the_right_to_functions_sends_scripts(
    server: Server, functions: Library, open_caller: Open, rules: str
) -> None:
    server.run("ACL", "SETUSER", "restricted", "reset", "on", ">PASSWORD", "~*", "+@all", *rules.split())
    clock = ManualClock()
    url = server.url.replace("unix://", "unix://restricted:PASSWORD@")
    caller = open_caller(url, clock)
    assert caller.attempt(Batch((put(functions), get(functions)))) == [OK, b"a"]
    before = commands(server)
    assert caller.attempt(get(functions)) == b"a"
    assert commands(server) == before | {"evalsha_ro": before.get("evalsha_ro", 0) + 1}
    assert loaded(server) == set()
    assert (caller.forms.refusal(None) is not None, told_why(url)) == (True, RESTRICTED[rules])
    clock.advance(SOON_SECONDS)
    assert caller.forms.of(None) == HASH
    clock.advance(RETRY_SECONDS)
    assert caller.forms.of(None) == FUNCTION
    server.run("ACL", "DELUSER", "restricted")


def test_two_versions_stand_side_by_side(server: Server, functions: Library, open_caller: Open, tmp_path: Path) -> None:
    caller, other = open_caller(server.url), library(tmp_path / "two", more="local function unused() end\n")
    for number in range(2):
        assert caller.attempt(put(functions, f"one {number}")) == OK
        assert caller.attempt(get(other)) == f"one {number}".encode()
    assert loaded(server) == {functions.name, other.name}
    assert commands(server)["function|load"] == 2


@pytest.mark.parametrize("form", [FUNCTION, HASH])
def test_an_error_says_in_which_line_of_which_module_it_was(
    server: Server, functions: Library, open_caller: Open, form: str
) -> None:
    caller = open_caller(server.url)
    if form is HASH:
        caller.forms.refused(None, Refused("NOPERM", ""))
    for refused in (
        caller.attempt(get(functions)),
        *caller.attempt(Batch((get(functions), get(functions)), once=True)),
    ):
        assert f"texts.lua:{FAILING} (get): attempt to index" in str(refused)
        assert "user_" not in str(refused)


def test_each_node_of_a_cluster_gets_the_library(cluster: Cluster, functions: Library, open_caller: Open) -> None:
    for node in cluster.nodes:
        node.run("FUNCTION", "FLUSH")
    caller = open_caller(cluster.url)
    keys = [f"{{{name}}}" for name in "abcdef"]
    assert {cluster.owner(cluster.slot_of(key)) for key in keys} == {0, 1, 2}
    assert [caller.attempt(put(functions, key, key)) for key in keys] == [OK] * 6
    assert [caller.attempt(take(functions, key)) for key in keys] == [key.encode() for key in keys]
    assert [loaded(node) for node in cluster.nodes] == [{functions.name}] * 3


def test_a_slot_on_its_way_takes_the_library_along(cluster: Cluster, functions: Library, open_caller: Open) -> None:
    caller, slot, outcomes = open_caller(cluster.url), cluster.slot_of(KEY), list[Any]()
    assert caller.attempt(put(functions)) == OK
    target = (cluster.owner(slot) + 1) % 3
    cluster.nodes[target].run("FUNCTION", "FLUSH")
    cluster.nodes[target].run("SCRIPT", "FLUSH")
    cluster.move_slot(slot, target, between=lambda moved: outcomes.append(caller.attempt(get(functions))))
    assert outcomes == [b"a", b"a"]  # before the key went, and when the node says ASK
    assert loaded(cluster.nodes[target]) == {functions.name}
    assert caller.attempt(take(functions)) == b"a"


def test_a_node_that_became_a_replica_gets_nothing(
    kind: ServerKind | None, functions: Library, open_caller: Open
) -> None:
    with Replicated(kind) as pair:
        (replica,) = pair.replicas
        caller = open_caller(replica.url)
        refused = caller.attempt(put(functions))
        assert (refused.code, caller.forms.of(None)) == ("READONLY", FUNCTION)
        assert open_caller(pair.primary.url).attempt(put(functions)) == OK
        pair.wait_in_sync()
        pair.promote(replica)
        forget_commands(replica)
        assert caller.attempt(get(functions)) == b"a"
        assert commands(replica) == {"fcall_ro": 1}  # the library was replicated

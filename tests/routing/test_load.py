"""Bindings are loaded while others change them: a load ends, with all of them, however many changes there are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from shardq import Client
from shardq.ops.queue.steps import Call
from shardq.ops.topics import bindings as routing
from shardq.routing import Binding
from tests.servers import Server
from tests.waiting import eventually

MANY = 5000


def bound(client: Client, number: int) -> set[Binding]:
    """So many bindings, there at once."""
    pairs = [Binding(f"k{n}.*", "q") for n in range(number)]
    for at in range(0, number, 1000):
        client.bind_many(pairs[at : at + 1000])
    return set(pairs)


def before_each(client: Client, script: str, act: Callable[[int], object]) -> list[str]:
    """Have `act` called with its number before each call of that script; the scripts that are called from now on."""
    seen: list[str] = []
    perform: Any = client._driver.perform

    def performing(step: Any) -> Any:
        if isinstance(step, Call):
            seen.append(step.script.name)
            if step.script.name == script:
                act(seen.count(script))
        return perform(step)

    client._driver.perform = performing  # type: ignore[method-assign]
    return seen


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a hundred bindings, and few changes kept: at most 400, and what is left of a node of the stream."""
    monkeypatch.setattr(routing, "BINDINGS_A_CALL", 100)
    monkeypatch.setattr(routing, "KEPT_CHANGES", 40)


@pytest.mark.runs_in("test-all")
def test_a_load_ends_when_more_is_changed_meanwhile_than_is_kept(server: Server, small: None) -> None:
    with Client.from_url(server.url) as here, Client.from_url(server.url, timeout=5) as late:
        here.queue("q", create=True).declare()
        pairs = sorted(bound(here, MANY))

        def churn(page: int) -> None:
            here.unbind_many(pairs[page * 50 : page * 50 + 50])
            here.bind_many([(f"new{page}.{n}.*", "q") for n in range(100)])
            here.unbind_many([(f"new{page}.{n}.*", "q") for n in range(50)])

        seen = before_each(late, "bindings", churn)
        assert late.publish("k0.x", 1, shard_key="t")
        assert late.router_state().loads == 1
        assert seen.count("bindings") < 1.5 * MANY / 100  # one scan
        late._driver.perform = type(late._driver).perform.__get__(late._driver)  # type: ignore[method-assign]
        assert set(late.router().bindings()) == set(here.router().bindings())
        assert late.router_state().loads == 1
        with server.client() as raw:
            assert raw.xlen(here.router_state().keys.changes) < 600 < MANY


def test_a_load_whose_changes_were_trimmed_away_begins_again(server: Server, small: None) -> None:
    with Client.from_url(server.url) as here, Client.from_url(server.url, timeout=30) as late:
        bound(here, MANY)

        def churn(page: int) -> None:
            if page == 20:
                here.unbind_many([(f"k{n}.*", "q") for n in range(1000)])

        seen = before_each(late, "bindings", churn)
        assert set(late.router().bindings()) == {Binding(f"k{n}.*", "q") for n in range(1000, MANY)}
        assert late.router_state().loads == 1
        assert seen.count("bindings") > 20 + 30


def test_who_follows_is_done_with_what_was_changed_before_it_began(server: Server, small: None) -> None:
    """Others change as fast as it follows: it does not run after them."""
    with Client.from_url(server.url) as here, Client.from_url(server.url) as there:
        bound(here, 300)
        there.router()
        here.bind_many([(f"more{n}.*", "q") for n in range(250)])
        numbers = count()

        def churn(_: int) -> None:
            here.bind_many([(f"yet{next(numbers)}.*", "q") for _ in range(100)])

        seen = before_each(there, "follow", churn)
        there.router()
        assert (seen.count("follow"), there.router_state().loads) == (4, 1)


CHURN = """
import select, sys
from itertools import count
from shardq import Client
with Client.from_url(sys.argv[1], timeout=60) as client:
    for number in count():
        pairs = [(f"k{number % 17}{n}.*", "q") for n in range(500)]
        client.unbind_many(pairs)
        client.bind_many(pairs)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
"""


@pytest.mark.runs_in("test-all")
def test_a_load_ends_beside_a_process_that_changes_bindings_all_the_time(server: Server) -> None:
    with Client.from_url(server.url) as here, server.client() as raw:
        here.queue("q", create=True).declare()
        bound(here, 20_000)
        version = here.router_state().version
        keys = here.router_state().keys
        churn = subprocess.Popen([sys.executable, "-c", CHURN, server.url], stdin=subprocess.PIPE)
        try:
            eventually(lambda: int(raw.hget(keys.bindings, "") or 0) > version)
            with Client.from_url(server.url, timeout=60) as late:
                late.publish("k0.x", 1, shard_key="t")
                assert late.router_state().loads == 1
                assert churn.poll() is None
                churn.communicate(timeout=60)
                assert churn.returncode == 0
                assert set(late.router().bindings()) == set(here.router(timeout=60).bindings())
        finally:
            churn.kill()
            churn.communicate()

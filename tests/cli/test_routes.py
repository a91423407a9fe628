"""bind, unbind, bindings and route, as real processes."""

from __future__ import annotations

import pytest

from shardq import Client
from tests.cli.conftest import Command
from tests.servers import Server


@pytest.mark.runs_in("test-all")
def test_bindings_are_made_listed_and_taken_back(cli: Command) -> None:
    assert cli("bind", "orders.*.created", "billing").out == "bound\n"
    assert cli("bind", "orders.#", "audit").code == 0
    assert cli("bind", "orders.#", "audit").out == "was bound already\n"
    told = cli("bindings")
    assert told.out.splitlines() == ["pattern           queue", "orders.#          audit", "orders.*.created  billing"]
    assert told.err == "shardq: 2 bindings, version 2\n"
    assert cli("route", "orders.eu.created").out == "audit\nbilling\n"
    assert cli("--json", "route", "orders").objects == [{"topic": "orders", "queues": ["audit"]}]
    assert cli("unbind", "orders.#", "audit").out == "unbound\n"
    assert cli("bindings", "--json").objects == [{"pattern": "orders.*.created", "queue": "billing"}]


@pytest.mark.runs_in("test-all")
def test_what_is_not_there_exits_with_3(cli: Command) -> None:
    for words in (("unbind", "a", "q"), ("bindings",), ("route", "a"), ("bindings", "--queue", "q", "--router", "r")):
        told = cli(*words)
        assert (told.code, told.out) == (3, "")


@pytest.mark.runs_in("test-all")
def test_several_are_unbound_at_once_and_the_unknown_are_named(cli: Command) -> None:
    for pattern in ("many.a", "many.*", "many.#"):
        cli("bind", pattern, "q", "--router", "several")
    told = cli("unbind", "many.a", "many.b", "many.*", "q", "--router", "several")
    assert (told.code, told.out.splitlines()) == (3, ["unbound many.a", "unbound many.*"])
    assert "no binding of 'many.b' to 'q'" in told.err
    told = cli("--json", "unbind", "many.#", "many.#", "q", "--router", "several")
    assert told.objects == [{"pattern": "many.#", "queue": "q", "router": "several", "changed": True}]
    assert (told.code, cli("bindings", "--router", "several").code) == (0, 3)


@pytest.mark.runs_in("test-all")
def test_bindings_that_a_pattern_would_catch(cli: Command) -> None:
    for pattern in ("a.*", "a.b", "#", "b"):
        cli("bind", pattern, "q", "--router", "caught")
    told = cli("bindings", "--overlapping", "a.#", "--router", "caught", "--json")
    assert [each["pattern"] for each in told.objects] == ["#", "a.*", "a.b"]
    told = cli("bindings", "--covered-by", "a.#", "--router", "caught", "--json")
    assert [each["pattern"] for each in told.objects] == ["a.*", "a.b"]
    told = cli("bindings", "--covered-by", "c.#", "--router", "caught")
    assert (told.code, told.err) == (3, "shardq: router 'caught' has no such bindings\n")
    assert cli("bindings", "--covered-by", "a..b", "--router", "caught").code == 2


@pytest.mark.runs_in("test-all")
def test_a_bad_pattern_exits_with_2_and_says_why(cli: Command) -> None:
    for words in (("bind", "a..b", "q"), ("route", "a.*"), ("bind", "a", "q{x}")):
        told = cli(*words)
        assert (told.code, told.err.count("\n")) == (2, 1)


@pytest.mark.runs_in("test-all")
def test_what_is_no_binding_is_told(cli: Command, cli_server: Server) -> None:
    cli("bind", "a", "q", "--router", "meddled")
    with Client.from_url(cli.url) as client, cli_server.client() as raw:
        raw.hset(client.router_state("meddled").keys.bindings, "garbage", 1)
    told = cli("bindings", "--router", "meddled")
    assert (told.code, told.out.splitlines()[1:]) == (0, ["a        q"])
    assert "1 invalid entries were ignored" in told.err

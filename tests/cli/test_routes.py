"""bind, unbind, bindings and route, as real processes."""

from __future__ import annotations

import pytest

from shardq import Client, Queue
from tests.cli.conftest import Command
from tests.cli.test_doctor_command import ACCEPTED
from tests.servers import Server


@pytest.mark.runs_in("test-all")
def test_bindings_are_made_listed_and_taken_back(cli: Command) -> None:
    with Client.from_url(cli.url) as client:
        for name in ("audit", "billing"):
            client.queue(name, streams=1).declare()
    assert cli("topics", "bind", "orders.*.created", "billing").out == "bound\n"
    assert cli("topics", "bind", "orders.#", "audit").code == 0
    assert cli("topics", "bind", "orders.#", "audit").out == "was bound already\n"
    told = cli("topics", "list")
    assert told.out.splitlines() == [
        "pattern           queue    which is",
        "orders.#          audit    there",
        "orders.*.created  billing  there",
    ]
    assert told.err == "shardq: 2 bindings, version 2\n"
    assert cli("topics", "route", "orders.eu.created").out == "audit\nbilling\n"
    assert cli("--json", "topics", "route", "orders").objects == [{"topic": "orders", "queues": ["audit"], "gone": []}]
    assert cli("topics", "unbind", "orders.#", "audit").out == "unbound\n"
    assert cli("topics", "list", "--json").objects == [
        {"pattern": "orders.*.created", "queue": "billing", "gone": False}
    ]


@pytest.mark.runs_in("test-all")
def test_what_is_not_there_exits_with_3(cli: Command) -> None:
    for words in (
        ("topics", "unbind", "a", "q"),
        (
            "topics",
            "list",
        ),
        ("topics", "route", "a"),
        ("topics", "list", "--queue", "q", "--router", "r"),
    ):
        told = cli(*words)
        assert (told.code, told.out) == (3, "")


@pytest.mark.runs_in("test-all")
def test_several_are_unbound_at_once_and_the_unknown_are_named(cli: Command) -> None:
    for pattern in ("many.a", "many.*", "many.#"):
        cli("topics", "bind", pattern, "q", "--router", "several")
    told = cli("topics", "unbind", "many.a", "many.b", "many.*", "q", "--router", "several")
    assert (told.code, told.out.splitlines()) == (3, ["unbound many.a", "unbound many.*"])
    assert "no binding of 'many.b' to 'q'" in told.err
    told = cli("--json", "topics", "unbind", "many.#", "many.#", "q", "--router", "several")
    assert told.objects == [{"pattern": "many.#", "queue": "q", "router": "several", "changed": True}]
    assert (told.code, cli("topics", "list", "--router", "several").code) == (0, 3)


@pytest.mark.runs_in("test-all")
def test_bindings_that_a_pattern_would_catch(cli: Command) -> None:
    for pattern in ("a.*", "a.b", "#", "b"):
        cli("topics", "bind", pattern, "q", "--router", "caught")
    told = cli("topics", "list", "--overlapping", "a.#", "--router", "caught", "--json")
    assert [each["pattern"] for each in told.objects] == ["#", "a.*", "a.b"]
    told = cli("topics", "list", "--covered-by", "a.#", "--router", "caught", "--json")
    assert [each["pattern"] for each in told.objects] == ["a.*", "a.b"]
    told = cli("topics", "list", "--covered-by", "c.#", "--router", "caught")
    assert (told.code, told.err) == (3, "shardq: router 'caught' has no such bindings\n")
    assert cli("topics", "list", "--covered-by", "a..b", "--router", "caught").code == 2


@pytest.mark.runs_in("test-all")
def test_a_bad_pattern_exits_with_2_and_says_why(cli: Command) -> None:
    for words in (("topics", "bind", "a..b", "q"), ("topics", "route", "a.*"), ("topics", "bind", "a", "q{x}")):
        told = cli(*words)
        assert (told.code, told.err.count("\n")) == (2, 1)


@pytest.mark.runs_in("test-all")
def test_what_is_no_binding_is_told(cli: Command, cli_server: Server) -> None:
    cli("topics", "bind", "a", "q", "--router", "meddled")
    with Client.from_url(cli.url) as client, cli_server.client() as raw:
        raw.hset(client.router_state("meddled").keys.bindings, "garbage", 1)
    told = cli("topics", "list", "--router", "meddled")
    assert (told.code, told.out.splitlines()[1:]) == (0, ["a        q      gone"])
    assert "1 invalid entries were ignored" in told.err


@pytest.mark.runs_in("test-all")
def test_bindings_to_gone_queues_are_shown_and_taken_away_at_once(cli: Command, queue: Queue) -> None:
    for pattern, name in (("a.*", "jobs"), ("a.#", "deleted"), ("b", "deleted"), ("a.x", "absent")):
        cli("topics", "bind", pattern, name)
    queue.client.queue("deleted", streams=1).declare()
    assert cli("delete", "deleted", "--yes").code == 0
    listed = cli("topics", "list", "--gone")
    assert [line.split() for line in listed.out.splitlines()[1:]] == [
        ["a.#", "deleted", "gone"],
        ["a.x", "absent", "gone"],
        ["b", "deleted", "gone"],
    ]
    assert [each["gone"] for each in cli("topics", "list", "--json").objects] == [True, False, True, True]
    told = cli("topics", "route", "a.x")
    assert (told.code, told.out) == (0, "jobs\n")
    assert told.err == "shardq: gone, so publish passes over it: absent, deleted\n"
    assert cli("--json", "topics", "route", "b").objects == [{"topic": "b", "queues": [], "gone": ["deleted"]}]
    assert cli("topics", "route", "b").code == 3
    told = cli("server", "doctor")
    assert told.code == 1
    assert "bindings: 3 bindings of queues that do not exist.\n" in told.out
    assert "A publish by router default passes over deleted, absent" in told.out
    assert "shardq topics unbind --gone" in told.out
    assert cli("--json", "server", "doctor").objects[0]["bindings"] == 4
    assert cli("server", "doctor", "--router", "other", *ACCEPTED).code == 0
    told = cli("topics", "unbind", "--gone")
    assert told.out == "unbound a.# from deleted\nunbound a.x from absent\nunbound b from deleted\n"
    told = cli("topics", "unbind", "--gone")
    assert (told.code, told.out) == (3, "")
    assert "no binding to a queue that is gone" in told.err
    assert cli("topics", "list", "--json").objects == [{"pattern": "a.*", "queue": "jobs", "gone": False}]
    assert (cli("topics", "list", "--gone").code, cli("server", "doctor", *ACCEPTED).code) == (3, 0)
    for words in ((), ("a",), ("--gone", "a", "q")):
        assert cli("topics", "unbind", *words).code == 2

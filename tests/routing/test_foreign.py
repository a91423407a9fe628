"""Something else writes among the bindings in Redis: it is ignored and counted, or a clear error says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import BackendError, Client, PatternError
from shardq.protocol.keys import RouterKeys
from shardq.protocol.scripts import load
from tests.routing.test_load import before_each
from tests.servers import Server

GARBAGE = (
    b"x",
    b"nospace",
    b"two  q",
    b"a..b q",
    b"a b q",
    b"\xff\xfe q",
    b"a q{x}",
    b"a " + b"q" * 600,
    b"\x00 \x01",
)


def bindings(client: Client) -> set[tuple[str, str]]:
    return set(client.router().bindings())


def test_foreign_fields_among_the_bindings_are_ignored_and_counted(server: Server) -> None:
    with Client.from_url(server.url) as client, Client.from_url(server.url) as late, server.client() as raw:
        client.queue("q", create=True).declare()
        client.bind("a.*", "q")
        for field in GARBAGE:
            raw.hset(client.router_state().keys.bindings, field, 1)
        assert bindings(client) == bindings(late) == {("a.*", "q")}
        assert late.router_state().ignored == len(GARBAGE)
        assert set(late.publish("a.b", 1, shard_key="t")) == {"q"}


def bind_as_before(raw: Any, keys: RouterKeys, *patterns: str) -> None:
    """Bind patterns as an older version does, which took any."""
    members = [f"{pattern} q" for pattern in patterns]
    version = raw.hget(keys.bindings, "") or 0
    raw.eval(load("bind").source, 2, keys.bindings, keys.changes, "+", 1000, 1000, version, "nonce", "0", *members)


def test_patterns_with_too_many_wildcards_of_an_older_version_are_left_out_and_can_be_unbound(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    stars, many = ".".join("*" * 20), ".".join("a#" * 9) + ".x" * 40
    costly = (stars, ".".join("#a" * 30), many)
    with Client.from_url(server.url) as client, Client.from_url(server.url) as late, server.client() as raw:
        client.bind("a.*", "q")
        bind_as_before(raw, client.router_state().keys, *costly)
        assert bindings(client) == bindings(late) == {("a.*", "q")}
        assert client.router_state().ignored == late.router_state().ignored == len(costly)
        assert [each.message.count("ignoring 3 invalid") for each in caplog.records] == [1, 1]
        assert all(any(pattern in each.message for pattern in costly) for each in caplog.records)
        assert set(late.publish(".".join("a" * 20), 1, shard_key="t")) == set()
        with pytest.raises(PatternError, match="at most 32 words, 16 of them wildcards"):
            late.bind(stars, "q")
        with pytest.raises(PatternError, match="has 20, 20 of them"):
            late.bind_many([("good", "q"), (stars, "q")])
        assert late.unbind_many([(pattern, "q") for pattern in costly]) == []
        assert bindings(late) == {("a.*", "q")}
        with Client.from_url(server.url) as last:
            assert bindings(last) == {("a.*", "q")}
            assert (last.router_state().ignored, last.router_state().loads) == (0, 1)


def test_a_load_ends_while_an_older_version_binds_and_unbinds_what_is_left_out(server: Server) -> None:
    stars = ".".join("*" * 20)
    with Client.from_url(server.url) as client, Client.from_url(server.url) as late, server.client() as raw:
        client.bind("a", "q")
        keys = client.router_state().keys
        bind_as_before(raw, keys, f"b.{stars}")

        def older(_: int) -> None:
            bind_as_before(raw, keys, stars)
            client.unbind(f"b.{stars}", "q")

        before_each(late, "bindings", older)
        assert bindings(late) == {("a", "q")}
        assert (late.router_state().ignored, late.router_state().loads) == (1, 1)


def test_foreign_entries_among_the_changes_are_ignored_or_make_all_load_again(server: Server) -> None:
    with Client.from_url(server.url) as client, Client.from_url(server.url) as other, server.client() as raw:
        client.bind("a", "q")
        assert bindings(other) == {("a", "q")}
        keys = client.router_state().keys
        for number, (verb, member) in enumerate([("?", "a q"), ("+", "nospace"), ("-", "a..b q"), ("+", b"\xff q")]):
            raw.hincrby(keys.bindings, "", 1)
            raw.xadd(keys.changes, {verb: member, "": f"s{number}"}, id=f"{number + 2}-0")
            raw.hset(keys.bindings, " ", f"s{number}")
        assert bindings(other) == {("a", "q")}
        assert (other.router_state().ignored, other.router_state().loads) == (4, 1)
        raw.xadd(keys.changes, {"+": "far q"})  # its id is a time: no version comes after it
        assert client.bind("b", "q")
        assert client.bind("c", "q")
        assert bindings(other) == bindings(client) == {("a", "q"), ("b", "q"), ("c", "q")}
        assert raw.xlen(keys.changes) == 2


@pytest.mark.parametrize("version", ["abc", "", "-1", "1.5", "9" * 30, None])
def test_a_version_that_is_no_number_is_a_clear_error_before_anything_is_written(
    server: Server, version: str | None
) -> None:
    with Client.from_url(server.url) as client, server.client() as raw:
        client.bind("a", "q")
        key = client.router_state().keys.bindings
        if version is None:
            raw.hdel(key, "")
        else:
            raw.hset(key, "", version)
        with pytest.raises(BackendError, match="their version is"):
            client.bind("b", "q")
        with pytest.raises(BackendError, match="delete that hash"):
            client.router()
        assert not raw.hexists(key, "b q")
        raw.hset(key, "", 2)
        assert client.bind("b", "q")
        assert bindings(client) == {("a", "q"), ("b", "q")}


@pytest.mark.parametrize("stamp", [b"", b"\xff\xfe", b"other"])
def test_another_stamp_makes_all_load_again(server: Server, stamp: bytes) -> None:
    with Client.from_url(server.url) as client, server.client() as raw:
        client.bind("a", "q")
        raw.hset(client.router_state().keys.bindings, " ", stamp)
        raw.hset(client.router_state().keys.bindings, "b q", 1)
        assert bindings(client) == {("a", "q"), ("b", "q")}
        assert client.bind("c", "q")
        assert (len(bindings(client)), client.router_state().loads) == (3, 3)


@pytest.mark.parametrize("which", ["bindings", "changes"])
def test_a_key_of_another_type_is_a_clear_error(server: Server, which: str) -> None:
    with Client.from_url(server.url) as client, server.client() as raw:
        raw.set(getattr(client.router_state().keys, which), "text")
        with pytest.raises(BackendError, match="another type"):
            client.bind("a", "q")
        assert raw.dbsize() == 1

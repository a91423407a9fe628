"""What a role is denied: each command of the server on each key, and attacks by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from shardq import Client, Message
from shardq.protocol.keys import QueueKeys, RouterKeys, SharedKeys
from shardq.protocol.roles import ROLES
from shardq.protocol.scripts import library
from tests.acl import Users, is_denial
from tests.servers import Server
from tests.surface import differences

pytestmark = [pytest.mark.everywhere, pytest.mark.runs_in("test-all")]
KEYS = QueueKeys("jobs")
ROUTER = RouterKeys("default")
CALLS = {"fcall", "evalsha", "eval"}
READ_CALLS = {f"{each}_ro" for each in CALLS}
PLACES = {name: getattr(KEYS, name) for name in QueueKeys.suffixes} | {
    "streams": KEYS.stream(7), "bindings": ROUTER.bindings, "changes": ROUTER.changes, "queues": "shardq:queues",
    "holds": KEYS.hold("x"), "another of the queue": "shardq:{jobs}:other", "another queue's": "shardq:{jobs2}:meta",
    "another router's": "shardq:{other}:router-bindings", "another program's": "other",
}  # fmt: skip


@pytest.fixture
def filled(server: Server, users: Users) -> Users:
    """The users, and a queue with a result, progress, an error, dead letters, keys and payloads of all kinds."""
    with Client.from_url(server.url) as client:
        queue = client.queue("jobs", streams=1, result_ttl=600, dedup_window=600, journal=100)
        queue.write_many([Message("secret payload", f"tenant-{number % 3}") for number in range(12)])
        queue.write("secret payload", shard_key="tenant", dedup_key="secret key", delay=60)
        queue.write("secret payload", shard_key="tenant", unique_key="secret unique key")
        first, second, third, fourth = queue.read_many(4, visibility_timeout=60)
        first.ack(result="secret result")
        second.progress(1, 2, "secret note")
        third.nack(error="secret error")
        fourth.reject("secret reason")
    return users


def denied(users: Users, user: str, *words: Any) -> bool:
    """Whether Redis denies this user the command."""
    try:
        users.run(user, *words)
    except redis.ResponseError as error:
        return is_denial(error)
    return False


# Attacks, each by its name.

READS: dict[str, tuple[str, ...]] = {
    "hash": (
        "HGETALL {}", "HSCAN {} 0", "HKEYS {}", "HVALS {}", "HRANDFIELD {} 100 WITHVALUES", "SORT {}", "SORT_RO {}",
    ),
    "zset": (
        "ZRANGE {} 0 -1", "ZREVRANGE {} 0 -1", "ZSCAN {} 0", "ZRANDMEMBER {} 100", "ZPOPMIN {}",
        "ZRANGESTORE shardq:{{jobs}}:s9 {} 0 -1", "ZUNION 1 {}", "SORT {}",
    ),
    "stream": (
        "XRANGE {} - +", "XREVRANGE {} + -", "XREAD STREAMS {} 0", "XINFO STREAM {} FULL",
        "XREADGROUP GROUP shardq c STREAMS {} >", "XCLAIM {} shardq c 0 1-1", "XAUTOCLAIM {} shardq c 0 0",
        "XPENDING {} shardq",
    ),
    "set": ("SMEMBERS {}", "SSCAN {} 0", "SRANDMEMBER {} 100", "SPOP {}"),
}  # fmt: skip
ANY_TYPE = (
    "DUMP {}", "COPY {} shardq:{{jobs}}:s9", "RENAME {} shardq:{{jobs}}:s9", "OBJECT ENCODING {}", "MEMORY USAGE {}",
    "MIGRATE 127.0.0.1 1 {} 0 1", "RESTORE {} 0 x", "MOVE {} 1", "DEL {}", "UNLINK {}", "PEXPIRE {} 1", "TYPE {}",
    "DEBUG OBJECT {}", "WATCH {}", "TOUCH {}",
)  # fmt: skip
SECRETS = {
    "results": "hash", "result_ends": "zset", "errors": "hash", "dedup": "hash", "bodies": "hash", "moved": "hash",
    "meta": "hash", "dead": "stream", "streams": "stream", "journal": "stream", "leases": "zset", "returned": "zset",
    "delayed": "zset", "turns": "zset", "producers": "zset", "finished": "stream", "cancelled": "set", "limits": "hash",
    "schedules": "hash", "workers": "hash", "minutes": "hash", "failures": "hash", "actions": "hash",
    "schedule_due": "zset", "due": "zset", "notifications": "stream", "dedup_index": "zset",
    "bulk_offsets": "zset",
}  # fmt: skip
OPEN = {"assigned": "who writes reads it whole"}


@pytest.mark.once
def test_each_key_of_a_queue_is_attacked() -> None:
    assert differences(SECRETS, [*QueueKeys.suffixes, "streams"], OPEN) == []
    assert {*QueueKeys.suffixes, *RouterKeys.suffixes, *SharedKeys.suffixes} <= PLACES.keys()


def attacks(key: str) -> Iterator[list[str]]:
    """Commands that would tell what the key holds, or take it away."""
    for text in (*READS[SECRETS[key]], *ANY_TYPE):
        yield text.format(PLACES[key]).split()


@pytest.mark.parametrize("user", ["producer", "gateway"])
@pytest.mark.parametrize("key", SECRETS)
def test_who_only_writes_lists_and_copies_nothing(filled: Users, user: str, key: str) -> None:
    for words in attacks(key):
        assert denied(filled, user, *words), words


@pytest.mark.parametrize("user", ["producer", "gateway"])
@pytest.mark.parametrize("key", SECRETS)
def test_a_script_of_ones_own_gives_no_right(filled: Users, user: str, key: str) -> None:
    """EVAL runs with the rights of its caller, whether it declares the key or not."""
    for words in attacks(key):
        if words[0] not in ("MIGRATE", "WATCH", "DEBUG"):  # no script may run these
            assert denied(filled, user, "EVAL", "return redis.call(unpack(ARGV))", 1, PLACES[key], *words), words
            assert denied(filled, user, "EVAL", "return redis.call(unpack(ARGV))", 0, *words), words


@pytest.mark.parametrize("user", ["producer", "gateway"])
@pytest.mark.parametrize("key", ["results", "errors", "moved", "limits"])
def test_who_only_writes_reads_no_field_of_results_and_errors(filled: Users, user: str, key: str) -> None:
    for words in (["HGET", "{}", "f"], ["HMGET", "{}", "f"], ["HSET", "{}", "f", "v"], ["HDEL", "{}", "f"]):
        assert denied(filled, user, *[word.format(PLACES[key]) for word in words])


@pytest.mark.once
def test_what_a_producer_may_read() -> None:
    """It is as little as a write reads: by names that the caller must know, but for these indexes (zrangebyscore)."""
    reads = {"hget", "hmget", "hgetall", "hscan", "zrangebyscore", "zrange", "xrange", "xread", "xrevrange"}
    found = {key: words & reads for key, words in ROLES["producer"].rights().items() if words & reads}
    assert found == {
        "meta": {"hget", "hmget"},
        "bodies": {"hget", "hmget"},
        "dedup": {"hget", "hmget"},
        "assigned": {"hgetall"},
        "dedup_index": {"zrangebyscore"},
        "producers": {"zrangebyscore"},
        "bulk_offsets": {"zrangebyscore"},
    }


@pytest.mark.parametrize("user", sorted({*ROLES} - {"doctor"}))
def test_nobody_but_the_doctor_reads_the_servers_settings(server: Server, filled: Users, user: str) -> None:
    for name in ("requirepass", "masterauth", "*", "maxmemory-policy"):
        assert denied(filled, user, "CONFIG", "GET", name)
        with pytest.raises(redis.ResponseError):  # no script may run it, and some users may run none that writes
            filled.run(user, "EVAL", "return redis.call('CONFIG', 'GET', ARGV[1])", 0, name)


@pytest.mark.parametrize("user", sorted({*ROLES} - {"loader"}))
def test_nobody_but_the_loader_changes_functions_that_others_call(filled: Users, user: str) -> None:
    name = library().name
    for words in (
        ("LOAD", "REPLACE", f"#!lua name={name}\n"), ("LOAD", "#!lua name=mine\n"), ("DELETE", name), ("FLUSH",),
        ("DUMP",), ("RESTORE", "x"), ("KILL",), ("STATS",),
    ):  # fmt: skip
        assert denied(filled, user, "FUNCTION", *words), words


@pytest.mark.parametrize("user", ROLES)
def test_nobody_administers_the_server(filled: Users, user: str) -> None:
    for text in (
        "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "MONITOR", "SELECT 1",
        "CONFIG SET maxmemory 1", "CONFIG REWRITE", "SHUTDOWN", "ACL LIST", "ACL GETUSER default", "ACL SETUSER x",
        "ACL LOG", "REPLICAOF NO ONE", "SLOWLOG GET", "LATENCY LATEST", "SUBSCRIBE x", "PUBLISH x y",
        "CLIENT KILL TYPE normal", "CLIENT LIST", "CLIENT PAUSE 1", "CLIENT NO-EVICT on", "DEBUG SLEEP 0",
        "SCRIPT FLUSH", "SCRIPT KILL", "SCRIPT LOAD x", "MODULE LIST", "BGSAVE", "SAVE", "SYNC", "PSYNC x 1",
        "COMMAND LIST", "MULTI", "LOLWUT",
    ):  # fmt: skip
        assert denied(filled, user, *text.split()), text


# Each command on each key.


def commands_of(server: Server) -> Iterator[tuple[str, list[Any]]]:
    """The name of each command and subcommand of the server, and what it says of it."""
    with server.client() as plain:
        plain.response_callbacks.clear()  # redis-py would leave out what keys a command has
        listed: Any = plain.execute_command("COMMAND")
    for each in listed:
        subcommands = each[9] if len(each) > 9 else []
        for found in subcommands or [each]:
            yield found[0].decode().lower(), found


def words_of(name: str, told: list[Any], key: str) -> list[str]:
    """A command with *key* at each place where it may have one."""
    parts = name.split("|")
    words = [*parts, *[key] * max(abs(told[1]) - len(parts), 0)]
    for spec in map(named, told[8]):
        begin, find = named(spec["begin_search"]), named(spec["find_keys"])
        where, how = named(begin["spec"]), named(find["spec"])
        if begin["type"] == b"keyword":
            words += [where["keyword"].decode(), key, key]
        elif begin["type"] == b"index":
            at = where["index"]
            words += [key] * (at + 1 - len(words))
            if find["type"] == b"keynum":
                words += [key] * (at + how["firstkey"] + 1 - len(words))
                words[at + how["keynumidx"]] = "1"
    return words


def named(flat: list[Any]) -> dict[str, Any]:
    """The names and values of a reply."""
    return dict(zip([name.decode() for name in flat[::2]], flat[1::2], strict=True))


def expected(user: str, name: str, place: str, has_key: bool) -> bool:
    """Whether the role's list has the command on this key."""
    rights = ROLES[user].rights()
    if not has_key:
        return name in rights[""]
    own = place in QueueKeys.suffixes or place in ("streams", "holds", "another of the queue")
    calls = [key for key in rights if key and (key not in PLACES or PLACES[key].startswith("shardq:{jobs}:")) == own]
    if not own:
        calls = [key for key in rights if PLACES.get(key) == PLACES[place]]
        calls += [key for key in ("bindings", "changes") if key in rights and place in ("bindings", "changes")]
    writes = {"hset", "hsetnx", "zadd", "xadd", "hincrby"}
    if name in CALLS:
        return any(rights[key] & writes for key in calls)
    if name in READ_CALLS:
        return bool(calls)
    found = set(rights.get(place, ()))
    if own:
        found |= rights.get("any", set())
    if place in QueueKeys.suffixes or place == "streams":
        found |= rights.get("keys", set()) | rights.get("rest", set())
    return name in found


@pytest.mark.parametrize("user", ROLES)
def test_each_command_on_each_key_is_denied_unless_the_role_lists_it(server: Server, users: Users, user: str) -> None:
    wrong = []
    with server.client() as plain, plain.pipeline(transaction=False) as pipe:
        asked = []
        for name, told in commands_of(server):
            if b"no_auth" in told[2]:  # HELLO and the like, which Redis denies nobody
                continue
            for place, key in PLACES.items() if told[8] else [("", "x")]:
                asked.append((name, place, bool(told[8])))
                pipe.execute_command("ACL", "DRYRUN", user, *words_of(name, told, key))
        for (name, place, has_key), answer in zip(asked, pipe.execute(raise_on_error=False), strict=True):
            if (answer == b"OK") != expected(user, name, place, has_key):
                wrong.append((name, place, answer))
    assert len(asked) > 5_000
    assert wrong == []

"""Durability: levels as text, facts out of server replies, gaps told, unfit servers refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shardq.durability import CONFIG_NAMES, Durability, ServerFacts, fatal, has_lua_fixes, judge
from shardq.errors import ConfigError

NONE, PROCESS, DISK, REPLICA = (Durability.parse(text) for text in ("none", "process", "disk", "replica"))

BEST = ServerFacts(
    version=(7, 0, 15),
    aof=True,
    appendfsync="always",
    rewrite_pauses_fsync=False,
    replicas=2,
    min_replicas=2,
    maxmemory=0,
    policy="noeviction",
)
UNKNOWN = ServerFacts()


# --- levels


@pytest.mark.parametrize(
    ("text", "level", "replicas"),
    [
        ("none", "none", 0),
        ("process", "process", 0),
        ("disk", "disk", 0),
        ("replica", "replica", 1),
        ("replica(1)", "replica", 1),
        ("replica(2)", "replica", 2),
        ("replica(100)", "replica", 100),
    ],
)
def test_parse(text: str, level: Any, replicas: int) -> None:
    """The four levels are read from text; replica alone means one replica; the text of a level is read back as it."""
    parsed = Durability.parse(text)

    assert Durability(level, replicas) == parsed
    assert parsed == Durability.parse(str(parsed))


@pytest.mark.parametrize(
    "text",
    [
        *("", "Disk", " disk", "disk ", "disk(1)", "none(0)", "always", None, 1, b"disk", 10**5000),
        *("replica()", "replica(0)", "replica(101)", "replica(-1)", "replica(1.5)", "replica(1)\n", "replica(\u0663)"),
        "replica(99999999999999999999)",
    ],
    ids=lambda text: "int" if isinstance(text, int) else f"{text!r:.30}",
)
def test_bad_levels_are_refused(text: Any) -> None:
    """Any other text is a ConfigError that lists the levels or the range."""
    with pytest.raises(
        ConfigError, match=r'must be "none", "process", "disk" or "replica\(n\)"|takes 1 to 100 replicas'
    ):
        Durability.parse(text)


@pytest.mark.parametrize(
    ("level", "replicas"), [("disk", 1), ("replica", 0), ("replica", True), ("replica", "1"), ("x", 0), ([], 0)]
)
def test_bad_values_are_refused(level: Any, replicas: Any) -> None:
    """A level cannot be built with replicas that it does not take."""
    with pytest.raises(ConfigError):
        Durability(level, replicas)


# --- facts


INFO = {
    "redis_version": "7.0.15",
    "aof_enabled": "1",
    "connected_slaves": "2",
    "maxmemory": "104857600",
    "maxmemory_policy": "allkeys-lru",
}
CONFIG = {
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "yes",
    "min-replicas-to-write": "1",
    "appendonly": "yes",
}


def test_facts_from_replies() -> None:
    """INFO and CONFIG GET together give all the facts."""
    expected = ServerFacts("redis", (7, 0, 15), True, "always", True, 2, 1, 104857600, "allkeys-lru")

    assert expected == ServerFacts.from_replies(INFO, CONFIG)


def test_facts_from_other_shapes_of_replies() -> None:
    """Bytes and parsed numbers, as redis-py gives them, count like text."""
    parsed: dict[str, object] = INFO | {
        "aof_enabled": 1,
        "connected_slaves": 2,
        "maxmemory": 104857600,
        "slave0": {"ip": "::1"},
    }
    raw = {key.encode(): value.encode() for key, value in CONFIG.items()}

    assert ServerFacts.from_replies(INFO, CONFIG) == ServerFacts.from_replies(parsed, raw)


def test_facts_without_config() -> None:
    """Where CONFIG is forbidden, INFO still tells of AOF, replicas, memory and version; the rest is unknown."""
    facts = ServerFacts.from_replies(INFO, {})

    assert (facts.aof, facts.replicas, facts.maxmemory, facts.policy) == (True, 2, 104857600, "allkeys-lru")
    assert (facts.appendfsync, facts.rewrite_pauses_fsync, facts.min_replicas) == (None, None, None)


def test_facts_without_info() -> None:
    """CONFIG GET alone tells of AOF and memory; the names that it is asked for suffice."""
    config = {
        name: {"appendonly": "yes", "maxmemory": "1", "maxmemory-policy": "noeviction"}.get(name, "")
        for name in CONFIG_NAMES
    }
    facts = ServerFacts.from_replies({}, config)

    assert (facts.aof, facts.maxmemory, facts.policy) == (True, 1, "noeviction")


def test_no_replies() -> None:
    """Without any reply every fact is unknown."""
    assert ServerFacts.from_replies({}, {}) == UNKNOWN


@pytest.mark.parametrize(
    ("info", "server", "version"),
    [
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0", "server_name": "valkey"}, "valkey", (8, 1, 0)),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.9"}, "valkey", (7, 2, 9)),
        ({"redis_version": "7.2.4", "server_name": "valkey"}, "valkey", None),
        ({"redis_version": "7.4.0-v1"}, "redis", (7, 4, 0)),
        ({"redis_version": "8.6"}, "redis", (8, 6)),
        ({"redis_version": "255.255.255"}, "redis", (255, 255, 255)),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.2"}, "dragonfly", None),
        ({"redis_version": "unstable"}, "redis", None),
    ],
)
def test_server_and_version(info: dict[str, str], server: str, version: tuple[int, ...] | None) -> None:
    """Valkey is known by its own version, not by the redis_version 7.2.4 that it reports to old clients."""
    facts = ServerFacts.from_replies(info, {})

    assert (server, version) == (facts.server, facts.version)


names = st.sampled_from([*INFO, *CONFIG, "valkey_version", "server_name"])
rubbish = st.one_of(
    st.text(max_size=10),
    st.binary(max_size=10),
    st.integers(),
    st.none(),
    st.floats(),
    st.lists(st.integers(), max_size=2),
)


@given(st.dictionaries(names, rubbish), st.dictionaries(names, rubbish))
def test_any_replies_are_tolerated(info: dict[str, object], config: dict[str, object]) -> None:
    """No reply, however odd, raises in reading or judging it."""
    facts = ServerFacts.from_replies(info, config)
    for level in (NONE, PROCESS, DISK, REPLICA):
        assert all(isinstance(warning, str) for warning in judge(level, facts))
    assert fatal(facts) is None or str(facts) in str(fatal(facts))


# --- judged


@pytest.mark.parametrize("level", [NONE, PROCESS, DISK, REPLICA, Durability("replica", 2)], ids=str)
def test_a_server_that_gives_all_gets_no_warning(level: Durability) -> None:
    """Nothing is said when every level is met."""
    assert judge(level, BEST) == []


def test_none_asks_for_nothing() -> None:
    """Level none warns of no persistence setting."""
    assert judge(NONE, replace(BEST, aof=False, appendfsync="no", replicas=0, min_replicas=0)) == []


@pytest.mark.parametrize(
    ("level", "facts", "warning"),
    [
        (PROCESS, {"aof": False}, 'durability "process" needs the append-only file, which is off'),
        (PROCESS, {"aof": None}, "could not check that the append-only file is on"),
        (DISK, {"aof": False}, 'durability "disk" needs the append-only file'),
        (DISK, {"appendfsync": "everysec"}, "needs appendfsync always, but it is everysec"),
        (DISK, {"appendfsync": None}, "could not check that every write is synced"),
        (DISK, {"rewrite_pauses_fsync": True}, "needs no-appendfsync-on-rewrite no"),
        (DISK, {"rewrite_pauses_fsync": None}, "could not check that syncing continues"),
        (Durability("replica", 3), {"min_replicas": 3}, "needs 3 connected replicas, but there are 2"),
        (REPLICA, {"replicas": None}, "could not check that enough replicas"),
        (REPLICA, {"min_replicas": 0}, "should have min-replicas-to-write 1, but it is 0"),
        (REPLICA, {"min_replicas": None}, "could not check that a primary cut off"),
        (REPLICA, {"aof": False}, "is lost when a primary without an append-only file restarts"),
        (NONE, {"policy": "volatile-lru"}, "would be evicted as soon as a maxmemory is set"),
        (NONE, {"policy": "allkeys-lru", "maxmemory": None}, "could not check that maxmemory is 0"),
        (NONE, {"policy": None}, "could not check that the server never evicts"),
        (NONE, {"version": None}, "could not check that the server is new enough"),
        (NONE, {"server": "dragonfly"}, "not a server that shardq is tested on"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_each_gap_is_told(level: Durability, facts: dict[str, Any], warning: str) -> None:
    """Each setting that falls short, or cannot be read, gives exactly one warning that names it."""
    (told,) = judge(level, replace(BEST, **facts))

    assert warning in told


def test_unknown_facts_are_told_not_assumed() -> None:
    """Where nothing could be read, every need of the level is a 'could not check', never silence."""
    assert len(judge(NONE, UNKNOWN)) == 2
    assert len(judge(PROCESS, UNKNOWN)) == 3
    assert 5 == len(judge(DISK, UNKNOWN)) == len(judge(REPLICA, UNKNOWN))
    assert all("could not check" in warning for warning in judge(REPLICA, UNKNOWN))


# --- refused


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"maxmemory": 1, "policy": "allkeys-lru"}, "maxmemory-policy allkeys-lru"),
        ({"maxmemory": 1, "policy": "volatile-ttl"}, "set maxmemory-policy noeviction"),
        ({"version": (6, 2, 14)}, "Redis 6.2.14 is too old"),
        ({"version": (6,)}, "too old"),
        ({"server": "valkey", "version": (7, 1, 9)}, "Valkey 7.1.9 is too old"),
    ],
)
def test_unfit_servers_are_refused(facts: dict[str, Any], reason: str) -> None:
    """A server that would evict messages, or is older than Redis 7.0 or Valkey 7.2, is refused with the reason."""
    assert reason in str(fatal(replace(BEST, **facts)))


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"version": (7, 0)},
        {"version": (7, 0, 0)},
        {"version": None},
        {"server": "valkey", "version": (7, 2, 0)},
        {"server": "dragonfly", "version": (1, 2)},
        {"maxmemory": 1},
        {"maxmemory": 0, "policy": "allkeys-lru"},
        {"maxmemory": None, "policy": "allkeys-lru"},
        {"maxmemory": 1, "policy": None},
    ],
    ids=str,
)
def test_fit_or_unknown_servers_are_not_refused(facts: dict[str, Any]) -> None:
    """What is fit, or could not be checked, is not refused."""
    assert fatal(replace(BEST, **facts)) is None


@pytest.mark.parametrize(
    ("server", "version", "fixed"),
    [
        ("redis", (7, 0, 15), False), ("redis", (7, 2, 10), False), ("redis", (7, 2, 11), True),
        ("redis", (7, 4, 5), False), ("redis", (7, 4, 6), True), ("redis", (8, 0, 3), False),
        ("redis", (8, 0, 4), True),
        ("redis", (8, 2, 1), False), ("redis", (8, 2, 2), True), ("redis", (8, 4, 0), True),
        ("valkey", (7, 2, 10), False), ("valkey", (7, 2, 11), True), ("valkey", (8, 0, 5), False),
        ("valkey", (8, 0, 6), True), ("valkey", (8, 1, 3), False), ("valkey", (8, 1, 4), True),
        ("valkey", (9, 0, 0), True), ("redis", None, None), ("redis", (8, 2), None), ("keydb", (6, 3, 4), None),
    ],
)  # fmt: skip
def test_versions_with_the_fixes_of_lua(server: str, version: tuple[int, ...] | None, fixed: bool | None) -> None:
    assert has_lua_fixes(ServerFacts(server=server, version=version)) is fixed

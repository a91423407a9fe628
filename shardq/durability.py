"""Durability levels: the failures that an acknowledged write survives, and whether the server's settings suffice.

==============  =================================  =================================================================
level           needs of the server                survives
==============  =================================  =================================================================
``none``        nothing                            crashes of clients and workers; not a restart of Redis
``process``     AOF on                             also kill -9 and OOM kill of Redis (``everysec``:
                                                   unless an fsync runs then); power loss costs about
                                                   2 s, or 30 s with ``appendfsync no``
``disk``        AOF on, ``appendfsync always``,    also power loss of the node, if its disk honours fsync; not a
                ``no-appendfsync-on-rewrite no``   failover
``replica(n)``  n replicas, AOF on,                also loss of the primary, if a replica that has the write is
                ``min-replicas-to-write n``        promoted; each write waits for n replicas and counts (``WAIT``)
==============  =================================  =================================================================

Redis replicates asynchronously: ``WAIT`` makes losing a write in a failover rare, never impossible, and a failover
can also bring back a message that was acked. docs/durability.md has the long form.

This module does no I/O. `ServerFacts.from_replies` takes the answers to INFO and CONFIG GET, `judge` compares them with
the requested level and returns warnings, and `fatal` says why a server must not be used at all.

>>> info = {"redis_version": "7.0.15", "aof_enabled": "0", "maxmemory": "0", "maxmemory_policy": "noeviction"}
>>> print(*judge(Durability.parse("process"), ServerFacts.from_replies(info, {})))
durability "process" needs the append-only file, which is off: a restart would lose messages; set appendonly yes
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from shardq.arguments import shown
from shardq.errors import ConfigError

Level: TypeAlias = Literal["none", "process", "disk", "replica"]
Replies: TypeAlias = Mapping[str, object] | Mapping[bytes, object]

MAX_REPLICAS: Final = 100
"""The most replicas that a level may wait for. The bound catches a mistyped number."""

CONFIG_NAMES: Final = (
    "appendfsync",
    "appendonly",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
)
"""The parameters for CONFIG GET. The answer may be empty, since some services forbid CONFIG."""

OLDEST_VERSIONS: Final = {"redis": (7, 0), "valkey": (7, 2)}
"""The oldest versions that shardq runs on."""

LUA_FIXED: Final = {
    "redis": ((7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
    "valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4), (9, 0, 0)),
}
"""The first release of each line with the fixes of its Lua of October 2025.

They fix CVE-2025-49844, -46817, -46818 and -46819: without them, any user who may run scripts may take over the server.
"""

_LEVELS: Final[tuple[str, ...]] = get_args(Level)
_LEVEL: Final = re.compile(r"(none|process|disk|replica)(?:\((\d{1,9})\))?", re.ASCII)


class Durability(msgspec.Struct, frozen=True):
    """A durability level, and for ``replica`` how many replicas must confirm each write or change; else 0."""

    level: Level
    replicas: int = 0

    def __post_init__(self) -> None:
        if self.level not in _LEVELS:
            raise ConfigError(_level_advice(self.level))
        low, high = (1, MAX_REPLICAS) if self.level == "replica" else (0, 0)
        if type(self.replicas) is not int or not low <= self.replicas <= high:
            raise ConfigError(f"{self.level} takes {low} to {high} replicas, not {shown(self.replicas)}")

    @classmethod
    def parse(cls, text: str) -> Durability:
        """Parse ``none``, ``process``, ``disk``, ``replica`` (one) or ``replica(n)``. ConfigError for other text."""
        if not isinstance(text, str):
            raise ConfigError(_level_advice(text))
        match = _LEVEL.fullmatch(text)
        if match is None or (match[2] and match[1] != "replica"):
            raise ConfigError(_level_advice(text))
        replicas = int(match[2] or 1) if match[1] == "replica" else 0
        return cls(cast("Level", match[1]), replicas)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"replica({self.replicas})" if self.level == "replica" else self.level


def _level_advice(text: object) -> str:
    return f'durability must be "none", "process", "disk" or "replica(n)", not {shown(text)}'


class ServerFacts(msgspec.Struct, frozen=True):
    """A server's report about itself; None for what it did not report.

    `version` has one to three parts. `maxmemory` is in bytes, 0 for no limit. `rewrite_pauses_fsync` is
    ``no-appendfsync-on-rewrite``. `replicas` are the connected ones, `min_replicas` is ``min-replicas-to-write``.
    """

    server: str = "redis"
    version: tuple[int, ...] | None = None
    aof: bool | None = None
    appendfsync: str | None = None
    rewrite_pauses_fsync: bool | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    maxmemory: int | None = None
    policy: str | None = None

    @classmethod
    def from_replies(cls, info: Replies, config: Replies) -> ServerFacts:
        """Read the answers to INFO (all sections) and CONFIG GET (`CONFIG_NAMES`).

        Keys and values may be str, bytes or, as redis-py parses INFO, numbers. A value that is missing (managed
        services forbid CONFIG) or not understood is None. Never raises.
        """
        info_texts, config_texts = _texts(info), _texts(config)
        server = _server(info_texts)
        return cls(
            server=server,
            version=_version(info_texts.get(f"{server}_version")),
            aof=_flag(info_texts.get("aof_enabled", config_texts.get("appendonly"))),
            appendfsync=config_texts.get("appendfsync"),
            rewrite_pauses_fsync=_flag(config_texts.get("no-appendfsync-on-rewrite")),
            replicas=_number(info_texts.get("connected_slaves")),
            min_replicas=_number(config_texts.get("min-replicas-to-write")),
            maxmemory=_number(info_texts.get("maxmemory", config_texts.get("maxmemory"))),
            policy=info_texts.get("maxmemory_policy", config_texts.get("maxmemory-policy")),
        )

    def __str__(self) -> str:
        """Return the server's name and version, for messages."""
        return f"{self.server.title()} {_dotted(self.version) if self.version else 'of unknown version'}"


def _texts(replies: Replies) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in replies.items()}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _server(info_texts: Mapping[str, str]) -> str:
    """Return ``valkey``, ``redis`` or another name. Valkey also reports a redis_version, 7.2.4, for old clients."""
    if "valkey_version" in info_texts:
        return "valkey"
    for other in ("dragonfly", "garnet", "keydb"):
        if f"{other}_version" in info_texts:
            return other
    return info_texts.get("server_name", "redis").lower()


def _version(text: str | None) -> tuple[int, ...] | None:
    match = re.match(r"\d{1,9}(\.\d{1,9}){0,2}", text or "", re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,19}", text, re.ASCII) else None


def _flag(text: str | None) -> bool | None:
    return {"1": True, "yes": True, "0": False, "no": False}.get(text or "")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def has_lua_fixes(facts: ServerFacts) -> bool | None:
    """Return whether the version is one with the fixes of its Lua of October 2025; None if that is not known.

    A version without them may have them anyway: distributions backport fixes, and keep the number.
    """
    fixed = LUA_FIXED.get(facts.server)
    if fixed is None or facts.version is None or len(facts.version) < 3:
        return None
    line = [each for each in fixed if each[:2] == facts.version[:2]]
    return facts.version >= (line[0] if line else fixed[-1])


def fatal(facts: ServerFacts) -> str | None:
    """Return why this server must not be used, as the text of ServerUnfit: too old, or it evicts messages. Or None."""
    oldest = OLDEST_VERSIONS.get(facts.server)
    if oldest and facts.version and facts.version < oldest:
        return f"{facts} is too old: shardq needs Redis 7.0 or Valkey 7.2 or newer"
    if facts.maxmemory and _evicts(facts):
        return (
            f"{facts} evicts keys when it reaches maxmemory (maxmemory-policy {facts.policy}), and with them messages "
            "that were acknowledged: set maxmemory-policy noeviction"
        )
    return None


def _evicts(facts: ServerFacts) -> bool:
    return facts.policy not in (None, "noeviction")


class Gap(NamedTuple):
    """A point in which a server gives less than is needed, or (not `is_known`) in which it did not say what it gives.

    `name` is of what: append-only-file, fsync, replicas, eviction or version. `text` is the warning.
    """

    name: str
    text: str
    is_known: bool = True


def judge(durability: Durability, facts: ServerFacts) -> list[str]:
    """Return warnings: where the server gives less than `durability` needs, or where that could not be checked.

    The list is empty if everything was checked and is right. Problems worse than a warning are in `fatal`.
    """
    return [gap.text for gap in gaps(durability, facts)]


def gaps(durability: Durability, facts: ServerFacts) -> list[Gap]:
    """Return what `judge` warns of, by name."""
    return [*_level_gaps(durability, facts), *_eviction_gaps(facts), *_version_gaps(facts)]


def _level_gaps(durability: Durability, facts: ServerFacts) -> Iterator[Gap]:
    """Yield a warning for each point in which the server gives less than the level needs."""
    if durability.level == "none":
        return
    yield from _aof_gaps(durability, facts)
    if durability.level == "disk":
        yield from _fsync_gaps(facts)
    if durability.level == "replica":
        yield from _replica_gaps(durability, facts)


def _aof_gaps(durability: Durability, facts: ServerFacts) -> Iterator[Gap]:
    if facts.aof is None:
        yield _unchecked("append-only-file", durability, "the append-only file is on", "appendonly yes")
    elif not facts.aof and durability.level == "replica":
        yield Gap(
            "append-only-file",
            (
                f'durability "{durability}" is lost when a primary without an append-only file restarts: it comes back '
                "with less data, and its replicas copy that; set appendonly yes"
            ),
        )
    elif not facts.aof:
        yield Gap(
            "append-only-file",
            (
                f'durability "{durability}" needs the append-only file, which is off: a restart would lose messages; '
                "set appendonly yes"
            ),
        )


def _fsync_gaps(facts: ServerFacts) -> Iterator[Gap]:
    if facts.appendfsync is None:
        yield _unchecked("fsync", "disk", "every write is synced", "appendfsync always")
    elif facts.appendfsync != "always":
        yield Gap(
            "fsync",
            (
                f'durability "disk" needs appendfsync always, but it is {facts.appendfsync}: power loss would lose the '
                "latest writes"
            ),
        )
    if facts.rewrite_pauses_fsync is None:
        yield _unchecked(
            "fsync", "disk", "syncing continues while the file is rewritten", "no-appendfsync-on-rewrite no"
        )
    elif facts.rewrite_pauses_fsync:
        yield Gap(
            "fsync",
            (
                'durability "disk" needs no-appendfsync-on-rewrite no: it is yes, so writes are not synced while the '
                "file is rewritten"
            ),
        )


def _replica_gaps(durability: Durability, facts: ServerFacts) -> Iterator[Gap]:
    wanted = durability.replicas
    if facts.replicas is None:
        yield _unchecked("replicas", durability, "enough replicas are connected", f"{wanted} or more replicas")
    elif facts.replicas < wanted:
        yield Gap(
            "replicas",
            (
                f'durability "{durability}" needs {wanted} connected replicas, but there are {facts.replicas}: every '
                "write would end as DurabilityUnknown"
            ),
        )
    if facts.min_replicas is None:
        yield _unchecked(
            "replicas",
            durability,
            "a primary cut off from its replicas stops writing",
            f"min-replicas-to-write {wanted}",
        )
    elif facts.min_replicas < wanted:
        yield Gap(
            "replicas",
            (
                f'durability "{durability}" should have min-replicas-to-write {wanted}, but it is '
                f"{facts.min_replicas}: a primary cut off from its replicas continues to lease messages that the new "
                "primary leases too"
            ),
        )


def _eviction_gaps(facts: ServerFacts) -> Iterator[Gap]:
    if facts.policy is None:
        yield _unchecked("eviction", None, "the server never evicts messages", "maxmemory-policy noeviction")
    elif _evicts(facts) and facts.maxmemory == 0:
        yield Gap(
            "eviction",
            (
                f"maxmemory-policy is {facts.policy}: messages would be evicted as soon as a maxmemory is set; "
                "set maxmemory-policy noeviction"
            ),
        )
    elif _evicts(facts) and facts.maxmemory is None:
        while_evicting = f"maxmemory is 0, while maxmemory-policy is {facts.policy}"
        yield _unchecked("eviction", None, while_evicting, "maxmemory-policy noeviction")


def _version_gaps(facts: ServerFacts) -> Iterator[Gap]:
    if facts.server not in OLDEST_VERSIONS:
        yield Gap("version", f"{facts} is not a server that shardq is tested on: use Redis 7.0 or Valkey 7.2 or newer")
    elif facts.version is None:
        yield _unchecked("version", None, "the server is new enough", "Redis 7.0 or Valkey 7.2 or newer")


def _unchecked(name: str, durability: Durability | str | None, what: str, remedy: str) -> Gap:
    """Return a warning for something that the server did not report."""
    prefix = f'durability "{durability}": ' if durability else ""
    text = f"{prefix}could not check that {what} (the server did not say): make sure of {remedy}"
    return Gap(name, text, is_known=False)

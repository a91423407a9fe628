"""Roles: the rights of a user of Redis on a queue, as the rules of its ACL. `shardq server acl` prints them.

A role is a list of verbs. The commands that these run in Redis, and on which keys, are in `RIGHTS`, which is read from
the Lua text. Functions run with the caller's rights, so a user needs these rights itself; whatever no verb of its role
runs is denied, key by key: Redis calls such a part of a user's rights a selector, `(%R~key +command)`.

>>> print(*rules(ROLES["loader"], ["jobs"]))
resetchannels -@all +client|setname +function|delete +function|list +function|load +info +ping
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from shardq.arguments import check_name, shown
from shardq.errors import ConfigError
from shardq.protocol.keys import SHARED_KEYS, QueueKeys, RouterKeys
from shardq.protocol.rights import RIGHTS

Commands = dict[str, set[str]]

_EVERYBODY: Final = "client|setname info ping"
_FUNCTIONS: Final = ("fcall",)
_SCRIPTS: Final = ("evalsha", "eval")
"""EVAL and EVALSHA are for a server that has not loaded the library. They give no right to what the text runs."""
_LOOK: Final = "stats len facts"
_QUEUES: Final = "queues"
_ANY: Final = "any"
_LEGACY: Final = "legacy"
_NO_KEY: Final = re.compile(r"[^!-~]|[*?\[\]()\\]")
_ROUTER: Final = frozenset(RouterKeys.suffixes)

# A command's rights on a key; any other only reads it. Some look at no more than its size, for which Redis asks no
# right to read.
_WRITES: Final = frozenset(
    [
        "del",
        "hdel",
        "hset",
        "hsetnx",
        "persist",
        "pexpire",
        "sadd",
        "srem",
        "unlink",
        "xack",
        "xadd",
        "xdel",
        "xgroup|create",
        "xgroup|setid",
        "xtrim",
        "zadd",
        "zrem",
    ]
)
_READS_AND_WRITES: Final = frozenset({"hincrby", "xautoclaim"})
_SIZES: Final = frozenset(["exists", "hexists", "hlen", "hstrlen", "scard", "xlen", "zcard"])


@dataclass(frozen=True, slots=True)
class Role:
    """A role: its `verbs`, its purpose, and what its clients run beside verbs: on `keys`, and on the `server`."""

    name: str
    about: str
    verbs: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    server: str = ""

    def rights(self, also: Iterable[str] = ()) -> Commands:
        """Return the commands by key that the role may run, with those of more verbs. ConfigError for other verbs."""
        found: Commands = {"": {*_EVERYBODY.split(), *self.server.split()}}
        for verb in (*self.verbs.split(), *also):
            if verb not in RIGHTS:
                raise ConfigError(f"there is no verb {verb!r}: `shardq server lua VERB` names them")
            for key, commands in RIGHTS[verb].items():
                found.setdefault(key, set()).update(commands.split())
        for key, words in self.keys.items():
            found.setdefault(key, set()).update(words.split())
        return found


_WAITS: Final = "client|id client|unblock"
_WATCHES: Final = "client|id"
"""Beside `xread` of the streams, the commands needed to hear at once that something was written."""
_PRODUCES: Final = "find write knows assignment"
_FOLLOWS: Final = "bindings follow"
_LISTS: Final = (
    f"{_LOOK} assignment status peek held due leased fetch dead failures journal limits weights plans accounts actions "
    f"present tenant outside runs waiting outlook schedules workers history {_FOLLOWS} {_QUEUES}"
)
_LISTED: Final = {
    "meta": "hget hmget",
    "cancelled": "smismember",
    "due": "zrange",
    "turns": "zcount zrange zrank",
    "streams": "xread",
}
_OPERATES: Final = (
    "open act assign cancel configure delete delete_dead limit pause pause_schedule plan purge purge_of redrive "
    "remove_schedule resize shrink steer store_schedule touch weigh"
)
_SCANNED: Final = {
    "meta": "hget hmget",
    "bodies": "hmget",
    "errors": "hmget",
    "leases": "zscan",
    "returned": "zrangebylex",
    "delayed": "zrangebylex",
    "streams": "xinfo|stream xlen xrange",
    "dead": "xinfo|stream xlen xrange",
    "journal": "xinfo|stream xlen xrange",
}

ROLES: Final[Mapping[str, Role]] = {
    role.name: role
    for role in (
        Role("producer", "writes messages, also in bulk", f"{_PRODUCES} recount complete"),
        Role(
            "caller",
            "writes messages, replaces them, asks for their status and waits for their results",
            f"{_PRODUCES} await status replace",
            {"finished": "xread"},
            _WAITS,
        ),
        Role(
            "scheduler",
            "stores schedules, changes and lists them, and writes messages",
            f"{_PRODUCES} store_schedule pause_schedule remove_schedule schedules",
        ),
        Role(
            "gateway",
            "stores what edge producers send, and follows the bindings of a router",
            f"{_PRODUCES} release {_FOLLOWS}",
        ),
        Role(
            "consumer",
            "creates the queue, reads and settles messages, keeps results, writes follow-ups and calls of schedules",
            "open write knows assignment read settle extend lost keep forget_results progress shrink touch delete_dead "
            "remember begin_schedule due_schedules move_schedules beat stats glance",
            {"meta": "hget", "notifications": "xreadgroup", "holds": "hget"},
            _WAITS,
        ),
        Role("autoscaler", "reads a queue's length and numbers", _LOOK, {"streams": "xread"}, _WATCHES),
        Role("observer", "lists and shows all of a queue, and the bindings of a router", _LISTS, _LISTED, _WATCHES),
        Role(
            "analyst",
            "reads all of a queue with Spark",
            f"{_LOOK} assignment skip fetch dead alone holders states sample",
            _SCANNED,
        ),
        Role(
            "operator",
            "creates, changes and deletes a queue and the bindings of a router, and whatever an observer may",
            f"{_LISTS} {_OPERATES} register bind",
            _LISTED,
            _WATCHES,
        ),
        Role(
            "loader",
            "loads shardq's functions into the server, which others call with their own rights",
            server="function|delete function|list function|load",
        ),
        Role(
            "doctor",
            "reads the server's settings, passwords among them",
            f"{_FOLLOWS} len",
            server="acl|dryrun acl|whoami config|get function|list time",
        ),
    )
}
"""The roles by their names."""


def rules(
    role: Role,
    queues: Sequence[str],
    *,
    router: str = "default",
    also: Iterable[str] = (),
    legacy: str | None = None,
    cluster: bool = False,
    replicas: bool = False,
    database: bool = False,
    scripts: bool = True,
    partitions: bool = False,
) -> list[str]:
    """Return the rules of a user with *role* for these *queues*, without its name and password.

    *also* are more verbs that it may run, *legacy* the key of a legacy stream. `cluster` is for a cluster, `replicas`
    for a durability level that waits for replicas, `database` for a URL that names another database than 0, and
    `partitions` for queues that may have some. Without
    `scripts` it may call functions alone, so the library must be loaded; then it runs no text of its own in the server.
    """
    rights = role.rights(also)
    server = rights.pop("")
    if "xlen" in rights.get("streams", ()):  # a call may declare the legacy stream among them
        rights.setdefault(_LEGACY, set()).add("xlen")
    server |= {"asking", "cluster|slots"} if cluster else set()
    server |= {"wait"} if replicas else set()
    server |= {"select"} if database else set()
    places = _places([QueueKeys(check_name(name)) for name in queues], RouterKeys(check_name(router)), legacy)
    if partitions:
        for name in (*QueueKeys.suffixes, "streams", "keys", "rest", _ANY, "holds"):
            places[name] += [_of_parts(each) for each in places[name]]
    called = (*_FUNCTIONS, *_SCRIPTS) if scripts else _FUNCTIONS
    selectors = [*_call_selectors(rights, places, called), *_key_selectors(rights, places)]
    return ["resetchannels", "-@all", *_allowed(server), *selectors]


def _places(queues: Sequence[QueueKeys], router: RouterKeys, legacy: str | None) -> dict[str, list[str]]:
    """Return the patterns of each key, by its name."""
    found = {name: [getattr(each, name) for each in queues] for name in QueueKeys.suffixes}
    found["streams"] = [f"{each.prefix}s[0-9]*" for each in queues]
    found["keys"] = found["rest"] = [pattern for patterns in found.values() for pattern in patterns]
    found[_ANY] = [f"{each.prefix}*" for each in queues]
    found["holds"] = [each.hold("*") for each in queues]
    found[_LEGACY] = [] if legacy is None else [_checked(legacy)]
    found |= {name: [getattr(router, name)] for name in RouterKeys.suffixes}
    found[_QUEUES] = list(SHARED_KEYS.of("queues", (_QUEUES,)))
    return found


def _of_parts(pattern: str) -> str:
    """Return the pattern of the same key of all partitions: nobody else's queue has a name with such a mark."""
    return pattern.replace("}", "#*}", 1)


def _checked(key: str) -> str:
    """Return a key of the user's own, if it is no pattern and ends no rule. ConfigError if it may be one."""
    if not key or _NO_KEY.search(key):
        raise ConfigError(
            f"an ACL cannot name the key {shown(key)}: it is empty, or has a space, a backslash or one of *?[]()"
        )
    return key


def _call_selectors(rights: Commands, places: Mapping[str, list[str]], called: Sequence[str]) -> Iterator[str]:
    """Yield the right to call functions and scripts with the keys that verbs declare, and to nothing of these keys."""
    for own, patterns in (
        ({*rights} - _ROUTER - {_QUEUES}, places[_ANY] + places[_LEGACY]),
        ({*rights} & _ROUTER, [each for name in _ROUTER for each in places[name]]),
        ({*rights} & {_QUEUES}, places[_QUEUES]),
    ):
        if own and patterns:
            writes = any(rights[name] & (_WRITES | _READS_AND_WRITES) for name in own)
            calls = {f"{each}_ro" for each in called} | ({*called} if writes else set())
            yield _selector(sorted(patterns), calls, "~" if writes else "%R~")


def _key_selectors(rights: Commands, places: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a selector for the keys that allow the same commands."""
    alike: dict[frozenset[str], list[str]] = {}
    for name, commands in rights.items():
        if places[name]:
            alike.setdefault(frozenset(commands), []).extend(places[name])
    for same, patterns in alike.items():
        yield _selector(patterns, same, _mode(same))


def _mode(commands: Set[str]) -> str:
    """Return how the patterns begin of keys on which *commands* are allowed."""
    writes = commands & (_WRITES | _READS_AND_WRITES)
    reads = commands - _WRITES - _SIZES
    return "~" if reads and writes else "%W~" if writes else "%R~"


def _selector(patterns: Iterable[str], commands: Iterable[str], mode: str) -> str:
    return f"({' '.join([*(mode + each for each in patterns), *_allowed(commands)])})"


def _allowed(commands: Iterable[str]) -> list[str]:
    return [f"+{each}" for each in sorted(commands)]

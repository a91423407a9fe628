"""The rights of a user of Redis, asked by ACL DRYRUN, which runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from shardq.clock import Clock
from shardq.errors import BackendError, BackendTimeout
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument, Ask, Op, Refused
from shardq.protocol.keys import SHARED_KEYS, QueueKeys, RouterKeys
from shardq.protocol.roles import Role

WORDS: Final = {
    "acl|dryrun": "default ping",
    "acl|whoami": "",
    "client|id": "",
    "client|setname": "name",
    "client|unblock": "1",
    "config|get": "appendonly",
    "del": "KEY",
    "exists": "KEY",
    "function|delete": "none",
    "function|list": "",
    "function|load": "-",
    "hdel": "KEY field",
    "hexists": "KEY field",
    "hget": "KEY field",
    "hgetall": "KEY",
    "hincrby": "KEY field 0",
    "hlen": "KEY",
    "hmget": "KEY field",
    "hrandfield": "KEY",
    "hscan": "KEY 0",
    "hset": "KEY field value",
    "hsetnx": "KEY field value",
    "hstrlen": "KEY field",
    "info": "",
    "persist": "KEY",
    "pexpire": "KEY 1",
    "ping": "",
    "sadd": "KEY member",
    "scard": "KEY",
    "sismember": "KEY member",
    "smismember": "KEY member",
    "srem": "KEY member",
    "time": "",
    "unlink": "KEY",
    "xadd": "KEY * field value",
    "xdel": "KEY 0-1",
    "xgroup|create": "KEY group $",
    "xgroup|setid": "KEY group $",
    "xinfo|stream": "KEY",
    "xlen": "KEY",
    "xrange": "KEY - +",
    "xread": "STREAMS KEY 0",
    "xreadgroup": "GROUP group consumer STREAMS KEY >",
    "xrevrange": "KEY + -",
    "xtrim": "KEY MAXLEN 0",
    "zadd": "KEY 0 member",
    "zcard": "KEY",
    "zcount": "KEY 0 1",
    "zlexcount": "KEY - +",
    "zmscore": "KEY member",
    "zrandmember": "KEY",
    "zrange": "KEY 0 1",
    "zrangebylex": "KEY - +",
    "zrangebyscore": "KEY 0 1",
    "zrank": "KEY member",
    "zrem": "KEY member",
    "zrevrangebyscore": "KEY 1 0",
    "zscan": "KEY 0",
    "zscore": "KEY member",
}
"""The words of a call of each command that a role may need: ACL DRYRUN wants as many as the command takes."""

_OF_ROUTER: Final = frozenset(RouterKeys.suffixes)


class Lacks(NamedTuple):
    """A right that a role needs and a user lacks: the command, and the name of the key on which ('' for none)."""

    command: str
    key: str


def user_name(clock: Clock, timeout: float) -> Op[str | None]:
    """Return the name of this client's user; None if it may not ask."""
    reply = yield from _asked(clock, timeout, "ACL", "WHOAMI")
    return None if reply is None else bytes(reply).decode(errors="replace")


def lacking(user: str, role: Role, queue: str, router: str, clock: Clock, timeout: float) -> Op[list[Lacks] | None]:
    """Return what *user* lacks of the rights of *role* on a queue; None if this client may not ask.

    It asks for each command on each key, and for a call of functions and of scripts; one of the two is enough.
    """
    found: list[Lacks] = []
    for command, name, key in needs(role, queue, router):
        words = _words(command, key)
        allowed = yield from _allowed(clock, timeout, user, *words)
        if allowed is None:
            return None
        if not allowed:
            found.append(Lacks(command, name))
    if role.verbs and not (yield from _may_call(user, queue, clock, timeout)):
        found.append(Lacks("fcall", ""))
    return found


def needs(role: Role, queue: str, router: str) -> Iterator[tuple[str, str, str]]:
    """Yield each command that a role needs, with the name of its key and one that it stands for."""
    keys, topics = QueueKeys(queue), RouterKeys(router)
    for name, commands in sorted(role.rights().items()):
        if name == "legacy":  # which only a queue with a legacy stream has, under a name of its own
            continue
        for command in sorted(commands):
            yield command, name, _key(name, keys, topics)


def _key(name: str, keys: QueueKeys, topics: RouterKeys) -> str:
    if not name:
        return ""
    if name in _OF_ROUTER:
        return str(getattr(topics, name))
    if name == "queues":
        return SHARED_KEYS.of("queues", ("queues",))[0]
    if name == "streams":
        return keys.stream(0)
    if name == "holds":
        return keys.hold("name")
    return str(getattr(keys, name, keys.meta))  # "any", "keys" and "rest" are all of them


def _words(command: str, key: str) -> list[str]:
    words = WORDS[command].replace("KEY", key or "none").split(" ") if WORDS[command] else []
    return [*command.split("|"), *words]


def _may_call(user: str, queue: str, clock: Clock, timeout: float) -> Op[bool]:
    keys = QueueKeys(queue)
    for called in (("FCALL_RO", "FCALL"), ("EVALSHA_RO", "EVAL_RO")):
        for command in called:
            allowed = yield from _allowed(clock, timeout, user, command, "none", 2, keys.meta, keys.stream(0))
            if not allowed:
                break
        else:
            return True
        if allowed is None:
            return False
    return False


def _allowed(clock: Clock, timeout: float, user: str, *words: Argument) -> Op[bool | None]:
    """Whether a user may run a command; None if this client may not ask."""
    reply = yield from _asked(clock, timeout, "ACL", "DRYRUN", user, *words)
    return None if reply is None else reply in (b"OK", "OK", True)


def _asked(clock: Clock, timeout: float, *words: Argument) -> Op[Any]:
    try:
        return (yield from retry_until(always(Ask(words)), clock.monotonic() + timeout, clock))
    except BackendTimeout:
        raise
    except BackendError as error:
        if isinstance(error.__cause__, Refused):
            return None
        raise

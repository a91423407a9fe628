"""What calls make a server run: each command in order, also those inside scripts and functions."""

from __future__ import annotations

import math
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis

from shardq import Delivery, Queue
from tests.servers import Server

_LINE = re.compile(rb"^[\d.]+ \[\d+ (\S+)\] (.*)$", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
LARGE = 1_000
"""More members than one command may look at, or ask for at once: those of the largest batch."""


class Command(NamedTuple):
    """One command as MONITOR shows it; `inside` a script, or sent by a client."""

    words: tuple[str, ...]
    inside: bool

    @property
    def name(self) -> str:
        """What it is, in capitals."""
        return self.words[0].upper()


@contextmanager
def watched(server: Server) -> Iterator[list[Command]]:
    """Give a list that has all commands of the block when that is over."""
    found: list[Command] = []
    end = f"end-{uuid.uuid4().hex}"
    with server.client() as plain:
        connection: Any = plain.connection_pool.get_connection()
        try:
            connection.send_command("MONITOR")
            connection.read_response()
            yield found
            server.run("ECHO", end)
            while (seen := _parsed(connection.read_response())).words[-1] != end:
                found.append(seen)
        finally:
            connection.disconnect()


def _parsed(line: bytes) -> Command:
    match = _LINE.match(line)
    assert match, line
    words = tuple(word.decode("utf-8", "replace") for word in _WORD.findall(match[2]))
    return Command(words, match[1].startswith(b"lua"))


def names(commands: Sequence[Command]) -> Counter[str]:
    """How often each command was run."""
    return Counter(f"{each.name} {'inside' if each.inside else 'sent'}" for each in commands)


def one_of_each(queue: Queue, shard_key: str = "other") -> None:
    """Write, read and ack one message; the queue must have nothing else to deliver."""
    queue.write("work", shard_key=shard_key)
    found: Delivery = queue.read()
    assert found.shard_key == shard_key
    found.ack()


def cost(server: Server, queue: Queue) -> Counter[str]:
    """The commands of one write, read and ack.

    The queue has seen some before, so that what is learnt or tidied once by a client or in Redis is not in it.
    """
    for _ in range(3):
        one_of_each(queue)
    with watched(server) as seen:
        one_of_each(queue)
    return names(seen)


def unbounded(server: Server, commands: Sequence[Command]) -> list[str]:
    """The commands that look at all members of something large, however many these are."""
    with server.client() as plain:
        return [" ".join(each.words)[:200] for each in commands if each.inside and _looks_at_all(plain, each.words)]


def touched(server: Server, commands: Sequence[Command]) -> float:
    """How much one script may touch at most: the keys, members and fields that its commands name or ask for.

    One that only looks has changed nothing: so of a range it has touched no more than is in there.
    """
    most = this = 0.0
    only_looks = False
    with server.client() as client:
        plain: Any = client
        for each in commands:
            if not each.inside:
                this, only_looks = 0.0, each.name == "FCALL_RO"
                continue
            amount = _amount(each.words)
            if only_looks and amount > 1 and each.words[0].upper() == "ZRANGEBYLEX":
                amount = min(amount, plain.zlexcount(*each.words[1:4]))
            this += amount
            most = max(most, this)
    return most


def _amount(words: tuple[str, ...]) -> float:
    name = words[0].upper()
    if name in _SCANS:
        return _asked(words, "COUNT", 1, default=10)
    if name in _WHOLE | _BY_VALUE | _BY_RANK | _STREAMS:
        return _most(name, words)
    return len(words) - 1


_WHOLE = {"HGETALL", "HKEYS", "HVALS", "SMEMBERS", "ZREMRANGEBYSCORE", "ZREMRANGEBYLEX"}
_BY_VALUE = {"ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZRANGEBYLEX", "ZREVRANGEBYLEX"}
_BY_RANK = {"ZRANGE", "ZREVRANGE", "LRANGE", "ZREMRANGEBYRANK"}
_STREAMS = {"XRANGE", "XREVRANGE"}
_SCANS = {"HSCAN", "SSCAN", "ZSCAN"}


def _looks_at_all(plain: redis.Redis, words: tuple[str, ...]) -> bool:
    name = words[0].upper()
    if name in _SCANS:
        return _asked(words, "COUNT", 1, default=10) > LARGE
    if name not in _WHOLE | _BY_VALUE | _BY_RANK | _STREAMS:
        return False
    return _most(name, words) > LARGE and _size(plain, words[1]) > LARGE


def _most(name: str, words: tuple[str, ...]) -> float:
    """How many members a command asks for at most."""
    if name in _WHOLE:
        return math.inf
    if name in _STREAMS:
        return 1 if words[2] == words[3] else _asked(words, "COUNT", 1)
    limit = _asked(words, "LIMIT", 2)
    if name in _BY_VALUE or limit < math.inf or {"BYSCORE", "BYLEX"} & {word.upper() for word in words}:
        return limit
    first, last = int(words[2]), int(words[3])
    return last - first + 1 if (first < 0) == (last < 0) else math.inf


def _asked(words: tuple[str, ...], option: str, place: int, default: float = math.inf) -> float:
    """The number in an option of a command; negative ones mean all."""
    upper = [word.upper() for word in words]
    if option not in upper:
        return default
    number = int(words[upper.index(option) + place])
    return math.inf if number < 0 else number


def _size(plain: redis.Redis, key: str) -> int:
    run: Any = plain
    match plain.type(key):
        case b"hash":
            return int(run.hlen(key))
        case b"zset":
            return int(run.zcard(key))
        case b"set":
            return int(run.scard(key))
        case b"stream":
            return int(run.xlen(key))
        case b"list":
            return int(run.llen(key))
    return 0

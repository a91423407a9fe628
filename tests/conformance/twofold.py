"""A client each of whose calls runs twice: with the straight parts of the scripts, and without them, each on a database
of its own. The replies must be equal, and so must all keys be.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import redis

from shardq import Client
from shardq.drivers import Target
from shardq.ops.steps import Call, Refused
from shardq.protocol import scripts
from shardq.testing import ManualClock
from shardq.testing.fake import FakeDriver

TIME = "redis.call('TIME')"
OF_THE_TEST = "of-the-test:"
"""Before the names of keys that no queue has: the time that scripts see, and how often they took the general way."""
CLOCK, GENERAL = f"{OF_THE_TEST}clock", f"{OF_THE_TEST}general"
LINE = re.compile(r"user_script:\d+")
VERBS = ("write", "read", "ack")
"""Those with a straight part."""
COUNTS = {"write": 7, "read": 0, "ack": 2}
"""Which argument says of how many messages the call is."""


@functools.cache
def source_of(verb: str, folder: str, straight: bool) -> str:
    """The text of a verb, whose time is the test's; it counts how often it gets to its general part."""
    text = scripts.join(verb, Path(folder), straight=straight)
    text = text.replace(TIME, f"redis.call('HMGET', '{CLOCK}', 'seconds', 'micros')")
    return text.replace("--- @general\n", f"redis.call('HINCRBY', '{GENERAL}', '{verb}', 1)\n")


class TwofoldDriver(FakeDriver):
    """Sends each call to two databases, and takes the answer of the first."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.databases = [redis.Redis.from_url(url.replace("db=0", f"db={number}"), protocol=2) for number in (0, 1)]
        super().__init__(self.databases[0], clock, clock.advance, math.inf)
        self.last: dict[str, Call] = {}
        self.straight: Counter[str] = Counter()
        """How many calls of a verb ended in its straight part; those for many messages apart, as "write many"."""
        self._general: Counter[str] = Counter()

    def _evaluated(self, call: Call) -> Any:
        verb = call.script.name
        self.last[verb] = call
        replies = [self._run(call, database, straight=at == 0) for at, database in enumerate(self.databases)]
        assert replies[0] == replies[1], f"{verb} {call.args}:\n{replies[0]}\n{replies[1]}"
        if isinstance(replies[0], str):  # no script answers with text: it failed
            raise Refused("ERR", replies[0])
        return replies[0]

    def _run(self, call: Call, database: redis.Redis, *, straight: bool) -> Any:
        seconds, micros = divmod(round(self._clock.wall() * 1_000_000), 1_000_000)
        with database.pipeline(transaction=False) as pipe:
            pipe.hset(CLOCK, mapping={"seconds": seconds, "micros": micros})
            source = source_of(call.script.name, str(scripts.root()), straight)
            pipe.execute_command("EVAL", source, len(call.keys), *call.keys, *call.args)
            pipe.hget(GENERAL, call.script.name)
            *_, reply, general = pipe.execute(raise_on_error=False)
        if straight:
            self._count(call, int(general or 0))
        return LINE.sub("", str(reply)) if isinstance(reply, Exception) else reply

    def both(self, *words: Any) -> None:
        """Run a plain command on both databases, as another program does that damages a queue."""
        for database in self.databases:
            database.execute_command(*words)  # type: ignore[no-untyped-call, unused-ignore]

    def _count(self, call: Call, general: int) -> None:
        """Note whether a call ended in its straight part: then it did not count as a general one."""
        verb = call.script.name
        if verb in VERBS and general == self._general[verb]:
            self.straight[verb if int(call.args[COUNTS[verb]]) == 1 else f"{verb} many"] += 1
        self._general[verb] = general

    def of(self, key: str, at: int = 0) -> Any:
        """Return the fields of a hash in the first database, or in that one."""
        return self.databases[at].hgetall(key)

    def differing(self) -> str:
        """Which keys differ, and how; '' if none does."""
        first, second = map(contents, self.databases)
        differing = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
        return "\n".join(f"{key}:\n  {first.get(key)}\n  {second.get(key)}" for key in differing)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        for database in self.databases:
            database.close()


def twofold_client(url: str, clock: ManualClock, **settings: Any) -> tuple[Client, TwofoldDriver]:
    """A client of an empty server, and its driver."""
    driver = TwofoldDriver(url, clock)
    client = Client(Target("single", {}), clock=clock, **settings)
    client._driver = driver
    return client, driver


def contents(database: Any) -> dict[str, Any]:
    """All keys of a database, but the test's own."""
    keys: list[bytes] = sorted(key for key in database.keys("*") if not key.startswith(OF_THE_TEST.encode()))
    with database.pipeline() as pipe:
        for key in keys:
            pipe.type(key)
        kinds = pipe.execute()
        for key, kind in zip(keys, kinds, strict=True):
            _ask(pipe, key, kind)
        found = iter(pipe.execute())
    return {key.decode(): _content(key, kind, found) for key, kind in zip(keys, kinds, strict=True)}


def _ask(pipe: Any, key: bytes, kind: bytes) -> None:
    match kind:
        case b"hash":
            pipe.hgetall(key)
        case b"zset":
            pipe.zrange(key, 0, -1, withscores=True)
        case b"set":
            pipe.smembers(key)
        case b"stream":
            pipe.xrange(key)
            pipe.xinfo_stream(key)
            pipe.xinfo_groups(key)
        case _:
            pipe.get(key)


def _content(key: bytes, kind: bytes, found: Any) -> Any:
    if key.endswith(b":moved"):  # where a dead letter lies, is by the server's own clock
        return {origin: b"x:" if at.startswith(b"x:") else at for origin, at in next(found).items()}
    if kind != b"stream":
        return next(found)
    entries, stream, groups = next(found), next(found), next(found)
    if not key.endswith((b":notifications", b":dead")):
        return entries, stream["last-generated-id"], groups
    # These have ids by the server's own clock, so only how they lie to the group counts.
    seen = [group["last-delivered-id"] == stream["last-generated-id"] for group in groups]
    return [fields for _, fields in entries], seen

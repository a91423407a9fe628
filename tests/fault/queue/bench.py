"""A queue with something of everything in it, and a call of each function that runs in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import redis

from shardq import Client, Limits, Message
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.upkeep import forget_results, touch
from shardq.ops.results.keep import keep, progress
from shardq.ops.write.outgoing import Outgoing
from shardq.ops.write.release import release
from shardq.ops.write.write import write_many
from shardq.protocol.keys import SHARED_KEYS, QueueKeys, RouterKeys
from shardq.protocol.results import VALUE, KeptResult
from shardq.sharding import shard
from shardq.spark.ops.holds import remember
from tests.inner import inner_looks, run
from tests.servers import Server
from tests.state import set_line

STREAMS = 3


class Bench:
    """A queue with something of everything in it: waiting, given back, delayed, ended and live leases, dead letters."""

    def __init__(self, server: Server, client: Client, name: str, **settings: Any) -> None:
        self.queue = client.queue(
            name,
            streams=STREAMS,
            streams_per_shard=2,
            max_deliveries=2,
            dedup_window=600,
            journal=1000,
            max_schedules=10,
            **settings,
        )
        self.keys, self.url = QueueKeys(name), server.url
        self.plain = server.client()
        queue = self.queue
        queue.write_many([Message(str(n), f"tenant-{n % 7}") for n in range(20)])
        queue.write_many([Message(f"later {n}", "tenant", delay=60) for n in range(3)])
        queue.write("due", shard_key="tenant", delay=0.001)
        first, second, *self.held = queue.read_many(8, visibility_timeout=60)
        first.reject("poison")
        second.nack(error="again")
        queue.write("other", shard_key="tenant", dedup_key="known")
        self.worn = queue.read(visibility_timeout=60)
        self.worn.nack()
        self.ended = queue.read_many(2, visibility_timeout=0.05)
        self.letters = queue.dead()
        while self._past() < len(self.ended):
            pass  # until these leases have ended
        self.waiting = queue.write("waits", shard_key="tenant")
        queue.schedules.add("often", "call", shard_key="tenant", every=60)
        set_line(self.plain, self.keys, waiting=9 * 10**14)  # as if readers were blocked: everybody notifies

    def _past(self) -> int:
        """How many leases have ended; a score is bucket * 2^42 + ms."""
        now = _server_ms(self.plain)
        rows: Any = self.plain.zrange(self.keys.leases, 0, -1, withscores=True)
        return sum(score % 2**42 <= now for token, score in rows if token)

    def picture(self) -> dict[bytes, bytes]:
        """All keys, byte for byte."""
        keys = self._keys()
        return dict(zip(keys, self._all(("DUMP", key) for key in keys), strict=True))

    def content(self) -> dict[bytes, Any]:
        """The same, but hashes by their fields: the order of these in a dump changes by itself."""
        keys = self._keys()
        kinds = self._all(("TYPE", key) for key in keys)
        verbs = ["HGETALL" if kind == b"hash" else "DUMP" for kind in kinds]
        return dict(zip(keys, self._all(zip(verbs, keys, strict=True)), strict=True))

    def shape(self) -> dict[bytes, tuple[bytes, int]]:
        """The type of each key, and how many members it has."""
        keys = self._keys()
        kinds = self._all(("TYPE", key) for key in keys)
        counted = {b"hash": "HLEN", b"zset": "ZCARD", b"set": "SCARD", b"stream": "XLEN"}
        sizes = self._all([(counted[kind], key) for kind, key in zip(kinds, keys, strict=True)])
        return dict(zip(keys, zip(kinds, sizes, strict=True), strict=True))

    def restore(self, picture: dict[bytes, bytes]) -> None:
        """Make all keys what they were."""
        self._all([("FLUSHALL",), *(("RESTORE", key, 0, dump) for key, dump in picture.items())])

    def spoil(self, key: str) -> None:
        """Make a key one of another type."""
        self._all([("DEL", key), ("SET", key, "something else")])

    def mend(self, key: str, picture: dict[bytes, bytes]) -> None:
        """Make one key what it was."""
        dump = picture.get(key.encode())
        self._all([("DEL", key), *([("RESTORE", key, 0, dump)] if dump else [])])

    def _keys(self) -> list[bytes]:
        return self._all([("KEYS", "*")])[0]  # type: ignore[no-any-return]

    def _all(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The answers to these commands, in one round trip."""
        with self.plain.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return pipe.execute()


class PlainBench(Bench):
    """A queue in the common case, which the straight parts of scripts are for; without *messages* nothing waits."""

    def __init__(self, server: Server, client: Client, name: str, window: int, messages: int) -> None:
        self.queue = client.queue(name, streams=STREAMS, streams_per_shard=2, window=window)
        self.keys = QueueKeys(name)
        self.plain = server.client()
        self.queue.write_many([("held", "another")] * 3)
        self.held = self.queue.read_many(3)
        for number in range(messages):
            self.queue.write("waits", shard_key=f"tenant-{number}")
        set_line(self.plain, self.keys, waiting=9 * 10**14)


def _server_ms(plain: redis.Redis) -> int:
    seconds, micros = plain.time()
    return seconds * 1000 + micros // 1000


class Furnished(Bench):
    """The same, with what not every queue has: results, unique keys, ids of a gateway, plans, shards, bindings."""

    def __init__(self, server: Server, client: Client, name: str) -> None:
        super().__init__(server, client, name, result_ttl=600)
        queue = self.queue
        done, over = self.held.pop(), self.held.pop()
        self.done = done.message_id
        queue.ack_many([done, over], results=["done", "over"])
        self.plain.zadd(self.keys.result_ends, {over.message_id: 1})  # as if it had ended
        queue.write("unique", shard_key="tenant", unique_key="one")
        self.gateway = client.state_of(name, {}, remember=3600.0)
        client.run(write_many(self.gateway, [Outgoing(b"t", "b", b"x", dedup_key="k", most_ids=9)]))
        queue.set_plan("gold", max_in_flight=5)
        low = (each for each in map(str, count()) if {*shard(each, STREAMS, 2)} <= {0, 1})  # or it could not shrink
        queue.assign([next(low)])
        client.bind("orders.*", queue)
        self.standing = self.plain.hget(self.keys.meta, "S:u:often")
        self.call("steer", "begin", "action", "holder", "{}", "me")

    def call(self, function: str, *args: Argument) -> Any:
        """Call a function of the queue."""
        return run(self.queue, Call.on(self.keys, function, args))

    def run(self, op: Op[Any]) -> Any:
        """Do an operation."""
        return self.queue.client.run(op)


def this_minute(bench: Any) -> str:
    """The number of this minute by the server's clock, as a beat begins with it."""
    return f"{_server_ms(bench.plain) // 60_000}|"


Calls = dict[str, Callable[[Any], Any]]
ROUTER = RouterKeys("default")


def act_on_dead(bench: Any) -> Any:
    """A piece of an action."""
    row = ("0-0-d", "d", bench.letters[0].entry_id, "", "dead", 0)
    return bench.call("act", "action", "holder", 0, "somebody", "redrive", "running", "", "-", "", *row)


def purge_part(bench: Any, part: str, *streams: str) -> Any:
    """A piece of a purge of the tenant that has most."""
    words = ("somebody", "-", "tenant", 10**9, part, 100, "")
    return run(bench.queue, Call.on(bench.keys, "purge_of", words, rest=streams))


CHANGES: Calls = {
    "act": act_on_dead,
    "assign": lambda bench: bench.queue.assign(["tenant", "another"]),
    "assign, taking back": lambda bench: bench.queue.unassign(),
    "await": lambda bench: bench.queue.result(bench.done),
    "beat": lambda bench: bench.call("beat", "worker", "0|8|2.50|", this_minute(bench) + "task=1,0,9,a1;", "", 1),
    "beat, with numbers": lambda bench: bench.call(
        "beat", "worker", "0|8|2.50|", "", this_minute(bench) + "1|1||0|2|2|2|7", 0
    ),
    "begin_schedule": lambda bench: bench.call("begin_schedule", "c:new"),
    "bind": lambda bench: bench.queue.client.bind("news", "another"),
    "bind, taking back": lambda bench: bench.queue.client.unbind("orders.*", bench.queue),
    "cancel, waiting": lambda bench: bench.queue.cancel(bench.waiting),
    "cancel, held": lambda bench: bench.queue.cancel(bench.held[0].message_id),
    "complete": lambda bench: bench.call("complete", 1000, "o:w:0"),
    "configure": lambda bench: bench.queue.configure(max_len=10_000),
    "delete": lambda bench: bench.queue.delete(expected=None),
    "delete_dead": lambda bench: bench.queue.delete_dead(bench.letters),
    "extend": lambda bench: bench.held[0].extend(1),
    "forget_results": lambda bench: bench.run(forget_results(bench.queue.state, bench.queue.state.until())),
    "keep": lambda bench: bench.run(keep(bench.queue.state, [(bench.held[0].received, KeptResult(VALUE, "b", b"x"))])),
    "limit": lambda bench: bench.queue.set_limits({"tenant": Limits(rate=5)}),
    "limit, a pause": lambda bench: bench.queue.pause("tenant"),
    "lost": lambda bench: bench.call("lost", bench.held[0].received.token.split(":")[3], 0, 60_000, 100, ""),
    "move_schedules": lambda bench: bench.call("move_schedules", "often", bench.standing, 9 * 10**14),
    "open": lambda bench: bench.queue.declare(),
    "pause": lambda bench: bench.queue.pause(),
    "pause_schedule": lambda bench: bench.queue.schedules.pause("often"),
    "plan": lambda bench: bench.queue.set_plan("gold", max_in_flight=7),
    "progress": lambda bench: bench.run(progress(bench.queue.state, bench.held[0].received, 1, 2, "")),
    "purge": lambda bench: bench.queue.purge(),
    "purge_of, waiting": lambda bench: purge_part(bench, "waiting"),
    "purge_of, delayed": lambda bench: purge_part(bench, "delayed"),
    "purge_of, a stream": lambda bench: purge_part(bench, "stream", bench.keys.stream(0)),
    "purge_of, dead letters": lambda bench: purge_part(bench, "dead"),
    "purge_of, keys": lambda bench: purge_part(bench, "keys"),
    "purge_of, in flight": lambda bench: purge_part(bench, "cancel", *map(bench.keys.stream, range(STREAMS))),
    "read": lambda bench: bench.queue.read(),
    "read, many": lambda bench: bench.queue.read_many(50),
    "read, a poll": lambda bench: bench.queue.read_many(1),
    "redrive": lambda bench: bench.queue.redrive(bench.letters),
    "register": lambda bench: run(bench.queue, Call.on(SHARED_KEYS, "register", ("+", "another"))),
    "release": lambda bench: bench.run(release(bench.gateway, ["k"])),
    "knows": lambda bench: run(bench.queue, inner_looks(bench.keys)["knows"]),
    "remember": lambda bench: bench.run(remember(bench.queue.state, "query", 1, b"record")),
    "remove_schedule": lambda bench: bench.queue.schedules.remove("often"),
    "replace": lambda bench: bench.queue.write("new", shard_key="tenant", unique_key="one", on_conflict="replace"),
    "resize": lambda bench: bench.queue.resize(5),
    "settle, an ack": lambda bench: bench.held[0].ack(),
    "settle, many acks": lambda bench: bench.queue.ack_many(bench.held),
    "settle, a nack": lambda bench: bench.held[0].nack(error="why"),
    "settle, a nack with a delay": lambda bench: bench.held[0].nack(delay=1),
    "settle, a reject": lambda bench: bench.held[0].reject("why"),
    "steer": lambda bench: bench.call("steer", "stop", "action", "-", "", "me"),
    "shrink": lambda bench: bench.queue.resize(2),
    "store_schedule": lambda bench: bench.queue.schedules.add("new", "call", shard_key="tenant", every=60),
    "touch": lambda bench: bench.run(touch(bench.queue.state, bench.queue.state.until())),
    "weigh": lambda bench: bench.queue.set_weights({"tenant-3": 2}),
    "write": lambda bench: bench.queue.write("new", shard_key="tenant"),
    "write, delayed": lambda bench: bench.queue.write("new", shard_key="tenant", delay=1),
    "write, with a dedup key": lambda bench: bench.queue.write("new", shard_key="tenant", dedup_key="new"),
    "write, many": lambda bench: bench.queue.write_many(
        [Message("new", f"t{n}", delay=n % 2, dedup_key=f"k{n}") for n in range(9)]
    ),
    "write, many alike": lambda bench: bench.queue.write_many([("new", f"tenant-{n}") for n in range(9, 19)]),
}  # fmt: skip
"""By the function in Redis that the call is for."""

LOOKS: Calls = {
    "actions": lambda bench: bench.queue.actions(),
    "assignment": lambda bench: bench.queue.assignment(),
    "bindings": lambda bench: run(bench.queue, Call.on(ROUTER, "bindings", ("0", 100))),
    "dead": lambda bench: bench.queue.dead(),
    "due": lambda bench: bench.queue.peek(state="delayed"),
    "failures": lambda bench: bench.queue.failures(),
    "follow": lambda bench: run(bench.queue, Call.on(ROUTER, "follow", ("", 0, 10))),
    "history": lambda bench: bench.queue.history(),
    "journal": lambda bench: bench.queue.journal(),
    "leased": lambda bench: bench.queue.peek(state="in_flight"),
    "len": lambda bench: bench.queue.len(),
    "limits": lambda bench: bench.queue.limits(),
    "outlook": lambda bench: bench.queue.outlook(),
    "peek": lambda bench: bench.queue.peek(),
    "plans": lambda bench: bench.queue.plans(),
    "queues": lambda bench: bench.queue.client.queues(),
    "schedules": lambda bench: bench.queue.schedules.list(),
    "stats": lambda bench: bench.queue.stats(),
    "status": lambda bench: bench.queue.status(bench.waiting),
    "tenant": lambda bench: bench.queue.tenant("tenant"),
    "weights": lambda bench: bench.queue.weights(),
    "workers": lambda bench: bench.queue.workers(),
} | {
    name: (lambda bench, name=name: run(bench.queue, inner_looks(bench.keys)[name]))
    for name in inner_looks(QueueKeys("-"))
    if name != "knows"  # it may move the epoch
}

"""A queue with something in each of its keys, on a server whose clock stands still; and what lies in the keys then.

Nonces are drawn so that they can be told from all else. So what is there differs between two runs in nothing but such
nonces, and in numbers.
"""

from __future__ import annotations

import contextlib
import io
import math
import random
import tempfile
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from shardq import Client, Limits, Message, Queue, Where
from shardq.cli import main
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call
from shardq.tasks import Tasks
from shardq.testing import ManualClock
from tests.fault.server.test_clock import Shimmed
from tests.inner import run
from tests.servers import available
from tests.waiting import eventually

NOW: Final = 1_800_000_000_000
"""When all of it happens, in ms since 1970."""
NAMES: Final = ("plain", "nested")
"""The queues: the second one has parents, and a window."""
KINDS: Final[Mapping[bytes, str]] = {
    b"hash": "hash", b"zset": "sorted set", b"stream": "stream", b"set": "set", b"string": "string",
}  # fmt: skip
Stored = dict[str, Any]
"""The keys of a noun of its kind: {"kind": …, "rows": [[…], …]}, each text as Latin-1."""

tasks = Tasks("plain")


@tasks.task(name="mail")
def mail(to: str, copies: int = 1) -> None:
    """Nobody calls it: a message does."""


@contextmanager
def known_nonces(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let all nonces be alike: in base64 they begin with NNN, and in hex with 34d34d."""
    numbers, opened = count(), QueueState.__post_init__

    def draw(size: int) -> bytes:
        return urlsafe_b64decode("N" * (4 * (size // 3 + 1)))[: size - 1] + bytes([next(numbers) % 256])

    def post_init(self: QueueState) -> None:
        self.draw = draw
        opened(self)

    with patch.context() as patched:
        patched.setattr(random, "_urandom", draw)
        patched.setattr(QueueState, "__post_init__", post_init)
        yield


class Times:
    """The clocks of a server and of its client, which move together."""

    def __init__(self, server: Shimmed) -> None:
        self._server, self.client, self.url = server, ManualClock(NOW / 1000), server.url

    def move_on(self, milliseconds: int) -> None:
        self.client.advance(milliseconds / 1000)
        self._server.jump(goal := round(self.client.wall() * 1000))
        eventually(
            lambda: self._server.run("TIME") >= divmod(goal * 1000, 1_000_000)
        )  # it keeps its time for an instant


def fill(client: Client, times: Times) -> None:
    """Make the queues, and let everything be in them that can be."""
    plain = client.queue(
        "plain", streams=2, streams_per_shard=1, result_ttl=600.0, journal=1000, total_in_flight=1000,
        max_schedules=10, dedup_window=600.0,
    )  # fmt: skip
    plain.declare()
    _settle(plain, times)
    _write(plain)
    _hold(plain, times)
    _operate(plain)
    nested = client.queue("nested", streams=1, parents=1, max_in_flight=1, journal=1000)
    nested.declare()
    nested.write_many([(number, f"parent/{child}") for number in range(3) for child in "ab"])
    assert len(nested.read_many(5)) == 1
    client.bind("orders.*.created", "plain")
    client.bind("orders.#", "nested")
    client.unbind("orders.#", "nested")


def _settle(queue: Queue, times: Times) -> None:
    """Messages that are over: done, with a result; dead; and some whose try failed, or whose lease ended."""
    for number, tenant in enumerate(("a", "b", "c", "d")):
        queue.write(number, shard_key=tenant)
    done, again, dead, ended = sorted(queue.read_many(4, visibility_timeout=5), key=lambda each: each.shard_key)
    times.move_on(1_000)
    done.progress(1, 2, "half")
    done.ack(result={"sum": 1})
    again.nack(delay=30, error="ValueError: no")
    dead.reject("no such account")
    assert ended.shard_key == "d"
    times.move_on(9_000)
    assert [each.shard_key for each in queue.read_many(1)] == ["d"]


def _write(queue: Queue) -> None:
    """Messages of each form."""
    queue.write("small", shard_key="a", headers={"name": "value"})
    queue.write(b"x" * 600, shard_key="a", deadline=600.0)
    queue.write(mail.call(to="ada"), shard_key="e")
    queue.write("later", shard_key="a", delay=60, headers={"name": "value"})
    queue.write(b"x" * 600, shard_key="b", delay=60)
    queue.write("once", shard_key="a", dedup_key="key")
    queue.write("alone", shard_key="a", unique_key="key")
    queue.write("later alone", shard_key="a", unique_key="other", delay=60)
    queue.write_many([Message(number, "many") for number in range(3)])
    with queue.client.writer() as writer:
        writer.write(queue.name, "of a writer", shard_key="f")


def _hold(queue: Queue, times: Times) -> None:
    """Messages in flight, with a note, and one that was cancelled."""
    held = queue.read_many(3, visibility_timeout=60)
    assert len(held) == 3
    held[0].progress(1, 3, "a third")
    queue.cancel(held[1].message_id)
    times.move_on(1_000)
    held[2].nack(error="KeyError: again")


def _operate(queue: Queue) -> None:
    """What people and workers set and tell."""
    queue.set_limits({"limited": Limits(max_in_flight=1, rate=5, burst=5)})
    queue.set_weights({"weighty": 3}, by="ada", note="a month")
    queue.write_many([(number, tenant) for number in range(3) for tenant in ("limited", "paused")])
    queue.pause("paused", by="ada", note="they asked")
    queue.set_plan("gold", max_in_flight=5)
    queue.set_limits({"golden": "gold"})
    queue.assign(["assigned"])
    queue.schedules.add("often", "call", shard_key="a", every=60)
    queue.schedules.add("resting", "call", shard_key="a", every=60, paused=True)
    queue.redrive(Where(tenant="nobody", error="ValueError", older_than=5.0), by="ada", note="again").stop()
    tell = ("w", ROW, f"{NOW // 60_000}|mail=5,1,20,b2;", "", 1)
    run(queue, Call.on(queue.state.keys, "beat", tell))
    run(queue, Call.on(queue.state.keys, "beat", ("w", ROW, "", f"{NOW // 60_000}|1|2|3", 0)))


ROW: Final = "0|8|2.50|1800000000000|7|1048576||0.1.0|host||||5|1|mail=5,1,20;|acme=6,20,30;|b2"
"""What a worker tells of itself."""


def stored(raw: Any) -> dict[str, Stored]:
    """What lies in each key, by the name of its queue and its noun."""
    found: dict[str, Stored] = {}
    for key in sorted(raw.keys()):
        noun = key.decode().partition("}:")[2] or key.decode()
        queue = key.decode().partition("{")[2].partition("}")[0]
        found[f"{queue} {noun}".strip()] = {"kind": KINDS[raw.type(key)], "rows": sorted(_rows(raw, key))}
    return found


def _rows(raw: Any, key: bytes) -> Iterator[list[str]]:
    kind = raw.type(key)
    if kind == b"hash":
        rows = raw.hgetall(key).items()
    elif kind == b"zset":
        rows = ((member, f"{score:.17g}".encode()) for member, score in raw.zrange(key, 0, -1, withscores=True))
    elif kind == b"set":
        rows = ((member,) for member in raw.smembers(key))
    else:
        rows = ((number, *(word for pair in fields.items() for word in pair)) for number, fields in raw.xrange(key))
        for group in raw.xinfo_groups(key):
            yield ["group", group["name"].decode(), group["last-delivered-id"].decode()]
    for row in rows:
        yield [each.decode("latin-1") for each in row]


def _position(row: list[str]) -> tuple[float, ...]:
    """Where a row of a stream stands: a group comes behind all entries."""
    return (math.inf,) if row[0] == "group" else tuple(map(int, row[0].split("-")))


def restore(raw: redis.Redis, found: Mapping[str, Stored]) -> None:
    """Put into an empty server what was stored."""
    for name, each in found.items():
        queue, _, noun = name.rpartition(" ")
        key = f"shardq:{{{queue}}}:{noun}" if queue else noun
        rows = sorted(each["rows"], key=_position) if each["kind"] == "stream" else each["rows"]
        for row in rows:
            words = [word.encode("latin-1") for word in row]
            match each["kind"]:
                case "hash":
                    raw.hset(key, words[0], words[1])
                case "sorted set":
                    raw.zadd(key, {words[0]: float(words[1])})
                case "set":
                    raw.sadd(key, words[0])
                case "stream" if words[0] == b"group":
                    raw.xgroup_create(key, words[1], words[2], mkstream=True)
                case "stream":
                    raw.execute_command("XADD", key, *words)


@contextmanager
def still_server() -> Iterator[tuple[Client, redis.Redis, Times]]:
    """An empty server whose clock stands still, with a client."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Shimmed(available()[0], Path(folder), still_at=NOW) as server,
        Client.from_url(server.url, clock=(times := Times(server)).client, name="client") as client,
        server.client() as raw,
    ):
        yield client, raw, times


@cache
def made() -> Mapping[str, Stored]:
    """What lies in a server once it is filled, and under "declared file" what `shardq export` prints of it."""
    with pytest.MonkeyPatch.context() as patch, known_nonces(patch), still_server() as (client, raw, times):
        fill(client, times)
        found, told = stored(raw), io.StringIO()
        with contextlib.redirect_stdout(told):
            assert main(["--url", times.url, "export", *NAMES]) == 0
        lines = [[each] for each in told.getvalue().splitlines() if each]
        return found | {"declared file": {"kind": "lines", "rows": lines}}

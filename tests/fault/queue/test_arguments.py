"""No argument is believed: what no client sends is refused before anything has changed, and the error says why.

Here are calls that once did harm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import redis

from shardq import Client
from shardq.protocol.keys import QueueKeys, RouterKeys
from shardq.protocol.scripts import library
from tests.fault.queue.bench import Furnished
from tests.servers import Server

NAME = "arguments"
KEYS = QueueKeys(NAME)
ROUTER = RouterKeys("default")
FIRST = KEYS.fixed[:18]
READ = KEYS.fixed[:19]
"""The first keys of `read` and `settle`."""
WRITTEN = (*KEYS.fixed[:14], KEYS.stream(0), KEYS.stream(1))
MESSAGE = ("\x01", "tenant", "b", "x")
FRESH = ("\x01", "fresh", "b", "x")
"""One for a stream; a tenant that has some goes behind them, and no stream is looked at."""
OPTIONS = (*MESSAGE, "")
STATE = (
    "rules",
    "line",
    "last",
    "epoch",
    "ready",
    "shared",
    "odd",
    "t:tenant",
    "offset",
    "purge",
    "-x",
    "p",
    "S",
    "o:x",
)
"""Fields of the state that are no producer's."""


class Bad(NamedTuple):
    """A call that is refused; in its words EPOCH is the queue's epoch, and NEXT another one."""

    verb: str
    keys: tuple[str, ...]
    words: tuple[Any, ...]


def write(head: str, *words: str, keys: tuple[str, ...] = WRITTEN) -> Bad:
    """A write with this head and these messages."""
    return Bad("write", keys, (head, *words))


def swapped(keys: tuple[str, ...], one: str, other: str) -> tuple[str, ...]:
    """The keys, two of them each in the place of the other."""
    found = {one: other, other: one}
    return tuple(found.get(key, key) for key in keys)


CALLS = [
    *(write(f"EPOCH 600000 1 4 99999999|150000 {field}", *MESSAGE) for field in STATE),
    write("EPOCH 600000 1 0 1|1 p:x", *MESSAGE),
    write("EPOCH 600000 2 4 1|1 p:x", *MESSAGE),
    write("EPOCH 99999999999999999 1 4 x -", *MESSAGE),
    write("EPOCH 1 1 4 99999999999999999999|1 p:x", *MESSAGE),
    write("EPOCH 1 1 4 1|99999999999999999999 p:x", *MESSAGE),
    write("EPOCH 1 1 4 x -", "\x01", "tenant", "l", "x"),
    write("EPOCH 1 1 4 x -", "\x01", "tenant", "bb", "x"),
    write("EPOCH 1 1 4 x -", "\x01", "k" * 1025, "b", "x"),
    write("EPOCH 1 1 4 x -", "\x03", "fresh", "b", "x"),
    write("EPOCH 1 1 4 x -", "", "fresh", "b", "x"),
    write("EPOCH 1 2 6 x -", *OPTIONS, "||once", "\x03", "other", "b", "x", "", ""),
    write("EPOCH 1 1 6 x -", *OPTIONS, "99999999999999||"),
    write("EPOCH 1 1 6 x -", *OPTIONS, "1|-1|"),
    write("EPOCH 1 1 6 x -", *OPTIONS, "nan||"),
    write("EPOCH 1 1 6 x -", *OPTIONS, "|@1|:id"),
    write("EPOCH 1 1 6 x -", *OPTIONS, "|@1|a|b:id"),
    write("EPOCH 1 1 6 x -", *OPTIONS, "|/e9||short"),
    write("EPOCH 1 1 4 x -", *FRESH, keys=(*WRITTEN[:14], KEYS.dead, KEYS.stream(1))),
    write("EPOCH 1 1 4 x -", *FRESH, keys=(*WRITTEN[:14], KEYS.stream(9), KEYS.stream(1))),
    write("EPOCH 1 1 4 x -", *MESSAGE, keys=swapped(WRITTEN, KEYS.notifications, KEYS.journal)),
    write("EPOCH 1 1 6 x -", *OPTIONS, "5||", keys=swapped(WRITTEN, KEYS.delayed, KEYS.turns)),
    Bad("read", (*READ, KEYS.stream(0)), ("67000000 h 1000 0 0 - 0 0", "", "c")),
    Bad("read", (*READ, KEYS.stream(0)), ("1 h:h 1000 0 0 - 0 0", "", "c")),
    Bad("read", (*READ, KEYS.stream(0)), ("1 h 1000000000000 0 0 - 0 0", "", "c")),
    Bad("read", (*READ, KEYS.stream(0)), ("1 h 1000 1000 0 - 0 0", "9" * 60 + " 1 1", "c")),
    Bad("read", (*swapped(READ, KEYS.leases, KEYS.delayed), KEYS.stream(0)), ("1 h 1000 0 0 - 0 0", "", "c")),
    Bad("read", (*swapped(READ, KEYS.turns, KEYS.due), KEYS.stream(0)), ("9 h 1000 0 0 - 0 0", "", "c")),
    Bad("settle", READ, ("n", "0", "0", "", "c", "0:1-1:1:h::k", "1", "", "x" * 5000)),
    Bad("settle", READ, ("a", "0", "0", "", "c", "rules")),
    Bad("settle", READ, ("x", "0", "0", "", "c", "0:1-1:1:h::k")),
    Bad("settle", READ, ("n", "0", "0", "", "c", "0:1-1:1:h::k", "nan", "", "")),
    Bad("settle", READ, ("n", "0", "0", "", "c", "0:1-1:1:h::k", "1", "")),
    Bad("extend", FIRST, ("1e300", "", "", "0:1-1:1:h::k")),
    Bad("configure", FIRST, ("EPOCH", "NEXT", "c", "rules", "nothing")),
    Bad("configure", FIRST, ("EPOCH", "NEXT", "c", "rate", "1e999")),
    Bad("configure", FIRST, ("EPOCH", "NEXT", "c", "max_len", "-1")),
    Bad("configure", FIRST, ("EPOCH", "3.a b", "c", "max_len", "1")),
    Bad("plan", FIRST, ("EPOCH", "NEXT", "c", "gold", "1,.,1,1")),
    Bad("plan", FIRST, ("EPOCH", "NEXT", "c", "go;ld", "1,1,1,1")),
    Bad("limit", (*FIRST, KEYS.limits), ("EPOCH", "NEXT", "c", "tenant", "1", "nan", "", "")),
    Bad("weigh", (*FIRST, KEYS.limits), ("EPOCH", "NEXT", "c", "tenant", "0")),
    Bad("weigh", (*FIRST, KEYS.results), ("EPOCH", "NEXT", "c", "tenant", "2")),
    Bad("sample", (KEYS.bodies,), (67_000_000,)),
    Bad("journal", (KEYS.meta, KEYS.journal), (0, 10**9)),
    Bad("release", (KEYS.dedup, KEYS.dedup_index), (":id",)),
    Bad("complete", (KEYS.bulk_offsets,), ("1", "")),
    Bad("begin_schedule", (KEYS.meta, KEYS.schedule_due), ("u:often",)),
    Bad("resize", (KEYS.meta, KEYS.stream(1), KEYS.stream(0)), ("EPOCH", "NEXT", 2)),
    Bad("resize", (KEYS.meta,), ("EPOCH", "NEXT", 0)),
    Bad("touch", (KEYS.meta, "another"), ()),
    Bad("bind", (ROUTER.bindings, ROUTER.changes), ("-", 9, 9, 0, " ")),
    Bad("bind", (ROUTER.bindings, ROUTER.changes), ("-", 9, 9, 0, "")),
]


def test_what_no_client_sends_is_refused_and_changes_nothing(server: Server) -> None:
    with Client.from_url(server.url) as client, server.client() as plain:
        bench = Furnished(server, client, NAME)
        epoch = plain.hget(bench.keys.meta, "epoch")
        before = bench.content()
        wrong = [each for each in CALLS if not _is_refused(plain, each, epoch)]
        assert wrong == []
        assert bench.content() == before


def _is_refused(plain: redis.Redis, bad: Bad, epoch: Any) -> bool:
    words = [str(word).replace("EPOCH", epoch.decode()).replace("NEXT", "3.next") for word in bad.words]
    try:
        plain.execute_command("FCALL", library().function(bad.verb), len(bad.keys), *bad.keys, *words)
    except redis.ResponseError as error:
        return "nothing was changed" in str(error)
    return False

"""No argument is believed: every function, called by hand as every role, with arguments and keys that no client sends.

What the users of one queue call harms no other queue, keeps the server from nothing, and leaves their own queue one
that its operator can look at, change and delete.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from shardq import Client, Limits, Message
from shardq.ops.queue.steps import Call
from shardq.protocol.keys import QueueKeys
from shardq.protocol.roles import ROLES
from shardq.protocol.script import FUNCTION, Form
from shardq.protocol.scripts import library
from tests.acl import Users
from tests.fault.queue.bench import CHANGES, LOOKS, STREAMS, Furnished
from tests.selection import SOAK
from tests.servers import Server
from tests.surface import differences, functions

SHORT, LONG = 3000, 100_000
LONGEST = 0.005
"""Seconds of the processor that a call may take the server: a busy machine makes these no more."""

A, B = QueueKeys("jobs"), QueueKeys("others")

NUMBERS = (
    "0", "-1", "1", "9", "255", "4096", "67000000", "1e9", "1e308", "nan", "-inf", "inf", "0x10", " 5", "5 ", "1.5",
    "-0", "9007199254740993", "72057594037928000", "99999999999999999999", "9" * 400,
)  # fmt: skip
NAMES = (
    "", "-", "+", "*", "=", "|", ",", ":", "\n", "\0", " ", "a b", "rules", "line", "last", "epoch", "shared", "odd",
    "ready", "offset", "lease_at", "streams", "plans", "purge", "t:tenant", "c:x", "p:", "p:x", "S:u:often", "o:w:0",
    "h0", "D:tenant", "X:tenant", "u:one", "k:known", "g::x", "i:", A.meta, A.stream(0), B.meta, B.stream(0), "d:1-1",
    "0:1-1", "18446744073709551616-0", "0-0", "1-1:1:x::", "x" * 5000, "l", "f", "w",
)  # fmt: skip
PARTS = " |,:-=/"
"""Letters between which an argument that is a list has its words."""


class Made(NamedTuple):
    """A call as a client makes it: the function, its keys and its arguments."""

    verb: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]


@pytest.fixture
def calls(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """Calls of each function, which a client made on the queue."""
    made: list[Made] = []
    pack = Call.packed

    def packed(call: Call, form: Form, *words: Any, **named: Any) -> bytes:
        if form is FUNCTION:
            made.append(Made(call.script.name, tuple(call.keys), tuple(map(_text, call.args))))
        return pack(call, form, *words, **named)

    with Client.from_url(server.url) as client, monkeypatch.context() as patched:
        patched.setattr(Call, "packed", packed)
        bench = Furnished(server, client, A.name)
        picture = bench.picture()
        for change in (CHANGES | LOOKS).values():
            bench.restore(picture)
            client.queue(A.name).state.forget()
            change(bench)
        bench.restore(picture)
    assert differences({each.verb for each in made}, functions()) == []
    return made


def _text(word: Any) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


class Hostile:
    """Makes hostile calls out of those that clients make."""

    def __init__(self, dice: random.Random, made: Sequence[Made]) -> None:
        self._dice = dice
        self._made: dict[str, list[Made]] = {}
        for each in made:
            self._made.setdefault(each.verb, []).append(each)
        self._words = sorted({word for each in made for word in each.args})

    def make(self, verb: str, epoch: bytes) -> Made:
        """Make a call of a function of which something is wrong; *epoch* is the queue's at this moment."""
        dice = self._dice
        like = dice.choice(self._made[verb])
        keys, args = list(like.keys), [self._current(word, epoch) for word in like.args]
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            if dice.random() < 0.2:
                self._spoil_list(keys, [*A.fixed, A.stream(0), A.stream(9), B.meta, B.stream(0), "shardq:queues"])
            elif args and dice.random() < 0.75:
                at = dice.randrange(len(args))
                args[at] = self._spoil(args[at])
            else:
                self._spoil_list(args, self._words)
        return Made(verb, tuple(keys), tuple(args))

    def _current(self, word: bytes, epoch: bytes) -> bytes:
        first, blank, rest = word.partition(b" ")
        if word.startswith(b"3.") and len(first) == len(epoch):
            return epoch + blank + rest
        return word

    def _spoil(self, word: bytes) -> bytes:
        dice = self._dice
        hostile = dice.choice((dice.choice(NUMBERS).encode(), dice.choice(NAMES).encode(), dice.choice(self._words)))
        text = word.decode("latin-1")
        places = [0, *(at for at, letter in enumerate(text) if letter in PARTS), len(text)]
        if len(places) == 2 or dice.random() < 0.3:
            return hostile
        at = dice.randrange(len(places) - 1)
        start, end = places[at] + (at > 0), places[at + 1]
        return word[:start] + hostile + word[end:]

    def _spoil_list(self, words: list[Any], others: Sequence[Any]) -> None:
        dice = self._dice
        kind = dice.randrange(6)
        if kind == 0:
            dice.shuffle(words)
        elif kind == 1:
            words[dice.randrange(len(words) + 1) :] = []
        elif kind == 2:
            words += [dice.choice(others) for _ in range(dice.choice((1, 2, 300)))]
        elif kind == 3 and words:
            words.insert(dice.randrange(len(words)), dice.choice(words))
        elif kind == 4 and words:
            del words[dice.randrange(len(words))]
        elif words:
            words[dice.randrange(len(words))] = dice.choice(others)


class Players:
    """A connection for each role, of users who may touch one queue only."""

    def __init__(self, server: Server, roles: Sequence[str]) -> None:
        self._plain = {
            role: server.client(username=role, password="PASSWORD", socket_timeout=20) for role in roles
        }  # fmt: skip
        self.roles = roles

    def call(self, role: str, made: Made) -> str:
        """Make a call as a role. Return what the server said."""
        verb = library().verbs[made.verb]
        command = "FCALL_RO" if "no-writes" in verb.flags else "FCALL"
        words = (command, library().function(made.verb), len(made.keys), *made.keys, *made.args)
        try:
            return repr(self._plain[role].execute_command(*words))[:80]
        except redis.ResponseError as error:
            return f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Close the connections."""
        for each in self._plain.values():
            each.close()


class Neighbour:
    """Another queue of the same server, of which each message must come as it was written."""

    def __init__(self, client: Client, plain: redis.Redis) -> None:
        self._queue = client.queue(B.name, streams=2, streams_per_shard=2, journal=1000, result_ttl=600)
        self._plain, self._number = plain, 0
        self._written: dict[str, str] = {}
        self._queue.declare()
        self._queue.set_limits({"limited": Limits(max_in_flight=1)})
        self._queue.write_many([Message("later", "tenant", delay=3600), Message("one", "tenant", unique_key="one")])
        self._held = self._queue.read_many(1, visibility_timeout=3600)

    def write(self) -> None:
        """Write some more."""
        for _ in range(3):
            payload, self._number = f"message {self._number}", self._number + 1
            message_id = self._queue.write(payload, shard_key=f"tenant-{self._number % 5}")
            assert message_id not in self._written, f"{message_id} was told twice"
            self._written[message_id] = payload

    def picture(self) -> list[Any]:
        """All that its keys have."""
        found: Any = self._plain.keys(f"{B.prefix}*")
        keys = sorted(found)
        kinds = self._all([("TYPE", key) for key in keys])
        # The order of a hash in a dump changes by itself.
        looks = [("HGETALL" if kind == b"hash" else "DUMP", key) for kind, key in zip(kinds, keys, strict=True)]
        return list(zip(keys, self._all(looks), strict=True))

    def _all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        with self._plain.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return pipe.execute()

    def check(self) -> None:
        """Read all, and compare it with what was written."""
        came: dict[str, Any] = {}
        while deliveries := self._queue.read_many(100):
            for each in deliveries:
                assert each.message_id not in came
                came[each.message_id] = each.payload
            self._queue.ack_many(deliveries)
        assert came == self._written
        stats = self._queue.stats()
        told = (stats.backlog, stats.in_flight, stats.delayed, stats.dead, stats.vanished, stats.acked)
        assert told == (0, 1, 1, 0, 0, len(came)), told
        self._held[0].ack()


def play(server: Server, made: Sequence[Made], seed: int, number: int, every: int) -> str:
    """Make so many hostile calls, and look at the queues after each *every*. Return what was harmed."""
    dice = random.Random(seed)
    users = Users(server)
    roles = [name for name, role in ROLES.items() if role.verbs]
    with Client.from_url(server.url) as client, server.client() as plain:
        harm = Harm(server, client, plain, users)
        hostile, players = Hostile(dice, made), Players(server, roles)
        recent: list[str] = []
        for at in range(number):
            if at % every == 0:
                epoch = harm.begin()
            call, role = hostile.make(dice.choice(sorted(functions())), epoch), dice.choice(roles)
            before = processor_time(server)
            recent.append(f"{role} {call} -> {players.call(role, call)}")
            if processor_time(server) - before > LONGEST:
                return f"it took the server {processor_time(server) - before} s: {recent[-1]}"
            if at % every == every - 1 and (found := harm.found()):
                return "\n".join([f"after {at + 1} calls: {found}", *recent[-every:]])
        harm.neighbour.check()
        players.close()
    users.remove()
    return ""


def processor_time(server: Server) -> float:
    """Return the seconds for which the thread of the server ran that works on calls."""
    path = Path(f"/proc/{server.pid}/task/{server.pid}/schedstat")
    return int(path.read_text().split()[0]) / 1e9


class Harm:
    """What hostile calls did to the queue that they were for, and to another."""

    def __init__(self, server: Server, client: Client, plain: redis.Redis, users: Users) -> None:
        self.neighbour = Neighbour(client, plain)
        self._plain, self._client, self._urls = plain, client, users
        self._own = client.queue(A.name, streams=STREAMS, streams_per_shard=2, max_schedules=10, result_ttl=600)
        self._before: list[Any] = []

    def begin(self) -> bytes:
        """Note what there is. Return the epoch of the queue that the calls are for, which is there."""
        self._own.state.forget()
        self._own.declare()
        self.neighbour.write()
        self._before = self.neighbour.picture()
        epoch: Any = self._plain.hget(A.meta, "epoch")
        return bytes(epoch)

    def found(self) -> str:
        """Return what was harmed, '' if nothing was."""
        if self.neighbour.picture() != self._before:
            return "another queue is not what it was"
        if not self._plain.exists(A.meta):  # its operator has deleted it
            return ""
        try:
            with Client.from_url(self._urls.url("operator")) as client:
                queue = client.queue(A.name)
                queue.stats()
                queue.peek()
                queue.tenants()
                queue.configure(max_len=0)
                queue.resume()
                self._work()
                queue.purge()
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody cannot go on
            return f"the queue is harmed: {error!r}"
        return ""

    def _work(self) -> None:
        self._own.state.forget()
        written = self._own.write("works", shard_key="a new tenant")
        while self._own.status(written).state != "unknown":
            deliveries = self._own.read_many(100)
            assert deliveries, self._own.status(written)
            self._own.ack_many(deliveries)


@pytest.mark.once
@pytest.mark.runs_in("test", "test-all", "soak")
def test_hostile_calls_of_one_queue_harm_none(server: Server, calls: list[Made], seed: int) -> None:
    """Where one does, the last ones before it are made again, to see which it was."""
    if harm := play(server, calls, seed, LONG if SOAK else SHORT, 100):
        pytest.fail(harm)

"""The straight part of a script does what its general part does: equal replies, equal keys, whatever came before."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shardq import ClosedError, Delivery, LeaseLost, Message, PartlyWritten, Queue, ShardqError
from shardq.ops.settle import ack_call, ack_parts
from shardq.ops.steps import Refused
from shardq.protocol import scripts
from shardq.testing import ManualClock
from tests.conformance.twofold import VERBS, twofold_client
from tests.conftest import Mutate
from tests.selection import SOAK
from tests.servers import Server

pytestmark = pytest.mark.runs_in("test-all")
STEPS = 250
RUNS = int(os.environ.get("SHARDQ_WALK_STEPS", "20_000" if SOAK else "0")) // STEPS or 1
KEYS: tuple[str | bytes, ...] = ("a", "a", "a", "b", "b", "c", "d/1", "d/2", b"\x00\xff", "f f", "g:1", "2")
MANY_KEYS = tuple(f"k{number}" for number in range(120))
SIZES = (1, 2, 3, 5, 12, 12, 33, 100)


class Steps:
    """Random steps of a queue, most of them the common ones. With *rules*, the queue has them and they change."""

    def __init__(self, url: str, rng: random.Random, name: str, *, rules: bool, **settings: Any) -> None:
        self.rng, self.clock = rng, ManualClock()
        self.client, self.driver = twofold_client(url, self.clock)
        one_of = rng.choice
        others: dict[str, Any] = {
            "max_in_flight": one_of((1, 4)), "parents": 1, "max_backlog": one_of((2, 6)), "journal": 1000,
            "max_deliveries": 3, "dedup_window": 150.0, "visibility_timeout": 3.0,
        }  # fmt: skip
        chosen = rng.sample(list(others), one_of((0, 1, 1, 2, 5)) if rules else 0)
        default = {"window": one_of((0, 1, 1, 3)), "max_len": one_of((0, 0, 25, 150))}
        sizes = {"streams": one_of((1, 3, 8, 8, 20)), "streams_per_shard": one_of((1, 2, 6))}
        self.queue = self.client.queue(name, **(sizes | default | {each: others[each] for each in chosen} | settings))
        self.queue.read_many(1)  # creates it
        self.held: list[Delivery] = []
        self.ids: list[str] = []
        self.log: list[str] = [f"{self.queue.settings()}"]
        self.acts: dict[Callable[[], object], float] = {
            self.write: 40, self.read: 40, self.ack: 34, self.write_many: 12, self.read_many: 10, self.ack_many: 12,
            self.write_special: 1, self.read_special: 2, self.nack: 1, self.reject: 0.5, self.extend: 1, self.cancel: 1,
            self.repeat: 2, self.elapse: 1, self.finish: 4, self.damage: 0.7, self.forget: 2, self.purge: 0.2,
        }  # fmt: skip
        if rules:
            self.acts |= {self.configure: 2, self.weigh: 1, self.resize: 1}

    def run(self, steps: int) -> None:
        """Take so many steps, and compare all keys after each."""
        for _ in range(steps):
            (act,) = self.rng.choices(list(self.acts), list(self.acts.values()))
            self.log.append(act.__name__)
            self.clock.advance(self.rng.choice((0, 0.0004, 0.001, 0.02)))
            try:
                act()
            except ClosedError:
                raise
            except (ShardqError, Refused) as error:  # a damaged account may be refused: then by both forms
                self.log[-1] += f": {type(error).__name__}"
            if differing := self.driver.differing():
                raise AssertionError("\n".join([*self.log, differing]))

    def message(self) -> tuple[bytes, str | bytes]:
        return self.rng.choice((b"", b"x", b"y" * 90)), self.rng.choice(KEYS)

    def messages(self, count: int) -> list[tuple[bytes, str | bytes]]:
        """A batch: few shard keys with many messages, many with one each, or both."""
        messages, few = [self.message() for _ in range(count)], self.rng.choice((0.0, 0.0, 0.1, 0.5, 1.0))
        others = self.rng.sample(MANY_KEYS, count)
        return [(payload, key if self.rng.random() < few else others[at]) for at, (payload, key) in enumerate(messages)]

    def write(self) -> None:
        payload, shard_key = self.message()
        self.ids.append(self.queue.write(payload, shard_key=shard_key))

    def write_special(self) -> None:
        payload, shard_key = self.message()
        special: dict[str, Any] = self.rng.choice(
            ({"delay": 5.0}, {"delay": 0.05}, {"deadline": 4.0}, {"dedup_key": "once"}, {"headers": {"a": "b"}})
        )
        self.ids.append(self.queue.write(payload, shard_key=shard_key, **special))

    def write_many(self) -> None:
        try:
            self.ids += self.queue.write_many([Message(*each) for each in self.messages(self.rng.choice(SIZES))])
        except PartlyWritten as error:
            self.ids += [each for each in error.results if isinstance(each, str)]
            raise

    def read(self) -> None:
        self.held.append(self.queue.read())

    def read_special(self) -> None:
        special: dict[str, Any] = self.rng.choice(
            ({"block": 0.3}, {"visibility_timeout": 2.0}, {"visibility_timeout": 60.0}, {"prefer_stream": 0})
        )
        self.held.append(self.queue.read(**special))

    def read_many(self) -> None:
        self.held += self.queue.read_many(self.rng.choice((1, 2, 7, 40, 100)))

    def finish(self) -> None:
        """Work on all that there is, so that what comes next is the common case again."""
        while batch := self.queue.read_many(50):
            self.held += batch
        self.queue.ack_many(self.held)
        self.held = self.queue.read_many(1)  # what a cap held back

    def pick(self) -> Delivery:
        if not self.held:
            raise LeaseLost("none is held")
        delivery = self.rng.choice(self.held)
        if self.rng.random() < 0.9:  # else it is settled once more
            self.held.remove(delivery)
        return delivery

    def ack(self) -> None:
        self.pick().ack()

    def ack_many(self) -> None:
        self.queue.ack_many([self.pick() for _ in range(min(self.rng.choice(SIZES), len(self.held)))])

    def nack(self) -> None:
        self.pick().nack(delay=self.rng.choice((0, 0, 3)), error=self.rng.choice(("", "it failed")))

    def reject(self) -> None:
        self.pick().reject("no")

    def extend(self) -> None:
        self.pick().extend(self.rng.choice((0.05, 8.0, 90.0)))

    def cancel(self) -> None:
        if self.ids:
            self.queue.cancel(self.rng.choice(self.ids))

    def repeat(self) -> None:
        """A call that arrives a second time, at once or late."""
        verb = self.rng.choice(VERBS)
        if verb in self.driver.last and verb != "read":  # nobody sends a read twice
            self.driver._evaluated(self.driver.last[verb])

    def elapse(self) -> None:
        self.clock.advance(self.rng.choice((0.1, 0.1, 3.5, 3.5, 31.0, 200.0)))

    def configure(self) -> None:
        self.queue.configure(**self.rng.choice(
            ({"window": 0}, {"window": 1}, {"window": 2}, {"max_in_flight": 3}, {"max_in_flight": 0}, {"max_len": 30},
             {"max_len": 0}, {"journal": 100}, {"journal": 0}, {"max_backlog": 5}, {"max_backlog": 0})
        ))  # fmt: skip

    def weigh(self) -> None:
        self.queue.set_weights({self.rng.choice(KEYS): self.rng.choice((1, 1, 3))})

    def resize(self) -> None:
        self.queue.resize(self.rng.choice((1, 3, 8, 16)))

    def forget(self) -> None:
        """What another client has Redis remember ends soon: a bulk offset, a producer sequence or a dedup key."""
        keys, ends = self.queue.state.keys, int(self.clock.wall() * 1000) + self.rng.choice((0, 1, 100))
        index, field, text = self.rng.choice((
            (keys.bulk_offsets, "o:part", "7|1|"), (keys.producers, "p:other", "7|1|1|0"),
            (keys.dedup_index, "k:other", "1-1-0"),
        ))  # fmt: skip
        self.driver.both("HSET", keys.dedup, field, f"{ends}|{text}")
        self.driver.both("ZADD", index, ends, field)

    def purge(self) -> None:
        self.queue.purge()

    def damage(self) -> None:
        """Another program writes into a stream, deletes from it, or spoils an account; or the clock was ahead."""
        keys, at = self.queue.state.keys, self.rng.randrange(self.queue.state.streams)
        stream = keys.stream(at)
        account: Any = self.driver.databases[0].hget(keys.accounts, "t:a")
        entries: Any = self.driver.databases[0].xrange(stream)
        match self.rng.randrange(5):
            case 0 if entries:
                self.driver.both("XDEL", stream, self.rng.choice(entries)[0])
            case 1:
                seconds, number = int(self.clock.wall() * 1000), self.rng.randrange(10**6)
                newest: Any = self.driver.databases[0].xinfo_stream(stream)
                if newest["last-generated-id"] < f"{seconds}-{number}".encode():
                    self.driver.both("XADD", stream, f"{seconds}-{number}", "foreign", "entry")
            case 2:
                active, held = (self.driver.of(keys.accounts).get(b"sum") or b"0 0").decode().split(maxsplit=1)
                self.driver.both("HSET", keys.accounts, "sum", f"{int(active) + self.rng.randint(1, 9)} {held}")
            case 3:
                self.driver.both("HSET", keys.meta, "ms", int(self.clock.wall() * 1000) + 500)
            case _ if account and not account.startswith(b"0 0"):
                self.driver.both("HSET", keys.accounts, "t:a", self.rng.choice(("1 0", "1 2", "2 0 +1", "3 1", "12 0")))


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.once
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("rules", [False, True])
def test_a_straight_part_does_what_the_general_part_does(
    server: Server, queue_name: str, seed: int, part: int, rules: bool
) -> None:
    """Only the ids of notifications and dead letters may differ, which are by the server's own clock."""
    taken: Counter[str] = Counter()
    for number in range(RUNS):
        server.run("FLUSHALL")
        steps = Steps(server.url, random.Random(f"{seed}.{number}"), queue_name, rules=rules)
        with steps.client:
            steps.run(STEPS)
            taken += steps.driver.straight
    print(taken)
    many = taken["write many"] + taken["ack many"]
    assert rules or taken.total() > RUNS * STEPS / 10, taken  # or this test would be about nothing
    assert rules or many > RUNS * STEPS / 50, taken


def read_in_batches(url: str, queue_name: str, rng: random.Random, window: int, queues: int) -> Counter[str]:
    """Messages of few and of many shard keys, in streams of which a reader knows none, some, or all.

    Return how many calls of each verb ended in the straight part.
    """
    clock = ManualClock()
    client, driver = twofold_client(url, clock)
    with client:
        for number in range(queues):
            for database in driver.databases:
                database.flushdb()
            streams, width = rng.choice((1, 3, 8, 9, 20, 64)), rng.choice((1, 2, 6))
            queue = client.queue(f"{queue_name}{number}", streams=streams, streams_per_shard=width, window=window)
            queue.read_many(1)
            for _ in range(20):
                some, count = rng.choice((KEYS, MANY_KEYS[:9], MANY_KEYS)), rng.choice((1, 5, 40, 150))
                keys = rng.choice((MANY_KEYS, rng.choices(some, k=count)))  # of many shard keys one each, or any
                queue.write_many([Message(b"", key) for key in keys] + [Message(b"", "flood")] * rng.choice((0, 9)))
                match rng.randrange(8):
                    case 0:
                        queue.write_many([Message(b"", "short", deadline=0.1), Message(b"", "b")])
                    case 1:
                        queue.read().nack()
                    case 2:  # another program adds an entry
                        driver.both("XADD", queue.state.keys.stream(0), f"{int(clock.wall() * 1000)}-999999", "x", "y")
                clock.advance(0.2)
                for _ in range(rng.choice((1, 1, 3))):
                    queue.ack_many(queue.read_many(rng.choice((2, 3, 10, 16, 40, 100, 100))))
                    assert driver.differing() == ""
                while rng.random() < 0.5 and queue.read_many(90):
                    assert driver.differing() == ""
    return driver.straight


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(900)
@pytest.mark.once
@pytest.mark.parametrize("window", [0, 1, 3])
def test_a_read_of_many_does_what_the_general_part_does(
    server: Server, queue_name: str, rng: random.Random, window: int
) -> None:
    server.run("FLUSHALL")
    queues = 4 + RUNS // 4
    taken = read_in_batches(server.url, queue_name, rng, window, queues)
    print(taken)
    assert taken["read many"] > 3 * queues, taken


@pytest.mark.once
@pytest.mark.parametrize(
    "rule", [{"parents": 1}, {"max_in_flight": 3}, {"max_backlog": 2}, {"journal": 100}, {"max_len": 9}, {}], ids=str
)
def test_each_rule_alone_is_for_the_general_part(
    server: Server, queue_name: str, rng: random.Random, rule: dict[str, int]
) -> None:
    """Without a rule, shard keys have weights."""
    server.run("FLUSHALL")
    steps = Steps(server.url, rng, queue_name, rules=False, **({"window": 3, "max_len": 0} | rule))
    with steps.client:
        if not rule:
            steps.queue.set_weights({"a": 3})
        steps.run(80)


SUMS = (None, "0 0", "1 0", "2 3", "7 0", "8 2", "9 0", "20 1", "-1 0")
ACCOUNTS = (None, "0 0", "0 1", "1 0", "1 1", "2 0", "2 0 +1", "3 0", "3 1", "7 0", "8 0")
BATCHES = ("a", "ab", "aa", "aba", "ba", "aaaabbb", "abcdefghi", "aaaaaaaaa")


@pytest.mark.once
@pytest.mark.parametrize("window", [0, 1, 3])
def test_a_write_at_the_bounds_of_the_window_does_what_the_general_part_does(
    server: Server, queue_name: str, window: int
) -> None:
    server.run("FLUSHALL")
    client, driver = twofold_client(server.url, ManualClock())
    with client:
        queue = client.queue(queue_name, streams=3, streams_per_shard=2, window=window)
        queue.read_many(1)
        accounts = queue.state.keys.accounts
        for total, account, batch in itertools.product(SUMS, ACCOUNTS, BATCHES):
            driver.both("DEL", accounts)
            fields = {"": "", "sum": total, "t:a": account}
            driver.both("HSET", accounts, *(x for item in fields.items() if item[1] is not None for x in item))
            with contextlib.suppress(ShardqError, Refused):  # damaged accounts may be refused: then by both forms
                queue.write_many([Message(b"", key) for key in batch])
            assert driver.of(accounts) == driver.of(accounts, 1), (total, account, batch)
        assert driver.differing() == ""
        assert driver.straight["write"] > 20
        assert driver.straight["write many"] > 100


KINDS = ("plain", "again", "delayed", "held back", "lost", "acked", "cancelled")


def deliveries_of(queue: Queue, clock: ManualClock, kinds: tuple[str, ...]) -> list[Delivery]:
    """Two plain deliveries in flight, and one of each of these kinds."""
    queue.write_many([Message(b"", f"plain {number}") for number in range(2)])
    deliveries = queue.read_many(2)
    for kind in kinds:
        if kind == "held back":  # the last ones are beyond the window: they come from the store of bodies
            queue.write_many([Message(b"", kind) for _ in range(10)])
            deliveries.append(queue.read_many(10)[-1])
            continue
        message_id = queue.write(b"", shard_key=kind, delay=1.0 if kind == "delayed" else 0.0)
        clock.advance(2.0)
        delivery = queue.read(visibility_timeout=0.05 if kind == "lost" else None)
        if kind == "again":
            delivery.nack()
            delivery = queue.read()
        elif kind == "acked":
            delivery.ack()
        elif kind == "cancelled":
            queue.cancel(message_id)
        deliveries.append(delivery)
    clock.advance(0.06)
    return deliveries


@pytest.mark.once
@pytest.mark.parametrize("rules", [{}, {"window": 0}, {"max_in_flight": 50}, {"journal": 100}], ids=str)
def test_an_ack_of_any_kinds_does_what_the_general_part_does(
    server: Server, queue_name: str, rules: dict[str, Any]
) -> None:
    server.run("FLUSHALL")
    clock = ManualClock()
    client, driver = twofold_client(server.url, clock)
    groups = [kinds for size in range(3) for kinds in itertools.combinations(KINDS, size)]
    with client:
        for at, kinds in enumerate(groups):
            queue = client.queue(f"{queue_name}{at}", streams=3, streams_per_shard=2, **rules)
            deliveries = deliveries_of(queue, clock, kinds)
            for some in (deliveries[1:], deliveries[:1] + deliveries[-1:]):
                queue.ack_many(some)
                assert driver.differing() == "", kinds
            server.run("FLUSHALL")
        assert driver.straight["ack many"] > 0 or rules.keys() - {"window"}


@pytest.mark.once
@pytest.mark.parametrize("count", [1, 3])
def test_an_ack_of_a_redriven_message_forgets_where_it_lay(server: Server, queue_name: str, count: int) -> None:
    """It names the original id, which only the general part removes from `:moved`."""
    server.run("FLUSHALL")
    client, driver = twofold_client(server.url, ManualClock())
    with client:
        queue = client.queue(queue_name, streams=3, streams_per_shard=2)
        queue.write_many([Message(b"", f"k{number}") for number in range(count)])
        received = [delivery.received for delivery in queue.read_many(count)]
        driver.both("HSET", queue.state.keys.moved, "1-1-0", "0:1-2")
        (part,) = ack_parts([msgspec.structs.replace(received[0], origin="1-1-0"), *received[1:]])
        driver._evaluated(ack_call(queue.state, part))
        assert b"1-1-0" not in driver.of(queue.state.keys.moved)
        assert driver.differing() == ""


def read_singly(url: str, queue_name: str) -> None:
    """Many shard keys share streams, so what is let in for one of them often goes to another stream, an empty one."""
    client, driver = twofold_client(url, ManualClock())
    with client:
        queue = client.queue(queue_name, streams=16, streams_per_shard=2)
        queue.write_many([(b"", f"k{number % 30}") for number in range(90)])
        for _ in range(90):
            queue.read()
            assert driver.differing() == ""
        assert queue.read_many(1) == []


@pytest.mark.once
def test_what_is_let_in_by_single_reads_goes_where_the_general_part_puts_it(server: Server, queue_name: str) -> None:
    server.run("FLUSHALL")
    read_singly(server.url, queue_name)


MUTANTS = [
    ("write", "redis.call('HSET', lens, place, fewest + 1)", "redis.call('HSET', lens, place, fewest)"),
    ("modules/admission", "to * POSITIONS + admitted.n", "to * POSITIONS"),
    ("modules/admission", "behind - 1, 'sum'", "behind, 'sum'"),
    ("modules/admission", "length == 0 then redis", "length == 9 then redis"),
    ("write", "if other_length < fewest then", "if other_length <= fewest then"),
    ("write", "prefix .. first[to] - 1", "prefix .. first[to]"),
    ("read", "% 2045 + 1", "% 2045"),
    ("read", "i <= over and share + 1 or share", "share"),
    ("read", "score = bucket * SPAN + ends\n              scores", "score = bucket * SPAN\n              scores"),
    ("read", "count <= 64 or tonumber(active) <= 50", "count <= 64 or true"),
    ("read", "math.max(0, active - #gone) ..", "active .."),
    ("read", "(last + 1) % 4097", "last % 4097"),
    ("read", "if length == 0 then emptied", "if length == 9 then emptied"),
    ("read", "'LIMIT', 0, most_hints - #hints", "'LIMIT', 0, 0"),
    ("modules/admission", "offset = read.turn, (read.turn + 1) % 4097", "offset = read.turn, read.turn"),
    ("ack", "(acked or 0) + 1", "(acked or 0)"),
    ("ack", "(acked or 0) + count", "(acked or 0) + 1"),
    ("ack", "is_common and scores[i] and scores[i] % SPAN > now", "is_common and scores[i] and scores[i] > now"),
]
"""A script, a right text in it, and a wrong one that is found at once."""

RARE_MUTANTS = [
    ("read", "#entries == math.min(length, most)", "#entries >= math.min(length, most)"),
    ("write", "behind == '0' and places - shared or 0", "behind == '0' and places - shared + 9 or 0"),
    ("write", "'1 0', 'sum', active + 1", "'1 0', 'sum', active"),
    ("write", "behind + 1, 'sum'", "behind, 'sum'"),
    ("write", "has_room = taken < places", "has_room = taken <= places"),
    ("write", "shared[index] = taken + 1", "shared[index] = 1"),
    ("write", "if taken == 0 then active = active + 1 end", "active = active + 1"),
    ("write", "before % 32 < count", "false"),
    ("read", "'h' .. turn, id)", "'h' .. turn, cursor or '0-0')"),
    ("read", "if left == 1 then", "if left == 9 then"),
    ("read", "shared - 1 .. ' 0'", "shared .. ' 0'"),
    ("read", "#left > 0 do", "#left > 0 and found == 0 do"),
    ("read", "is_common and fields[5] ~= 'm'", "is_common"),
    ("read", "is_common and remaining >= 0", "is_common"),
    ("read", "remaining .. ' 0'", "remaining + 1 .. ' 0'"),
    ("modules/admission", "if not (active and shared) then return nil end", "shared = shared or 1"),
    ("ack", "next_stream + 1 end", "next_stream end"),
]
"""Others, which take up to minutes to be found."""


def test_the_right_texts_of_all_mutants_are_there() -> None:
    """So that those which only `make soak` runs change with their scripts, too."""
    for verb, right, _ in MUTANTS + RARE_MUTANTS:
        assert (scripts.root() / f"{verb}.lua").read_text().count(right) == 1, (verb, right)


@pytest.mark.once
@pytest.mark.parametrize(
    ("verb", "right", "wrong"),
    [*MUTANTS, *(pytest.param(*mutant, marks=pytest.mark.runs_in("soak")) for mutant in RARE_MUTANTS)],
)
def test_a_wrong_straight_part_is_found(
    server: Server, queue_name: str, rng: random.Random, mutate: Mutate, verb: str, right: str, wrong: str
) -> None:
    mutate(verb, right, wrong)
    with pytest.raises(AssertionError):  # noqa: PT012
        server.run("FLUSHALL")
        read_singly(server.url, queue_name)
        for number in range(40):
            if verb == "read":
                read_in_batches(server.url, f"{queue_name}{number}-", rng, 1, 1)
            server.run("FLUSHALL")
            steps = Steps(server.url, rng, queue_name, rules=False)
            with steps.client:
                steps.run(STEPS)

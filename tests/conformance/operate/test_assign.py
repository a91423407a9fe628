"""assign, unassign, assignment: any two named shard keys share few streams, and all clients follow."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from shardq import BackendError, BackendTimeout, ConfigError, Queue
from shardq.assignment import Assignment, capacity
from shardq.ops.operate import assign as assigning
from shardq.sharding import overlap, shard
from shardq.testing import ManualClock
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World, drained

NAMES = [f"acct-{number}" for number in range(12)]


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue of 16 streams, 4 to a shard, that exists. Without a window all that is written goes into the streams."""
    queue = open_queue(streams=16, streams_per_shard=4, window=0)
    queue.read_many(1)
    return queue


@pytest.fixture
def other(open_queue: OpenQueue, world: World, queue: Queue) -> Queue:
    """The same queue in another client, which has it open."""
    other = open_queue(by=world.client())
    other.write("before", shard_key=NAMES[0])
    other.read().ack()
    return other


def most_shared(made: Assignment) -> int:
    """How many streams two of its shards share at most."""
    return max((overlap(a, b) for (_, a), (_, b) in combinations(made.items(), 2)), default=0)


def streams_of(queue: Queue, name: str | bytes, count: int = 8) -> set[int]:
    """Where messages of that shard key come to lie, in a queue that is empty then and afterwards."""
    ids = queue.write_many([(number, name) for number in range(count)])
    found = drained(queue)
    assert {each.message_id for each in found} == {*ids}
    queue.ack_many(found)
    return {int(each.rpartition("-")[2]) for each in ids}


def test_nobody_is_assigned_at_first(queue: Queue) -> None:
    made = queue.assignment()
    assert (len(made), made.max_overlap, made.width, made.streams) == (0, 1, 4, 16)
    assert queue.state.shard("acct-1") == shard("acct-1", 16, 4)


@pytest.mark.everywhere
def test_messages_go_to_the_assigned_streams_also_those_of_clients_that_were_there_before(
    queue: Queue, other: Queue, open_queue: OpenQueue, world: World
) -> None:
    made = queue.assign(NAMES)
    assert len(made) == 12
    assert most_shared(made) <= 1
    moved = [name for name in NAMES if made[name] != shard(name, 16, 4)]
    assert moved
    for each in (queue, other, open_queue(by=world.client())):
        assert {name: streams_of(each, name) for name in moved} == {name: set(made[name]) for name in moved}
    assert streams_of(other, "somebody") == set(shard("somebody", 16, 4))
    assert dict(other.assignment().items()) == dict(made.items())
    assert world.census(queue).problems() == []


def test_a_later_assignment_moves_nobody_and_a_repeated_one_changes_nothing(queue: Queue, other: Queue) -> None:
    first = queue.assign(NAMES[:6])
    epoch = queue.state.epoch
    again = queue.assign([*NAMES[:6], *NAMES[:2]])
    assert queue.state.epoch == epoch
    assert dict(again.items()) == dict(first.items())
    both = other.assign(NAMES[4:])
    assert {name: both[name] for name in NAMES[:6]} == {name: first[name] for name in NAMES[:6]}
    assert most_shared(both) <= 1
    assert [name for name in NAMES if name not in queue.assignment()] == []


def test_names_are_taken_as_messages_name_them(queue: Queue, other: Queue) -> None:
    """Text is its UTF-8; bytes, colons, zero bytes and long names are as good as others."""
    names: list[str | bytes] = ["über", b"\xff\x00raw", "a:b|c,d", "x" * 1024, "acct-7/user-9"]
    made = queue.assign(names)
    assert len(made) == 5
    assert all(streams_of(other, name) == set(made[name]) for name in names)
    assert queue.assign([b"\xc3\xbcber"])["über"] == made["über"]


def test_all_names_get_shards_or_none_does(queue: Queue, other: Queue) -> None:
    before = queue.assign(NAMES[:3])
    epoch = queue.state.epoch
    with pytest.raises(ConfigError, match="no room for tenant"):
        queue.assign([f"more-{number}" for number in range(capacity(16, 4, 1))])
    assert dict(other.assignment().items()) == dict(before.items())
    other.assign(NAMES[:3])  # it has them already, and looks the queue up
    assert other.state.epoch == epoch


def test_what_is_unassigned_is_dealt_again(queue: Queue, other: Queue) -> None:
    made = queue.assign(NAMES)
    left = other.unassign([*NAMES[:11], "nobody"])
    assert dict(left.items()) == {NAMES[11].encode(): made[NAMES[11]]}
    assert all(streams_of(queue, name) == set(shard(name, 16, 4)) for name in NAMES[:11])
    assert streams_of(queue, NAMES[11]) == set(made[NAMES[11]])
    assert len(queue.unassign()) == len(queue.unassign()) == len(other.assignment()) == 0
    assert queue.assign(["a"], max_overlap=0).max_overlap == 0


def test_another_overlap_is_taken_if_those_who_have_shards_keep_it(queue: Queue) -> None:
    made = queue.assign(NAMES[:9])
    assert most_shared(made) == 1
    with pytest.raises(ConfigError, match="shares more than 0 streams"):
        queue.assign(["new"], max_overlap=0)
    assert queue.assign([], max_overlap=2).max_overlap == 2
    assert queue.assignment().max_overlap == 2
    with pytest.raises(ConfigError, match="max_overlap must be a whole number from 0 to 3"):
        queue.assign(["new"], max_overlap=4)


def test_growing_keeps_the_shards_and_makes_room(queue: Queue, other: Queue) -> None:
    made = queue.assign(NAMES)
    assert queue.resize(40) == (40, 40)
    assert all(streams_of(other, name) == set(made[name]) for name in NAMES)
    more = other.assign([f"more-{number}" for number in range(30)])
    assert len(more) == 42
    assert most_shared(more) <= 1
    assert {name: more[name] for name in NAMES} == {name: made[name] for name in NAMES}


def test_shrinking_below_a_shard_is_refused_with_what_to_do(queue: Queue, other: Queue, world: World) -> None:
    made = queue.assign(NAMES[:2])
    top = max(stream for _, streams in made.items() for stream in streams)
    with pytest.raises(ConfigError, match=rf"cannot shrink to {top} streams: .*'acct-.*unassign\(\) them, resize\(\)"):
        other.resize(top)
    assert (other.stats().wanted, dict(other.assignment().items())) == (16, dict(made.items()))
    assert queue.resize(top + 1)[1] == top + 1
    other.unassign(NAMES)
    assert queue.resize(4)[1] == 4
    assert other.assign(NAMES[:1])[NAMES[0]]
    assert streams_of(other, NAMES[0]) == {0, 1, 2, 3}
    assert world.census(queue).problems() == []


def test_shards_keep_their_width_when_shards_get_another(queue: Queue, other: Queue) -> None:
    made = queue.assign(NAMES[:4])
    queue.configure(streams_per_shard=2)
    assert streams_of(other, NAMES[0]) == set(made[NAMES[0]])
    assert len(other.assign(NAMES[:5])[NAMES[4]]) == 4
    other.unassign()
    assert len(other.assign(NAMES[:1])[NAMES[0]]) == 2


def test_delayed_and_redriven_messages_keep_to_the_shard(queue: Queue, other: Queue, world: World) -> None:
    name = next(name for name in NAMES if not set(queue.assign(NAMES)[name]) <= set(shard(name, 16, 4)))
    streams = set(queue.assignment()[name])
    other.write_many([(number, name) for number in range(8)])
    for delivery in drained(other):
        delivery.reject("poison")
    assert other.redrive(other.dead()) == 8
    other.write("late", shard_key=name, delay=60)
    world.elapse(other, 61)
    chosen = [stream for stream, count in world.census(queue).per_stream.items() if count]
    assert set(chosen) <= streams
    assert len(drained(queue)) == 9


def test_a_queue_that_is_made_anew_has_no_assignment(queue: Queue, other: Queue, world: World) -> None:
    """Also for a client that knew the old one's, and though it is assigned once, as the old one was."""
    queue.assign(NAMES)
    assert streams_of(other, NAMES[3])
    for key in world.stored():
        world.raw.delete(key)
    queue.read_many(1)
    queue.assign(["only"])
    assert streams_of(other, NAMES[3]) == set(shard(NAMES[3], 16, 4))
    assert len(other.assignment()) == 1


@pytest.mark.once
@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("acct", "names must be a list of shard keys"), (7, "names must be a list"), ([""], "must not be empty"),
        ([1], "must be str or bytes"), (["a", "x" * 1025], "at most 1024 bytes"),
        ([f"{n}" for n in range(10_001)], "10,000"),
    ],
)  # fmt: skip
def test_bad_names_are_refused(queue: Queue, names: Any, told: str) -> None:
    for act in (queue.assign, queue.unassign):
        with pytest.raises(ConfigError, match=told):
            act(names)
    assert len(queue.assignment()) == 0


def test_what_does_not_exist_has_no_assignment(open_queue: OpenQueue, world: World) -> None:
    missing = open_queue()
    acts: list[Callable[[], object]] = [missing.assignment, missing.unassign, lambda: missing.assign(["a"])]
    for act in acts:
        with pytest.raises(ConfigError, match="there is no queue"):
            act()
    assert world.stored() == set()


@pytest.mark.once
def test_an_assignment_is_bounded(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "MAX_ASSIGNED", 5)
    queue.assign(NAMES[:4])
    with pytest.raises(ConfigError, match="at most 5 shard keys"):
        queue.assign(NAMES[4:6])
    assert len(queue.assign(NAMES[4:5])) == 5


@pytest.mark.once
def test_a_search_that_takes_too_long_ends_at_the_timeout(
    queue: Queue, world: World, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard key takes a second by the client's clock: how fast this machine is does not matter."""
    clock, add = ManualClock(), Assignment.add

    def slowly(self: Assignment, key: str | bytes) -> object:
        clock.advance(1)
        return add(self, key)

    queue.resize(64)
    patient = world.client(clock=clock, timeout=60).queue(queue_name, streams=4)
    monkeypatch.setattr(Assignment, "add", slowly)
    with pytest.raises(BackendTimeout, match=r"\(6 have one\); nothing was changed"):
        patient.assign([f"name-{number}" for number in range(20)], timeout=5.5)
    assert len(queue.assignment()) == 0


def test_what_something_else_wrote_there_is_left_out_and_told(
    queue: Queue, other: Queue, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A shard beyond the streams would lose messages: such a shard key is dealt its streams."""
    made = queue.assign(NAMES[:2])
    rubbish = {"a": "99", "b": "1,1", "c": "x", "d": "", "e": b"\xff", "f": "16,2,3,4", NAMES[0]: "4095,1,2,3"}
    for name, text in rubbish.items():
        world.raw.hset(queue.state.keys.assigned, name, text)
    world.raw.hset(queue.state.keys.meta, "assigned", "1")  # as if it had changed
    queue.configure(max_len=0)
    with caplog.at_level(logging.WARNING, "shardq"):
        assert all(streams_of(other, name) == set(shard(name, 16, 4)) for name in rubbish)
    assert "7 entries of its assignment are not shards" in caplog.text
    assert dict(other.assignment().items()) == {NAMES[1].encode(): made[NAMES[1]]}
    assert len(other.assign([*rubbish])) == 8
    assert len(queue.assignment()) == 8


def test_a_key_of_another_type_is_told(queue: Queue, world: World) -> None:
    queue.assign(["b"])
    world.raw.delete(queue.state.keys.assigned)
    world.raw.set(queue.state.keys.assigned, "something else")
    acts: list[Callable[[], object]] = [queue.assignment, queue.unassign, lambda: queue.assign(["a"])]
    for act in acts:
        with pytest.raises(BackendError, match="another type"):
            act()


def test_an_assigner_that_is_overtaken_begins_again(
    queue: Queue, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it chooses, somebody gives the shard that it would choose to a rival."""
    add, rivals = Assignment.add, ["rival"]

    def overtaken(made: Assignment, name: bytes) -> tuple[int, ...]:
        if rivals:
            streams = ",".join(map(str, shard(name, 16, 4)))
            world.raw.hset(queue.state.keys.assigned, mapping={rivals.pop(): streams, "": "1|4"})
            world.raw.hset(
                queue.state.keys.meta,
                mapping={"epoch": "3.rivals", "rules": "3.rivals ", "assigned": "3.rivals", "reach": 16},
            )
        return add(made, name)

    monkeypatch.setattr(Assignment, "add", overtaken)
    made = queue.assign(["late"])
    assert made["rival"] == shard("late", 16, 4)
    assert overlap(made["late"], made["rival"]) <= 1
    assert dict(queue.assignment().items()) == dict(made.items())


class Operators:
    """Several that assign, take back and resize at once, each on a thread and a client of its own."""

    def __init__(self, open_own: Callable[[], Queue]) -> None:
        self._open = open_own
        self.failures: list[BaseException] = []

    def run(self, *works: Callable[[Queue], None]) -> None:
        """Run all of them to their ends."""
        threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)

    def _guarded(self, work: Callable[[Queue], None]) -> None:
        try:
            work(self._open())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.failures.append(error)


def test_concurrent_assigners_agree(open_queue: OpenQueue, queue: Queue, world: World) -> None:
    """Whoever else assigns, grows or writes: all names have shards in the end, and no two share too many streams."""
    names = [f"n{number}" for number in range(24)]
    ids: list[str] = []

    def assign(mine: list[str]) -> Callable[[Queue], None]:
        def work(own: Queue) -> None:
            for at in range(0, len(mine), 2):
                own.assign(mine[at : at + 2])

        return work

    def write(own: Queue) -> None:
        for number in range(15):
            ids.extend(own.write_many([(number, name) for name in names]))

    def resize(own: Queue) -> None:
        for streams in (40, 64, 72):
            own.resize(streams)

    queue.resize(32)
    operators = Operators(lambda: open_queue(by=world.client()))
    operators.run(assign(names[:12]), assign(names[12:]), assign(names[6:18]), resize, write)
    assert operators.failures == []
    made = queue.assignment()
    assert [name for name in names if name not in made] == []
    assert most_shared(made) <= 1
    assert sorted(each.message_id for each in drained(queue)) == sorted(ids)
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_shards_are_sound_after_any_mix_of_changes(
    open_queue: OpenQueue, queue: Queue, other: Queue, world: World, rng: random.Random
) -> None:
    """Against a naive picture: who was named has one shard for good, within the streams, and writes keep to it."""
    picture: dict[str, tuple[int, ...]] = {}
    for _ in range(60):
        own = rng.choice([queue, other])
        names = rng.sample([f"n{number}" for number in range(40)], rng.randint(1, 4))
        step = rng.choice(["assign", "assign", "unassign", "resize", "write", "write"])
        before = own.stats().wanted
        if step == "assign":
            with contextlib.suppress(ConfigError):  # no room: the picture says that nothing changed
                made = own.assign(names)
                picture |= {name: made[name] for name in names if name not in picture}
        elif step == "unassign":
            own.unassign(names)
            picture = {name: streams for name, streams in picture.items() if name not in names}
        elif step == "resize":
            wanted, reach = rng.randint(6, 48), max((max(streams) + 1 for streams in picture.values()), default=0)
            if wanted < reach:
                with pytest.raises(ConfigError, match="cannot shrink"):
                    own.resize(wanted)
            else:
                before = own.resize(wanted)[1]
        else:
            for name in names:
                assert streams_of(own, name) == set(picture.get(name) or shard(name, before, 4))
        found = own.assignment()
        assert {key.decode(): streams for key, streams in found.items()} == picture
        assert most_shared(found) <= 1
        assert all(len(set(streams)) == 4 and max(streams) < found.streams for streams in picture.values())
    drained(queue)
    assert world.census(queue).problems() == []

"""A schedule lives, and fires, in the home of its shard key; homes move, and no slot is written twice or missed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shardq import BackendTimeout, ConfigError, Queue, QueueFull, QueueMissing, ScheduleNotFound
from shardq.model.call import Call
from shardq.model.schedule import FixedSchedule
from shardq.model.timetable import timetable
from shardq.ops.queue.state import QueueState
from shardq.ops.schedules import stored
from shardq.ops.schedules.attend import Attendant
from shardq.partitions import resize
from shardq.partitions.homes import home
from shardq.partitions.moving import move_home
from shardq.protocol.ids import split
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = {home(f"tenant-{number}", PARTITIONS): f"tenant-{number}" for number in range(20)}
CALL: Call[Any] = Call("app.tasks.report", {"days": 1})
MOVES = next(f"mover-{n}" for n in range(99) if home(f"mover-{n}", 3) == 2 and home(f"mover-{n}", 2) == 0)
"""A shard key whose home is another one once two partitions are written to."""


def fixed(*tenants: str) -> list[FixedSchedule]:
    """Schedules of a program, due each second, for these."""
    every = timetable(None, "UTC", 1)
    return [FixedSchedule(f"of-{each}", f"the schedule of {each}", every, each, "all", CALL) for each in tenants]


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """The test's queue, with partitions, a journal and schedules."""
    queue = open_queue(partitions=PARTITIONS, streams=8, streams_per_shard=2, max_schedules=30, journal=30_000)
    queue.declare()
    return queue


def attend(queue: Queue, *programs: FixedSchedule) -> None:
    """Do what a worker does once a minute."""
    queue.client.run(Attendant(queue.state, queue.client.codecs, programs).attend(5.0))


def write_to(queue: Queue, written: int) -> None:
    """Let so many partitions be written to, as far as this client knows."""
    queue.state.parts.map = replace(queue.state.parts.map, written=written)


def slots(queue: Queue, tenant: str) -> list[float]:
    """The times for which calls of a tenant were written."""
    events = queue.journal(10_000).events
    return [each.due for each in events if each.kind == "written" and each.shard_key == tenant and each.due]


def stored_in(queue: Queue) -> list[list[str]]:
    """The names of what each partition stores."""
    listed = queue.client.run(queue.state.parts.everywhere(lambda state: stored.listed(state, 5.0)))
    return [[each.name for each in some] for some in listed]


def test_what_users_store_is_where_their_messages_are(queue: Queue) -> None:
    for number, tenant in TENANTS.items():
        queue.schedules.add(f"s{number}", CALL, shard_key=tenant, every=60)
    assert stored_in(queue) == [["s0"], ["s1"], ["s2"]]
    assert [(each.name, each.shard_key) for each in queue.schedules.list()] == [
        (f"s{number}", TENANTS[number]) for number in range(PARTITIONS)
    ]
    attend(queue)
    for number, each in enumerate(queue.schedules.list()):
        assert each.runs
        assert {split(run.message_id)[1] for run in each.runs} == {number}
        assert {run.slot for run in each.runs} <= {*slots(queue, TENANTS[number])}


def test_one_that_becomes_another_shard_keys_is_stored_once(queue: Queue) -> None:
    queue.schedules.add("one", CALL, shard_key=TENANTS[2], every=60)
    queue.schedules.add("one", CALL, shard_key=TENANTS[1], every=120)
    assert stored_in(queue) == [[], ["one"], []]
    assert [(each.shard_key, each.every) for each in queue.schedules.list()] == [(TENANTS[1], 120)]


def test_they_are_paused_run_and_removed_wherever_they_are(queue: Queue) -> None:
    for number, tenant in TENANTS.items():
        queue.schedules.add(f"s{number}", CALL, shard_key=tenant, every=60)
    queue.schedules.pause("s2")
    assert [each.paused for each in queue.schedules.list()] == [False, False, True]
    message_id = queue.schedules.run("s2", by="ann")
    assert split(message_id)[1] == 2
    assert queue.read().message_id == message_id
    queue.schedules.resume("s2")
    assert not any(each.paused for each in queue.schedules.list())
    assert queue.schedules.remove("s1") is True
    assert queue.schedules.remove("s1") is False
    assert [each.name for each in queue.schedules.list()] == ["s0", "s2"]
    for call in (queue.schedules.pause, queue.schedules.resume, queue.schedules.run):
        with pytest.raises(ScheduleNotFound, match=queue.name):
            call("s1")


def test_there_are_no_more_of_them_than_the_queue_may_store(queue: Queue) -> None:
    queue.configure(max_schedules=PARTITIONS)
    for number, tenant in TENANTS.items():
        queue.schedules.add(f"s{number}", CALL, shard_key=tenant, every=60)
        with pytest.raises(QueueFull, match=f"max_schedules = 1 schedules in partition {number}"):
            queue.schedules.add("more", CALL, shard_key=tenant, every=60)
    queue.configure(max_schedules=0)
    with pytest.raises(ConfigError, match="stores no schedules"):
        queue.schedules.add("more", CALL, shard_key="new", every=60)


def test_to_ask_for_schedules_makes_no_queue(world: World, queue_name: str) -> None:
    queue = world.client().queue(queue_name, partitions=PARTITIONS, max_schedules=9)
    with pytest.raises(QueueMissing):
        queue.schedules.list()
    queue.schedules.add("one", CALL, shard_key="a", every=60)  # the first write makes it, and so does this
    assert queue.settings().partitions == PARTITIONS
    assert [each.name for each in queue.schedules.list()] == ["one"]


@pytest.mark.parametrize("settings", [{}, {"streams": 4, "max_schedules": 9}], ids=["nothing", "other settings"])
def test_a_client_that_was_told_nothing_finds_them_all(world: World, queue: Queue, settings: dict[str, Any]) -> None:
    def told() -> Any:
        return world.client().queue(queue.name, **settings).schedules

    for number, tenant in TENANTS.items():
        told().add(f"s{number}", CALL, shard_key=tenant, every=60)
    assert stored_in(queue) == [["s0"], ["s1"], ["s2"]]
    assert [each.name for each in told().list()] == ["s0", "s1", "s2"]
    told().pause("s2")
    assert split(told().run("s2"))[1] == 2
    assert told().remove("s1") is True
    assert stored_in(queue) == [["s0"], [], ["s2"]]


def test_schedules_of_a_program_fire_in_the_homes_of_their_shard_keys(queue: Queue) -> None:
    attend(queue, *fixed(*TENANTS.values()))
    for number, tenant in TENANTS.items():
        found = slots(queue, tenant)
        assert len(found) == len({*found}) >= 70
        assert home(tenant, PARTITIONS) == number
    ids = [each.message_id for each in queue.journal(10_000).events if each.shard_key == TENANTS[2]]
    assert {split(each)[1] for each in ids} == {2}


def test_schedules_fire_beside_a_partition_that_does_not_answer(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    due: Any = Attendant._due

    def due_but_in_one(self: Attendant, state: QueueState, *given: Any) -> Any:
        if state.number == 1:
            raise BackendTimeout("its node is away")
        return (yield from due(self, state, *given))

    with monkeypatch.context() as changed:
        changed.setattr(Attendant, "_due", due_but_in_one)
        with pytest.raises(BackendTimeout):
            attend(queue, *fixed(*TENANTS.values()))
    assert [len(slots(queue, TENANTS[number])) >= 70 for number in range(PARTITIONS)] == [True, False, True]
    attend(queue, *fixed(*TENANTS.values()))
    for tenant in TENANTS.values():
        assert len({*slots(queue, tenant)}) == len(slots(queue, tenant)) > 0


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3)])
def test_a_program_whose_homes_move_writes_each_slot_once(queue: Queue, before: int, after: int) -> None:
    """What was written ahead where the home was before is not written again."""
    write_to(queue, before)
    program = fixed(MOVES)
    attend(queue, *program)
    first = slots(queue, MOVES)
    write_to(queue, after)
    attend(queue, *program)
    attend(queue, *program)
    found = sorted(slots(queue, MOVES))
    assert len(first) >= 70
    assert found[: len(first)] == sorted(first)
    assert found == [found[0] + at for at in range(len(found))]


@pytest.mark.parametrize("paused", [False, True])
def test_what_is_stored_moves_home_as_far_as_it_is(queue: Queue, paused: bool) -> None:
    queue.schedules.add("one", CALL, shard_key=MOVES, every=60)
    queue.schedules.add("stays", CALL, shard_key=TENANTS[1], every=60)
    attend(queue)
    if paused:
        queue.schedules.pause("one")
    before = {each.name: replace(each, runs=()) for each in queue.schedules.list()}
    written = slots(queue, MOVES)
    write_to(queue, 2)
    for _ in range(2):
        queue.client.run(move_home(queue.state.parts, 5.0))
        assert stored_in(queue) == [["one"], ["stays"] if home(TENANTS[1], 2) == 1 else [], []]
    after = {each.name: replace(each, runs=()) for each in queue.schedules.list()}
    assert after == before
    attend(queue)
    found = slots(queue, MOVES)
    assert len(found) == len({*found})
    assert {*written} <= {*found}
    assert len(found) <= len(written) + (not paused)  # a minute may have begun


def test_a_newer_one_that_is_at_home_stays_as_it_is(queue: Queue) -> None:
    queue.schedules.add("one", CALL, shard_key=MOVES, every=60)
    write_to(queue, 2)
    parts = queue.state.parts
    codecs, add = queue.client.codecs, stored.add
    queue.client.run(add(parts.states[0], codecs, "one", CALL, MOVES, None, "UTC", 3600, "skip", False, 5.0))
    queue.client.run(move_home(parts, 5.0))
    assert stored_in(queue) == [["one"], [], []]
    assert [each.every for each in queue.schedules.list()] == [3600]


def test_a_resize_moves_what_is_stored_to_its_home(
    world: World, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up and down; and what the home has no room for stays where it is."""
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)
    queue = open_queue(streams=8, streams_per_shard=2, max_schedules=30)
    for number, tenant in TENANTS.items():
        queue.schedules.add(f"s{number}", CALL, shard_key=tenant, every=60)
    for wanted in (3, 2, 3):
        world.client().queue(queue.name).resize(partitions=wanted)
        found = stored_in(seen_anew(world, queue))
        assert {name: at for at, names in enumerate(found) for name in names} == {
            f"s{number}": home(tenant, wanted) for number, tenant in TENANTS.items()
        }
    queue = seen_anew(world, queue)
    queue.configure(max_schedules=3)
    assert queue.resize(partitions=1) == (3, 1)
    assert sorted(name for names in stored_in(seen_anew(world, queue)) for name in names) == ["s0", "s1", "s2"]
    assert len(queue.schedules.list()) == 3


def seen_anew(world: World, queue: Queue) -> Queue:
    """The queue of a client that has seen nothing before."""
    found = world.client().queue(queue.name)
    found.len()
    return found


@pytest.mark.parametrize("idle_is", ["plain", "parted"])
def test_a_worker_that_was_idle_across_a_resize_writes_no_slot_twice(
    real: None, world: World, open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch, idle_is: str
) -> None:
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 0.0)
    queue = open_queue(streams=8, streams_per_shard=2, journal=30_000)
    queue.declare()
    program = fixed(TENANTS[1], TENANTS[2])
    idle = seen_anew(world, queue)
    attend(idle, *program)
    world.client().queue(queue.name).resize(partitions=3)
    other = seen_anew(world, queue)
    if idle_is == "parted":
        idle.write("x", shard_key="a")
    known = len(slots(other, TENANTS[2]))

    def has_more() -> bool:
        attend(other, *program)
        return len(slots(other, TENANTS[2])) > known

    eventually(has_more)
    attend(idle, *program)
    attend(other, *program)
    for tenant in (TENANTS[1], TENANTS[2]):
        found = sorted(slots(other, tenant))
        assert found == [found[0] + at for at in range(len(found))]

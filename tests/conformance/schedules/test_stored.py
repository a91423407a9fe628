"""Schedules that users store: add, pause, resume, run, remove, list; their bounds; and what workers make of them."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import ConfigError, Queue, QueueFull, QueueMissing, ScheduleNotFound
from shardq.model.call import Call
from shardq.model.timetable import timetable
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Call as Made
from shardq.ops.schedules import attend as attending
from shardq.ops.schedules.attend import Attendant
from shardq.ops.schedules.write import SlotMessage, write_slots
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World

pytestmark = pytest.mark.runs_in("test-all")

CALL: Call[Any] = Call("app.tasks.report", {"days": 1})


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    queue = open_queue(streams=2, streams_per_shard=1, max_schedules=10, journal=1000)
    queue.declare()
    return queue


def attend(queue: Queue) -> None:
    """Do what a worker does once a minute."""
    queue.client.run(Attendant(queue.state, queue.client.codecs, ()).attend(5.0))


@pytest.mark.runs_in("test", "test-all")
def test_a_schedule_is_added_listed_changed_and_removed(queue: Queue) -> None:
    added = queue.schedules.add("nightly", CALL, shard_key="acct-7", cron="0 3 * * *", tz="Europe/Berlin")
    assert added.next is not None
    assert added.next > added.last
    queue.schedules.add("often", CALL, shard_key=b"\xff", every=600, catch_up="all", paused=True)
    nightly, often = queue.schedules.list()
    assert nightly == added
    assert (nightly.name, nightly.task, nightly.shard_key) == ("nightly", "app.tasks.report", "acct-7")
    assert (nightly.cron, nightly.tz, nightly.every, nightly.catch_up) == ("0 3 * * *", "Europe/Berlin", None, "skip")
    assert (often.shard_key, often.every, often.paused, often.next) == (b"\xff", 600, True, None)
    queue.schedules.add("nightly", CALL, shard_key="acct-8", every=60)
    assert [(each.name, each.shard_key, each.every) for each in queue.schedules.list()] == [
        ("nightly", "acct-8", 60), ("often", b"\xff", 600),
    ]  # fmt: skip
    assert queue.schedules.remove("nightly") is True
    assert queue.schedules.remove("nightly") is False
    assert [each.name for each in queue.schedules.list()] == ["often"]


def due(queue: Queue) -> list[float]:
    """When the calls are due that were written for slots."""
    return sorted(each.due for each in queue.journal().events if each.kind == "written" and each.due)


@pytest.mark.everywhere
@pytest.mark.runs_in("test", "test-all")
def test_a_worker_writes_what_comes_within_75_seconds_once(queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="acct-7", every=60)
    attend(queue)
    [often] = queue.schedules.list()
    assert often.next == often.last + 60
    count = len(due(queue))
    assert count in (1, 2, 3), "those of 75 seconds, and one that came since it was added"
    attend(queue)
    assert len(due(queue)) <= count + 1, "a slot may have come within reach meanwhile"
    [message, *_] = queue.peek(10, state="delayed").messages
    assert (message.task, message.shard_key) == ("app.tasks.report", "acct-7")


def test_what_is_paused_writes_nothing_but_runs_when_asked(queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="acct-7", every=60)
    queue.schedules.pause("often")
    attend(queue)
    assert due(queue) == []
    message_id = queue.schedules.run("often")
    delivery = queue.read()
    assert (delivery.message_id, delivery.payload) == (message_id, ["app.tasks.report", {"days": 1}])
    assert not delivery.headers
    queue.schedules.resume("often")
    attend(queue)
    assert due(queue)


def test_a_worker_that_comes_late_writes_nothing_of_what_was_changed_meanwhile(queue: Queue) -> None:
    """It has decided by what it was told before the schedule was paused, changed or removed."""
    change: list[Any] = [
        lambda: queue.schedules.pause("often"),
        lambda: queue.schedules.resume("often"),
        lambda: queue.schedules.add("often", CALL, shard_key="acct-8", every=60),
        lambda: queue.schedules.remove("often"),
    ]
    queue.schedules.add("often", CALL, shard_key="acct-7", every=60)
    message = SlotMessage("u:often", timetable(None, "UTC", 60), "acct-7", "m", b"\x90")
    for each in change:
        said = said_of(queue)
        each()
        slot = 1_900_000_000_000
        found = queue.client.run(write_slots(queue.state, message, [slot], said, f"{slot}.x.a", queue.state.until()))
        assert found == said_of(queue) != said
    assert queue.stats().written == 0
    assert said_of(queue) == b""


def said_of(queue: Queue) -> bytes:
    """How far the schedule is, as Redis has it."""
    call = Made.on(queue.state.keys, "schedules", ("0", 1, "often"))
    _, _, (_, said, *_) = queue.client.run(retry_until(always(call), queue.state.until(), queue.state.clock))
    return bytes(said)


def test_a_tenant_gets_four_fifths_of_them_and_others_get_in(queue: Queue) -> None:
    for number in range(8):
        queue.schedules.add(f"s{number}", CALL, shard_key="greedy", every=60)
    with pytest.raises(QueueFull, match=r"max_schedules = 10 schedules.*'greedy' has 8, others have 0") as raised:
        queue.schedules.add("s8", CALL, shard_key="greedy", every=60)
    full = raised.value
    assert (full.bound, full.limit, full.used, full.others) == ("max_schedules", 10, 8, 0)
    queue.schedules.add("s0", CALL, shard_key="greedy", every=120)  # to change one takes no more
    queue.schedules.add("other", CALL, shard_key="quiet", every=60)
    assert len(queue.schedules.list()) == 9
    queue.schedules.remove("s1")
    queue.schedules.add("s8", CALL, shard_key="greedy", every=60)
    queue.schedules.add("s8", CALL, shard_key="third", every=60)  # it counts in another share from now on


def test_a_call_for_which_there_is_no_room_is_refused_as_a_write_is(queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="t", every=60)
    queue.configure(max_backlog=1)
    queue.schedules.run("often")
    with pytest.raises(QueueFull, match="max_backlog"):
        queue.schedules.run("often")


def test_a_queue_stores_none_unless_it_is_told_to(open_queue: OpenQueue) -> None:
    queue = open_queue()
    with pytest.raises(QueueMissing):
        open_queue(by=None).schedules.list()
    queue.declare()
    with pytest.raises(ConfigError, match=r"configure\(max_schedules=1000\)"):
        queue.schedules.add("often", CALL, shard_key="t", every=60)
    queue.configure(max_schedules=1)
    queue.schedules.add("often", CALL, shard_key="t", every=60)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a b"}, "the name of a schedule is"),
        ({"name": ""}, "the name of a schedule is"),
        ({"every": 0}, "every must be a whole number"),
        ({"cron": "x"}, "and not both"),
        ({"every": 59}, "once a minute at most"),
        ({"every": None, "cron": "* * * * * *"}, "once a minute at most"),
        ({"every": None, "cron": "0 3 * *"}, "Wrong number of fields"),
        ({"every": None, "cron": "0 3 * * *", "tz": "Mars"}, "no time zone 'Mars'"),
        ({"catch_up": "never"}, "catch_up must be one of"),
        ({"shard_key": ""}, "shard key"),
        ({"payload": "x" * 20_000}, "may have 16,384 bytes"),
    ],
)
def test_bad_input_is_told_and_changes_nothing(queue: Queue, change: dict[str, Any], said: str) -> None:
    how: dict[str, Any] = {"name": "often", "payload": CALL, "shard_key": "t", "every": 60, **change}
    with pytest.raises(ConfigError, match=said):
        queue.schedules.add(how.pop("name"), how.pop("payload"), **how)
    assert queue.schedules.list() == []


def test_what_is_not_there_is_told(queue: Queue) -> None:
    for act in (queue.schedules.pause, queue.schedules.resume, queue.schedules.run):
        with pytest.raises(ScheduleNotFound, match="no stored schedule 'often'"):
            act("often")


def test_one_that_another_program_wrote_stops_no_other(
    queue: Queue, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending, "SCHEDULES_A_CALL", 3)
    for name in ("a", "b", "c", "d", "e"):
        queue.schedules.add(name, CALL, shard_key="t", every=60)
    keys = queue.state.keys
    world.raw.hset(keys.schedules, "a", "0:\x00")
    world.raw.hset(keys.schedules, "b", "no record")
    world.raw.hset(keys.meta, "S:u:c", "nonsense")
    world.raw.hdel(keys.schedules, "d")
    for _ in range(3):
        attend(queue)
    assert {each.shard_key for each in queue.peek(10, state="delayed").messages} == {"t"}
    assert len([each for each in caplog.records if "its calls cannot be written" in each.getMessage()]) == 4
    assert [each.name for each in queue.schedules.list()] == ["e"]
    for name in ("a", "b", "c", "d"):
        queue.schedules.remove(name)


def test_a_page_has_a_hundred_and_all_are_gone_through(open_queue: OpenQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = open_queue(streams=2, max_schedules=1000, journal=10_000)
    for number in range(230):
        queue.schedules.add(f"s{number}", CALL, shard_key=f"t{number}", every=3600 * 24 * 300)
    monkeypatch.setattr(attending, "MAX_AHEAD_MS", 0)
    attend(queue)
    call = Made.on(queue.state.keys, "due_schedules", (75_000, 100))
    _, _, rows = queue.client.run(retry_until(always(call), queue.state.until(), queue.state.clock))
    assert rows == []


def test_a_queue_that_is_deleted_takes_its_schedules_along(queue: Queue, world: World) -> None:
    queue.schedules.add("often", CALL, shard_key="t", every=60)
    queue.delete(expected=None)
    assert not [key for key in world.stored() if queue.name in key]
    queue.declare()
    assert queue.schedules.list() == []


def test_the_last_calls_of_a_schedule_are_known(queue: Queue) -> None:
    added = queue.schedules.add("often", CALL, shard_key="acct-7", every=60)
    assert added.runs == ()
    message = SlotMessage("u:often", timetable(None, "UTC", 60), "acct-7", "m", b"\x90")
    first = (int(added.last) // 60 + 1) * 60_000
    slots = [first + 60_000 * number for number in range(10)]
    for slot in slots:
        said = said_of(queue)
        following = said.replace(said.partition(b".")[0], b"%d" % slot, 1).decode()
        assert queue.client.run(write_slots(queue.state, message, [slot], said, following, queue.state.until())) is None
    [often] = queue.schedules.list()
    assert [run.slot * 1000 for run in often.runs] == slots[-8:]
    states = [queue.status(run.message_id) for run in often.runs]
    assert {each.state for each in states} == {"delayed"}
    assert [each.until for each in states] == [run.slot for run in often.runs]
    queue.schedules.pause("often")
    assert queue.schedules.list()[0].runs == often.runs
    queue.schedules.remove("often")
    queue.schedules.add("often", CALL, shard_key="acct-7", every=60)
    assert queue.schedules.list()[0].runs == ()


def test_what_another_program_wrote_of_the_last_calls_is_passed_over(queue: Queue, world: World) -> None:
    queue.schedules.add("often", CALL, shard_key="acct-7", every=60)
    world.raw.hset(queue.state.keys.meta, "L:u:often", b"x \xff:1-2-0 5000:7-8-d 1:2 " + b"9" * 5000)
    [often] = queue.schedules.list()
    assert [(run.slot, run.message_id) for run in often.runs] == [(5.0, "7-8-d")]

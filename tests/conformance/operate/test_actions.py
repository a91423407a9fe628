"""Actions by a filter: what they select and what not, their rate, who sees them, stops them and takes them over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardq import BackendError, ConfigError, Delivery, LeaseLost, Message, MessageCancelled, Queue, QueueMissing, Where
from shardq.model import MessageId
from shardq.model.where import WhereState
from shardq.ops.operate import actions
from shardq.ops.operate.counting import count
from shardq.ops.queue.steps import Argument, Call
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.inner import run

SETTINGS = {"streams": 4, "streams_per_shard": 2, "visibility_timeout": 60.0, "journal": 10_000, "max_deliveries": 9}


def call(task: str, *args: object) -> list[object]:
    """A message that calls a task."""
    return [task, {"args": list(args)}] if args else [task, {}]


def by_key(held: list[Delivery]) -> dict[Any, list[Delivery]]:
    """Deliveries by shard key."""
    found: dict[Any, list[Delivery]] = {}
    for each in held:
        found.setdefault(each.shard_key, []).append(each)
    return found


def bury(queue: Queue, key: str, count: int, why: str, task: str = "mail.send") -> list[str]:
    """So many dead letters."""
    ids = queue.write_many([Message(call(task), key) for _ in range(count)])
    queue.reject_many(queue.read_many(count), why)
    return [str(each) for each in ids]


def abandon(queue: Queue, world: World, action_id: str, seconds: float = 31) -> None:
    """As if its process had been silent for half a minute and more."""
    key = queue.state.keys.actions
    text = world.raw.hget(key, action_id)
    head, _, rest = text.partition(b"\n")
    words = head.split(b" ")
    words[2] = b"%d" % (int(words[2]) - seconds * 1000)
    world.raw.hset(key, action_id, b" ".join(words) + b"\n" + rest)


def set_clock_back(queue: Queue, world: World, seconds: float = 3600) -> None:
    """As if the server's clock had been ahead by so many seconds until now: so ids come from then, and times do not."""
    keys = queue.state.keys
    ahead, micros = world.raw.time()
    ms = int((ahead + micros / 1_000_000 + seconds) * 1000)
    number = int(world.raw.hget(keys.meta, "last").partition(b"-")[2])
    world.raw.hset(keys.meta, "last", f"{ms}-{number}")
    world.raw.xdel(keys.dead, world.raw.xadd(keys.dead, {"i": ""}, f"{ms}-1"))


@pytest.mark.everywhere
def test_dead_letters_that_are_selected_are_redriven_each_once(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    chosen = bury(queue, "a", 250, "TimeoutError: no answer")
    others = bury(queue, "a", 5, "ValueError: bad") + bury(queue, "b", 5, "TimeoutError: no answer")
    others += bury(queue, "a", 5, "TimeoutError: no answer", "other.task")
    action = queue.redrive(Where(tenant="a", task="mail.send", error="TimeoutError"), by="anna", note="it is back")
    status = action.wait()
    assert (status.state, status.done, status.passed, status.left) == ("done", 250, 0, 0)
    assert (status.by, status.note, status.kind, action.done, action.left) == ("anna", "it is back", "redrive", 250, 0)
    assert [each.message_id for each in queue.dead(1000)] == others
    read = queue.read_many(1000)
    assert sorted(each.message_id for each in read) == sorted(chosen)
    events = [each for each in queue.journal(10_000).events if each.kind == "redriven"]
    assert {(each.by, each.note) for each in events} == {("anna", "it is back")}
    queue.reject_many(read, "TimeoutError: again")
    assert (action.wait().done, len(queue.dead(1000))) == (250, 265)
    assert world.census(queue).problems() == []


def test_what_dies_after_the_action_began_is_left(open_queue: OpenQueue) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 3, "no")
    action = queue.redrive(Where(state="dead"))
    later = bury(queue, "a", 3, "no")
    assert action.wait().done == 3
    assert [each.message_id for each in queue.dead()] == later


def test_what_is_written_after_the_action_began_is_left(open_queue: OpenQueue) -> None:
    queue = open_queue(**SETTINGS)
    queue.write_many([Message(number, "a", delay=600 * (number % 2)) for number in range(6)])
    action = queue.cancel(Where(tenant="a"))
    queue.write_many([Message(number, "a", delay=600 * (number % 2)) for number in range(10)])
    assert action.wait().done == 6
    assert (queue.stats().backlog, queue.stats().delayed) == (5, 5)


def test_after_the_clock_was_set_back_actions_are_about_what_was_there(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    queue.declare()
    set_clock_back(queue, world)
    bury(queue, "a", 4, "no")
    redrive = queue.redrive(Where(state="dead"), limit=2)
    later = bury(queue, "b", 3, "no")
    assert redrive.wait().done == 2
    assert queue._client.run(count(queue.state, "redrive", Where(state="dead"), 0.0, None, None)) == 5
    assert queue.delete_dead(Where(tenant="a")).wait().done == 2
    assert [each.message_id for each in queue.dead()] == later
    queue.nack_many(queue.read_many(2), delay=600, error="E")
    assert queue.retry_now(Where(tenant="a")).wait().done == 2
    queue.write_many([Message(number, "a", delay=600 * (number % 2)) for number in range(4)])
    cancel = queue.cancel(Where(tenant="a"))
    queue.write_many([Message(number, "a", delay=600 * (number % 2)) for number in range(6)])
    assert cancel.wait().done == 6
    assert (queue.stats().backlog, queue.stats().delayed) == (3, 3)


REASONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "all": ({"state": "dead"}, {"a1", "a2", "b1", "b2"}),
    "a tenant": ({"tenant": "a"}, {"a1", "a2"}),
    "bytes": ({"tenant": b"a"}, {"a1", "a2"}),
    "a task": ({"task": "t.2"}, {"a2", "b2"}),
    "a part of the error": ({"error": "peculiar"}, {"b1"}),
    "a part of the reason": ({"reason": "usual"}, {"a1", "a2", "b2"}),
    "old ones": ({"older_than": 3600}, set()),
    "new ones": ({"newer_than": 3600}, {"a1", "a2", "b1", "b2"}),
    "both": ({"tenant": "b", "task": "t.1"}, {"b1"}),
    "nobody": ({"tenant": "b/"}, set()),
}


@pytest.mark.parametrize("case", REASONS)
def test_all_that_a_filter_says_must_hold(open_queue: OpenQueue, case: str) -> None:
    queue = open_queue(**SETTINGS)
    names = {}
    for key, task, why in (("a", "1", "usual"), ("a", "2", "usual"), ("b", "1", "peculiar"), ("b", "2", "usual")):
        (message_id,) = bury(queue, key, 1, why, f"t.{task}")
        names[message_id] = key + task
    where, wanted = REASONS[case]
    before = {names[each.message_id] for each in queue.dead()}
    assert queue.delete_dead(Where(**where)).wait().done == len(wanted)
    assert before - {names[each.message_id] for each in queue.dead()} == wanted
    assert queue.stats().dead_deleted == len(wanted)


@pytest.mark.everywhere
def test_cancel_takes_all_that_wait_are_delayed_or_in_flight(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    for key in ("a", "b"):
        queue.write_many([Message(call("t.1", number), key) for number in range(150)])
        queue.write_many([Message(call("t.1"), key, delay=600) for _ in range(20)])
        queue.write(call("t.1"), shard_key=key, unique_key="u")
    held = by_key(queue.read_many(40))
    for each in held["a"][:3]:
        each.nack(error="E1")
    for each in held["a"][3:5]:
        each.nack(error="E2", delay=60)
    in_flight = held["a"][5:]
    action = queue.cancel(Where(tenant="a"))
    status = action.wait()
    assert (status.state, status.done, status.passed) == ("done", 171, 0)
    for each in in_flight:
        with pytest.raises(MessageCancelled):
            each.ack()
    assert queue.tenant("a").backlog + queue.tenant("a").delayed + queue.tenant("a").in_flight == 0
    assert queue.tenant("b").backlog + queue.tenant("b").delayed + queue.tenant("b").in_flight == 171
    assert queue.stats().cancelled == 171
    assert world.census(queue).problems() == []
    assert queue.write(call("t.1"), shard_key="a", unique_key="u").is_new


STATES: dict[WhereState, int] = {"waiting": 12, "delayed": 5, "retrying": 2, "in_flight": 4}


@pytest.mark.parametrize("state", STATES)
def test_cancel_of_one_state_leaves_the_others(open_queue: OpenQueue, world: World, state: WhereState) -> None:
    queue = open_queue(**SETTINGS)
    queue.write_many([Message(number, "a") for number in range(18)])
    queue.write_many([Message(number, "a", delay=600) for number in range(3)])
    held = queue.read_many(8)
    for each in held[:2]:
        each.nack()
    for each in held[2:4]:
        each.nack(delay=600, error="E")
    count = STATES[state]
    assert queue.cancel(Where(state=state)).wait().done == count
    stats = queue.stats()
    left = {"waiting": 12, "delayed": 5, "in_flight": 4}
    if state in left:
        left[state] -= count if state != "in_flight" else 0
    else:
        left["delayed"] -= count
    assert {"waiting": stats.backlog, "delayed": stats.delayed, "in_flight": stats.in_flight} == left
    assert world.census(queue).problems() == []


@pytest.mark.everywhere
def test_retry_now_is_for_those_that_failed(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    queue.write_many([Message(number, "a", delay=600) for number in range(3)])
    ids = [str(each) for each in queue.write_many([Message(number, "a") for number in range(6)])]
    for at, each in enumerate(queue.read_many(6)):
        each.nack(delay=600, error=f"E{at % 2}")
    assert queue.retry_now(Where(error="E1")).wait().done == 3
    stats = queue.stats()
    assert (stats.backlog, stats.delayed, stats.retrying) == (3, 6, 3)
    read = queue.read_many(9)
    assert [(each.message_id in ids, each.count) for each in read] == [(True, 2)] * 3
    assert "hastened" in [each.kind for each in queue.journal(1000).events]
    assert world.census(queue).problems() == []


def test_a_message_that_fails_again_meanwhile_is_retried_once(open_queue: OpenQueue) -> None:
    queue = open_queue(**SETTINGS)
    queue.write_many([Message(number, "a") for number in range(30)])
    queue.nack_many(queue.read_many(30), delay=600, error="E")
    action = queue.retry_now(Where(state="retrying"), rate=200)
    for _ in range(1000):
        queue.nack_many(queue.read_many(30), delay=500, error="E")
        if action.wait(timeout=0.01).is_over:
            break
    assert (action.done, queue.stats().retrying) == (30, 30 - len(queue.read_many(30)))


def _running(action: Any) -> actions.Running:
    return getattr(action, "_twin", action)._running  # type: ignore[no-any-return]


def test_what_has_changed_since_it_was_chosen_is_passed_over(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    other = world.client().queue(queue.name)
    queue.write_many([Message(number, "a") for number in range(6)])
    action = queue.cancel(Where(state="waiting"), rate=1.0)
    action.wait(timeout=0.5)
    assert (action.done, action.left) == (1, 5)
    held = other.read_many(2)
    held[0].nack()
    assert action.stop().state == "stopping"
    assert action.wait().state == "stopped"
    action = queue.cancel(Where(state="waiting"))
    assert queue.stats().cancelled == 1
    running = _running(action)
    queue._client.run(actions._choose(running, None))
    assert len(running.chosen) == 4
    held += other.read_many(1)
    status = action.wait()
    assert (status.done, status.passed) == (3, 1)
    assert world.census(queue).problems() == []


def test_one_runs_at_a_time_and_others_see_and_stop_it(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    other = world.client().queue(queue.name)
    bury(queue, "a", 20, "no")
    action = queue.redrive(Where(state="dead"), rate=5)
    with pytest.raises(ConfigError, match=f"action {action.id} is under way"):
        other.delete_dead(Where(state="dead"))
    action.wait(timeout=0.3)
    (seen,) = other.actions()
    assert (seen.id, seen.state, seen.rate, seen.where) == (action.id, "running", 5.0, Where(state="dead"))
    assert 1 <= seen.done <= 4
    assert seen.left == 20 - seen.done or seen.left is None
    assert other.stop_action(action.id).state == "stopping"
    status = action.wait()
    assert (status.state, status.done) == ("stopped", action.done)
    assert len(queue.dead()) == 20 - action.done
    with pytest.raises(ConfigError, match="knows no action"):
        other.stop_action("0000")
    assert other.delete_dead(Where(state="dead")).wait().done == 20 - action.done
    assert [each.kind for each in queue.actions()] == ["delete_dead", "redrive"]


def test_an_action_is_taken_over_and_the_former_process_does_no_more(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    other = world.client().queue(queue.name)
    bury(queue, "a", 30, "no")
    action = queue.redrive(Where(state="dead"), rate=10)
    action.wait(timeout=0.4)
    with pytest.raises(ConfigError, match="somebody works on action"):
        other.take_over(action.id)
    abandon(queue, world, action.id)
    assert [each.state for each in other.actions()] == ["abandoned"]
    before = action.done
    assert 1 <= before < 30
    taken = other.take_over(action.id)
    with pytest.raises(LeaseLost):
        action.wait()
    assert action.wait().state == "running"  # it only tells how it is
    status = taken.wait()
    assert (status.state, status.done) == ("done", 30)
    assert (queue.stats().dead, queue.stats().backlog) == (0, 30)
    assert len([each for each in queue.journal(10_000).events if each.kind == "redriven"]) == 30
    with pytest.raises(ConfigError, match="is over: done"):
        other.take_over(action.id)
    assert world.census(queue).problems() == []


def test_one_that_nobody_works_on_is_stopped_at_once_and_can_go_on(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 3, "no")
    action = queue.redrive(Where(state="dead"))
    abandon(queue, world, action.id)
    assert queue.stop_action(action.id).state == "stopped"
    assert queue.take_over(action.id).wait().done == 3


@pytest.mark.once
def test_a_clock_that_was_set_back_makes_nobody_wait(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 3, "no")
    lost = queue.redrive(Where(state="dead"))
    abandon(queue, world, lost.id, -3600)
    assert [each.state for each in queue.actions()] == ["abandoned"]
    assert queue.redrive(Where(state="dead")).wait().done == 3
    assert queue.stop_action(lost.id).state == "stopped"


def test_a_rate_is_kept_evenly(open_queue: OpenQueue) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 40, "no")
    action = queue.redrive(Where(state="dead"), rate=40)
    status = action.wait()
    assert 0.85 <= status.heard - status.started < 30
    times = sorted(each.time for each in queue.journal(10_000).events if each.kind == "redriven")
    assert len(times) == 40
    # Ten, and pieces of a tenth of a second that a machine which stood still brings closer together: not all at once.
    assert max(sum(at <= each < at + 0.25 for each in times) for at in times) <= 20


def test_a_limit_and_room(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS, max_len=10)
    for _ in range(3):
        bury(queue, "a", 5, "no")
    assert queue.redrive(Where(state="dead"), limit=4).wait().done == 4
    status = queue.redrive(Where(state="dead")).wait()
    assert (status.state, status.done > 0, "max_len" in status.problem) == ("failed", True, True)
    queue.purge()
    failed = status.id
    assert queue.take_over(failed).wait().state in ("done", "failed")
    assert world.census(queue).problems() == []


@pytest.mark.once
def test_twenty_are_kept_for_a_day(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 1, "no")
    ids = [queue.redrive(Where(tenant="nobody")).wait().id for _ in range(23)]
    assert {each.id for each in queue.actions()} == {*ids[3:]}
    key = queue.state.keys.actions
    for name, text in world.raw.hgetall(key).items():
        if name:
            head, _, rest = text.partition(b"\n")
            words = head.split(b" ")
            words[2] = b"%d" % (int(words[2]) - 86_400_001)
            world.raw.hset(key, name, b" ".join(words) + b"\n" + rest)
    last = queue.redrive(Where(tenant="nobody")).wait().id
    assert [each.id for each in queue.actions()] == [last]


BAD: dict[str, Callable[[Queue], object]] = {
    "nothing said": lambda queue: queue.redrive(Where()),
    "another state": lambda queue: queue.redrive(Where(state="waiting")),
    "cancel of dead letters": lambda queue: queue.cancel(Where(state="dead")),
    "retry of what waits": lambda queue: queue.retry_now(Where(state="waiting")),
    "no filter": lambda queue: queue.retry_now("a"),  # type: ignore[arg-type]
    "rate": lambda queue: queue.redrive(Where(tenant="a"), rate=-1),
    "limit": lambda queue: queue.redrive(Where(tenant="a"), limit=0),
    "by": lambda queue: queue.redrive(Where(tenant="a"), by="x" * 101),
    "note": lambda queue: queue.redrive(Where(tenant="a"), note="x\ny"),
    "a rate for letters that are named": lambda queue: queue.redrive([], rate=5),  # type: ignore[call-overload]
    "a rate for a message that is named": lambda queue: queue.cancel("1-1-0", rate=5),  # type: ignore[call-overload]
    "a limit for it": lambda queue: queue.cancel("1-1-0", limit=5),  # type: ignore[call-overload]
    "filter and ids": lambda queue: queue.delete_dead(Where(tenant="a"), ids=["1-1-0"]),  # type: ignore[call-overload]
    "id": lambda queue: queue.stop_action("x\ny"),
    "no id": lambda queue: queue.take_over(7),  # type: ignore[arg-type]
}


@pytest.mark.once
@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_refused_before_anything_begins(open_queue: OpenQueue, case: str) -> None:
    queue = open_queue(**SETTINGS)
    queue.declare()
    with pytest.raises(ConfigError):
        BAD[case](queue)
    assert queue.actions() == []


@pytest.mark.once
def test_a_hostile_record_or_name_changes_nothing(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 3, "no")
    key = queue.state.keys.actions
    for name, text in ((b"\xff\n", b"x" * 10_000), (b"a", b"running x 1 2\n\n\n{}"), (b"b", b"\x00" * 100)):
        world.raw.hset(key, name, text)
    assert queue.actions() == []
    for where in (
        Where(tenant=b"\xff|\n\x00"), Where(error="\n|\x00" * 100), Where(task="*"), Where(reason="\u2028" * 500),
    ):  # fmt: skip
        action = queue.redrive(where)
        assert queue.actions()[0].where == where
        assert action.wait().done == 0
    assert len(queue.dead()) == 3


class Text(str):  # noqa: SLOT000 (most have none)
    """As an enumeration of texts has."""


class Whole(int):
    """As an enumeration of numbers has."""


class Part(float):
    """As numpy's float64 is."""


def test_texts_and_numbers_may_be_of_classes_of_their_own(open_queue: OpenQueue) -> None:
    queue = open_queue(**SETTINGS)
    bury(queue, "a", 3, "no")
    where = Where(tenant=Text("a"), older_than=Part(0.0), newer_than=Whole(1000))
    action = queue.redrive(where, rate=Part(1000.0), limit=Whole(2), note=Text("again"))
    assert action.wait().done == 2
    assert (queue.actions()[0].where, queue.actions()[0].limit) == (where, 2)


def test_a_queue_that_is_missing(world: World) -> None:
    queue = world.client().queue("nowhere")
    for call_of in (queue.actions, lambda: queue.redrive(Where(tenant="a")), lambda: queue.stop_action("a")):
        with pytest.raises(QueueMissing):
            call_of()


def act(queue: Queue, step: int, kind: str, becomes: str, *rows: Argument) -> Any:
    """A piece of the action "a"."""
    return run(queue, Call.on(queue.state.keys, "act", ("a", "h", step, "me", kind, becomes, "", "-", "", *rows),
                              rest=queue.state.declared([str(each) for each in range(4)])))  # fmt: skip


@pytest.mark.once
def test_what_a_hostile_caller_says_of_an_action_is_not_believed(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(**SETTINGS)
    queue.write("first", shard_key="a")
    queue.write_many([Message(number, f"t{number}") for number in range(3)])
    assert run(queue, Call.on(queue.state.keys, "steer", ("begin", "a", "h", "{}", "me")))[0] == b"OK"
    (message,) = queue.peek(1, shard_key="a").messages
    entry, place = MessageId.parse(message.message_id)
    row = (message.message_id, place, entry, "", "waiting", 0)
    for kind, becomes in (("redrivee", "running"), ("waiting", "running"), ("cancel", "stopping"), ("cancel", "over")):
        with pytest.raises(BackendError, match="refused"):
            act(queue, 0, kind, becomes, *row)
    with pytest.raises(BackendError, match="refused"):
        run(queue, Call.on(queue.state.keys, "steer", ("halt", "a", "h", "{}", "me")))
    assert queue.stats().backlog == 4
    again = ("1-1-d", *row[1:])
    assert act(queue, 0, "cancel", "running", *row, *again, *row)[2:4] == [1, 2]
    assert (queue.stats().backlog, queue.stats().cancelled) == (3, 1)
    assert world.census(queue).problems() == []

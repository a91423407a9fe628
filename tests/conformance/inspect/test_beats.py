"""workers and history: what workers told with their beats, whatever else stands there; and bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from shardq import Client, Queue, QueueMissing
from shardq.errors import BackendError, ConfigError
from shardq.ops.inspect.beats import BeatReply, beat_reply
from shardq.ops.queue.steps import Call
from shardq.protocol.beats import MAX_MINUTE_TASKS, MINUTE, OTHER, task_minutes
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.inner import run

ROW = "0|8|2.50|1800000000000|7|1048576||0.1.0|host||||5|1|mail.send=5,1,20;|acme=6,20,30;|b2"
HOUR = 3600


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue that is there: beats create none."""
    queue = open_queue(streams=4, streams_per_shard=4)
    queue.declare()
    return queue


def beat(
    queue: Queue, worker: str | bytes = "w", row: str = ROW, work: str = "", numbers: str = ""
) -> BeatReply | None:
    return beat_reply(run(queue, Call.on(queue.state.keys, "beat", (worker, row, work, numbers, 1))))


def is_asked(queue: Queue, worker: str) -> bool:
    reply = beat(queue, worker)
    assert reply is not None
    return reply.is_asked


def hear_earlier(queue: Queue, world: World, worker: str, seconds: float) -> None:
    """Make a worker's last beat so many seconds older."""
    heard, _, rest = world.raw.hget(queue.state.keys.workers, worker).partition(b"|")
    world.raw.hset(queue.state.keys.workers, worker, b"%d|%b" % (int(heard) - 1000 * seconds, rest))


def minute_now(queue: Queue) -> int:
    return int(queue.stats().time // MINUTE)


@pytest.mark.everywhere
def test_workers_are_told_as_they_last_told_of_themselves(queue: Queue, client: Client, world: World) -> None:
    assert queue.workers() == client.workers() == []
    for worker, row in (
        ("idle", ROW.replace("|2.50|", "|0.00|")),
        ("busy", ROW),
        ("over", "1" + ROW[1:]),
        ("away", ROW),
    ):
        reply = beat(queue, worker, row)
        assert reply is not None
        assert reply.cancels is None
    hear_earlier(queue, world, "away", 31)
    found = queue.workers()
    assert [(each.id, each.state) for each in found] == [
        ("busy", "working"), ("idle", "working"), ("away", "gone"), ("over", "ended"),
    ]  # fmt: skip
    first = found[0]
    assert (first.queue, first.slots, first.busy, first.done, first.failed) == (queue.name, 8, 2.5, 5, 1)
    assert (first.tasks[0].task, first.tenants[0].shard_key, first.tenants[0].pickup_p99) == ("mail.send", "acme", 0.03)
    assert abs(first.heard - queue.stats().time) < 60
    assert client.workers() == found


def test_all_queues_tell_their_workers(open_queue: OpenQueue, client: Client) -> None:
    one, other = open_queue(), client.queue("another", create=True)
    one.write("x", shard_key="t")
    other.write("x", shard_key="t")
    beat(one, "w", ROW.replace("|2.50|", "|1.00|"))
    beat(other)
    assert [(each.id, each.queue) for each in client.workers()] == [("w", "another"), ("w", one.name)]


def test_a_look_at_a_queue_that_is_not_there_says_so(client: Client, world: World) -> None:
    looks: list[Callable[[Queue], object]] = [lambda queue: queue.workers(), lambda queue: queue.history()]
    for look in looks:
        with pytest.raises(QueueMissing):
            look(client.queue("missing"))
        assert look(client.queue("soon", create=True)) == []
    assert beat(client.queue("missing")) is None
    assert not world.raw.exists("shardq:{missing}:workers")


@pytest.mark.parametrize("minutes", [0, 481, -1, 1.5, True, "60", None])
def test_history_refuses_what_is_no_number_of_minutes(queue: Queue, minutes: Any) -> None:
    with pytest.raises(ConfigError, match="minutes"):
        queue.history(minutes)


def test_who_was_silent_for_an_hour_is_forgotten(queue: Queue, world: World) -> None:
    """A beat looks at others by chance, and only now and then."""
    for number in range(40):
        beat(queue, f"dead-{number}")
        hear_earlier(queue, world, f"dead-{number}", HOUR + 5)
    beat(queue, "silent")
    hear_earlier(queue, world, "silent", HOUR - 60)
    for _ in range(20_000):
        beat(queue)
        if world.raw.hlen(queue.state.keys.workers) == 3:
            break
    assert {each.id for each in queue.workers()} == {"w", "silent"}
    assert world.raw.hget(queue.state.keys.workers, "") == b""  # the key stays, whatever is dropped


def test_who_was_heard_before_the_clock_was_set_back_is_gone(queue: Queue, world: World) -> None:
    """Who lives is heard by the clock as it is, within a moment."""
    beat(queue, "gone")
    hear_earlier(queue, world, "gone", -600)
    beat(queue, "lives", numbers=f"{minute_now(queue)}|100|90||3|10|9|2|1500")
    assert {each.id: each.state for each in queue.workers()} == {"gone": "gone", "lives": "working"}
    assert queue.history()[-1].workers == 1


@pytest.mark.once
def test_with_ten_thousand_workers_one_goes_for_each_that_comes(queue: Queue, world: World) -> None:
    """That is one of those silent longest, and readers and beats are no slower."""
    now = int(queue.stats().time * 1000)
    for part in range(10):
        rows = {
            f"w{number}": f"{now - 100_000 + 10 * number}|{ROW}" for number in range(1000 * part, 1000 * (part + 1))
        }
        world.raw.hset(queue.state.keys.workers, mapping=rows)
    for number in range(100):
        beat(queue, f"new{number}")
    assert world.raw.hlen(queue.state.keys.workers) == 10_001
    found = {each.id for each in queue.workers()}
    assert len(found) == 10_000
    assert {f"new{number}" for number in range(100)} <= found
    gone = {f"w{number}" for number in range(10_000)} - found
    assert len(gone) == 100
    assert sum(int(each[1:]) for each in gone) / 100 < 3000  # of five by chance the oldest: 1,667 on the average


def test_the_first_beat_of_a_minute_is_asked_for_its_numbers(queue: Queue, world: World) -> None:
    queue.write_many([(number, "t") for number in range(3)])
    keys = queue.state.keys
    while True:  # a minute that begins meanwhile asks anew
        minute = minute_now(queue)
        world.raw.hdel(keys.minutes, "told")
        asked = [is_asked(queue, worker) for worker in ("a", "b", "a")]
        beat(queue, "a", numbers=f"{minute}|100|90||3|10|9|2|1500")
        after = [is_asked(queue, worker) for worker in ("a", "b")]
        if minute_now(queue) == minute:
            break
    assert (asked, after) == ([True, False, False], [False, False])
    (found,) = queue.history()
    assert (found.at, found.written, found.done) == (minute * 60.0, None, None)
    assert (found.backlog, found.runnable, found.in_flight, found.oldest_age) == (10, 9, 2, 1.5)
    assert (found.workers, found.slots, found.busy) == (2, 16, 5.0)


def test_another_is_asked_if_the_first_one_does_not_tell(queue: Queue, world: World) -> None:
    beat(queue, "a")
    now = int(queue.stats().time * 1000)
    world.raw.hset(queue.state.keys.minutes, "told", f"{now // 60_000}|{now - 3_000}")
    assert is_asked(queue, "b")
    assert not is_asked(queue, "c")


def test_minutes_are_told_once_and_only_of_now(queue: Queue, world: World) -> None:
    """Who comes late, or has another clock, changes nothing."""
    minute = minute_now(queue)
    for each in (minute, minute - 5, minute + 5, 0, 10**15):
        beat(queue, numbers=f"{each}|100|90||3|10|9|2|1500")
        beat(queue, numbers=f"{each}|777|90||3|10|9|2|1500")
        beat(queue, work=f"{each}|t=1,0,5,a1;")
    if minute_now(queue) == minute:
        fields = {field.decode() for field in world.raw.hkeys(queue.state.keys.minutes)}
        assert fields == {"", "told", f"m{minute % 480}", f"k{minute % 60}"}
        assert b"|777|" not in world.raw.hget(queue.state.keys.minutes, f"m{minute % 480}")


def test_history_compares_each_minute_with_the_one_before(queue: Queue, world: World) -> None:
    latest = minute_now(queue)
    for ago in range(480):
        if ago == 7:
            continue  # nobody worked
        minute = latest - ago
        numbers = 10_000 - 10 * ago
        world.raw.hset(
            queue.state.keys.minutes,
            mapping={
                f"m{minute % 480}": f"{minute}|1|8|2.00|{numbers}|{numbers}||{numbers}|1|1|0|",
                f"k{minute % 60}": f"{minute}|t=9,1,5,a10;",
            }
            if ago < 60
            else {f"m{minute % 480}": f"{minute}|1|8|2.00|{numbers}|{numbers}||{numbers}|1|1|0|"},
        )
    for wanted in (1, 8, 60, 480):
        found = queue.history(wanted)
        end = minute_now(queue)
        expected = [
            minute for minute in range(end - wanted + 1, latest + 1) if minute != latest - 7 and minute > end - 480
        ]
        assert [each.at for each in found][-len(expected) :] == [minute * 60.0 for minute in expected]
        for each in found:
            ago = latest - round(each.at / 60)
            known = ago not in (6, 479)
            assert each.written == each.done == each.dead == (10 if known else None)
            if known and ago < 58:
                assert (each.failed, [(task.task, task.done, task.failed) for task in each.tasks]) == (1, [("t", 9, 1)])


def test_what_workers_did_of_each_task_is_added(queue: Queue, world: World) -> None:
    """24 tasks and `other`, and nothing is lost."""
    minute = minute_now(queue)
    for number in range(60):
        beat(queue, work=f"{minute}|task-{number % 30}=3,1,250,a1c3;same=1,0,10,b1;")
    raw = world.raw.hget(queue.state.keys.minutes, f"k{minute % 60}")
    found = {each.task: each for each in task_minutes(raw)}
    assert len(found) == MAX_MINUTE_TASKS + 1
    assert (found["same"].done, found["same"].failed, found["same"].seconds, found["same"].durations[1]) == (
        60,
        0,
        0.6,
        60,
    )
    assert (found["task-3"].done, found["task-3"].failed, found["task-3"].durations[:3]) == (6, 2, (2, 0, 6))
    assert (found[OTHER].done, found[OTHER].failed) == (6 * 7, 2 * 7)
    assert sum(each.done for each in found.values()) == 240


def test_work_is_the_same_before_and_after_it_is_added_up(queue: Queue, world: World, rng: Random) -> None:
    """Workers write behind each other until the text is long; readers add up the same as Redis does."""
    minute, field = minute_now(queue), f"k{minute_now(queue) % 60}"
    expected: dict[str, list[int]] = {}
    folded = False
    for _ in range(300):
        work = f"{minute}|"
        for task in rng.sample(range(20), rng.randint(1, 20)):
            row = expected.setdefault(f"a.task-{task}", [0] * 19)
            done, failed, ms = (rng.randrange(10 ** rng.randint(1, 6)) for _ in range(3))
            buckets = {at: rng.randrange(1, 10**5) for at in rng.sample(range(16), rng.randint(0, 16))}
            for at, number in ((0, done), (1, failed), (2, ms), *((3 + at, number) for at, number in buckets.items())):
                row[at] += number
            letters = "".join(f"{'abcdefghijklmnop'[at]}{number}" for at, number in buckets.items())
            work += f"a.task-{task}={done},{failed},{ms},{letters};"
        before = world.raw.hstrlen(queue.state.keys.minutes, field)
        beat(queue, work=work)
        folded |= world.raw.hstrlen(queue.state.keys.minutes, field) < before
        assert world.raw.hstrlen(queue.state.keys.minutes, field) <= 16384
    raw = world.raw.hget(queue.state.keys.minutes, field)
    if not raw.startswith(b"%d|" % minute) or minute_now(queue) > minute + 1:
        return  # an hour, or more than a minute, went by
    assert folded
    assert {
        each.task: [each.done, each.failed, round(1000 * each.seconds), *each.durations] for each in task_minutes(raw)
    } == expected


def test_a_minute_that_is_over_is_added_up(queue: Queue, world: World) -> None:
    """So an hour of minutes takes little memory, whoever has done how much in them."""
    keys = queue.state.keys
    while True:
        minute = minute_now(queue)
        over = f"k{(minute - 2) % 60}"
        world.raw.hdel(keys.minutes, f"m{minute % 480}")
        world.raw.hset(keys.minutes, over, f"{minute - 2}|" + "t=1,0,5,a1;u=0,1,7,b1;" * 50)
        beat(queue, numbers=f"{minute}|1|1||0|2|2|2|7")
        if minute_now(queue) == minute:
            break
    assert world.raw.hget(keys.minutes, over).decode() == f"{minute - 2}|t=50,0,250,a50;u=0,50,350,b50;"


def test_of_malformed_work_the_rest_counts(queue: Queue, world: World) -> None:
    """Before and after Redis has added it up; names that no worker writes are among the others."""
    minute = minute_now(queue)
    keys, field = queue.state.keys, f"k{minute % 60}"
    malformed = (
        "a|b=1,0,1,a1;", "=;;", "x=1;", "\n=1,0,1,;", "y" * 200 + "=1,0,1,;", "x=1,1,1,\xff;", "x=,,,;", "x" * 500,
    )  # fmt: skip
    counts = []
    for times in (1, 30):
        for _ in range(times):
            beat(queue, work=f"{minute}|" + "good=1,0,2,c1;".join(malformed))
        found = {each.task: each.done for each in task_minutes(world.raw.hget(keys.minutes, field))}
        counts.append((found["good"], found[OTHER]))
    if minute_now(queue) <= minute + 1:
        assert counts == [(7, 3), (31 * 7, 31 * 3)]


def test_work_without_an_end_holds_nobody_up(queue: Queue) -> None:
    """Redis looks once at each letter of it, whatever it is: there are many ways to divide a row of digits."""
    minute = minute_now(queue)
    for digits in ("1" * 12_000, "a1" * 6_000, "a" * 12_000):
        for work in (f"x=1,1,1,{digits}", f"{digits}=1,1,1", "x=" + digits, "x=1,1,1,a1;" * 500):
            beat(queue, work=f"{minute}|{work}")
            beat(queue, work=f"{minute}|{work}")
    assert beat(queue) is not None


def test_digits_that_count_in_no_bucket_lengthen_no_other(queue: Queue, world: World) -> None:
    minute = minute_now(queue)
    for _ in range(1200):
        beat(queue, work=f"{minute}|x=1,0,1,7a1b2;")
    raw = world.raw.hget(queue.state.keys.minutes, f"k{minute % 60}")
    (found,) = task_minutes(raw)
    if minute_now(queue) <= minute + 1:
        assert (found.done, found.durations[:3]) == (1200, (1200, 2400, 0))


def test_a_number_beyond_all_bounds_spoils_nothing(queue: Queue, world: World) -> None:
    minute = minute_now(queue)
    for _ in range(9):
        beat(
            queue,
            work=f"{minute}|a={'9' * 300},1,{'9' * 399},a{'9' * 400};b=1,1,1,a1;build-20261129231734123456=1,0,0,;",
        )
        beat(queue, work=f"{minute}|b=1,1,1,a1;" + "c=1,0,0,;" * 200)
    found = {each.task: each for each in task_minutes(world.raw.hget(queue.state.keys.minutes, f"k{minute % 60}"))}
    assert (found["a"].done, found["a"].failed, found["a"].seconds) == (99999999999999, 9, 99999999999.999)
    assert (found["b"].done, found["b"].durations[0], found["c"].done) == (18, 18, 1800)
    assert found["build-20261129231734123456"].done == 9


BAD: Sequence[tuple[str | bytes, str, str, str]] = (
    ("", ROW, "", ""),
    ("w" * 257, ROW, "", ""),
    ("w", "", "", ""),
    ("w", "2|8|2.50|", "", ""),
    ("w", ROW + "x" * 1000, "", ""),
    ("w", ROW, "x", ""),
    ("w", ROW, "5a=1,2,3,;", ""),
    ("w", ROW, "5|" + "a=1,2,3,;" * 2000, ""),
    ("w", ROW, "", "x"),
    ("w", ROW, "", "5|1|x"),
    ("w", ROW, "", "5|" + "1|" * 200),
)


@pytest.mark.parametrize("words", BAD, ids=range(len(BAD)))
def test_a_beat_of_something_else_is_refused(
    queue: Queue, world: World, words: tuple[str | bytes, str, str, str]
) -> None:
    before = world.dump()
    with pytest.raises(BackendError, match="refused"):
        beat(queue, *words)
    assert world.dump() == before


def test_what_anybody_writes_into_the_keys_stops_nobody(queue: Queue, world: World) -> None:
    beat(queue)
    keys, minute = queue.state.keys, minute_now(queue)
    hostile = [
        *(b"", b"x" * 100_000, b"\xff\n|;,\0" * 20, b"9" * 400, b"1|0|8|inf" + b"|" * 14, b"|" * 17, b"nan|" * 17),
    ]
    for number, row in enumerate(hostile):
        world.raw.hset(keys.workers, f"bad-{number}", row)
        world.raw.hset(keys.workers, b"\xff\0|" * number + b"!", row)
    world.raw.hset(keys.workers, "y" * 100_000, ROW)
    assert [each.id for each in queue.workers()] == ["w"]
    for row in hostile:
        for field in ("m", "k"):
            world.raw.hset(keys.minutes, f"{field}{minute % (480 if field == 'm' else 60)}", b"%d|" % minute + row)
        world.raw.hset(keys.minutes, "told", row)
        queue.history()
        for _ in range(8):
            beat(queue, work=f"{minute}|t=1,0,5,a1;", numbers=f"{minute}|1|1||0|2|2|2|7")
    assert "w" in {each.id for each in queue.workers()}


def test_delete_takes_them_and_a_new_queue_has_none(queue: Queue, client: Client, world: World) -> None:
    minute = minute_now(queue) if queue.write("x", shard_key="t") else 0
    beat(queue, numbers=f"{minute}|1|1||0|2|2|2|7", work=f"{minute}|t=1,0,5,a1;")
    keys = queue.state.keys
    queue.delete(expected=None)
    assert not world.raw.exists(keys.workers)
    assert not world.raw.exists(keys.minutes)
    queue.write("x", shard_key="t")
    assert queue.workers() == []
    assert queue.history() == []

"""What workers tell of themselves, as text: it is bounded, names of any bytes round trip, and any text can be read."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from shardq.model import WorkerStatus
from shardq.model.worker_status import PICKUP_BOUNDS
from shardq.protocol.beats import (
    BUCKETS,
    MAX_NAME,
    MAX_RANK,
    MAX_ROW,
    Beat,
    TaskCount,
    TenantCount,
    bucket_of,
    minute_row,
    minutes_of,
    percentile,
    quoted,
    spell_row,
    spell_work,
    task_minutes,
    worker_id,
    workers_of,
)

NOTHING = (0,) * BUCKETS
NOW = 1_800_000_000.0
HOSTILE: Sequence[str] = (
    "a|b", "a;b,c=d", "new\nline", "nul\0", "%7C", "é" * 300, "\ud800", "x" * 10_000, "", " ", "|||||||||||||||||",
)  # fmt: skip


def beat(**changes: object) -> Beat:
    usual = Beat(
        is_end=False, slots=8, busy=2.5, started=NOW - 60, pid=7, memory=1 << 20, memory_limit=1 << 21, version="0.1.0",
        host="host", longest_since=NOW - 5, longest_message="1-1-0", longest_task="mail.send", tasks={}, tenants={},
        others=NOTHING,
    )  # fmt: skip
    return usual._replace(**changes)  # type: ignore[arg-type]


def read(row: str, at: float = NOW, worker: str = "w") -> WorkerStatus:
    (found,) = workers_of("jobs", NOW, [worker.encode(), f"{at * 1000:.0f}|{row}".encode()])
    return found


def test_what_a_worker_of_a_later_version_says_besides_is_passed_over() -> None:
    row = spell_row(beat())
    assert read(f"{row}|more|and more") == read(row)


def test_a_worker_is_read_as_it_was_told() -> None:
    buckets = [0] * BUCKETS
    buckets[3] = 100
    told = beat(
        tasks={"mail.send": TaskCount(99, 1, 50.0, buckets)},
        tenants={"acme": TenantCount(100, 50.0, buckets), b"\xff\x00": TenantCount(1, 1.0, NOTHING)},
        others=buckets,
    )
    found = read(spell_row(told))
    assert (found.state, found.heard, found.slots, found.busy) == ("working", NOW, 8, 2.5)
    assert (found.longest_since, found.longest_message, found.longest_task) == (NOW - 5, "1-1-0", "mail.send")
    assert (found.started, found.pid, found.version, found.host) == (NOW - 60, 7, "0.1.0", "host")
    assert (found.memory, found.memory_limit) == (1 << 20, 1 << 21)
    assert read(spell_row(beat(memory_limit=None))).memory_limit is None
    (task,) = found.tasks
    assert (task.task, task.done, task.failed, task.seconds, found.done, found.failed) == (
        "mail.send",
        99,
        1,
        0.5,
        99,
        1,
    )
    first, second = found.tenants
    assert (first.shard_key, first.done, first.seconds, first.pickup_p99) == ("acme", 100, 0.5, 0.03)
    assert (second.shard_key, second.pickup_p99) == (b"\xff\x00", None)
    assert found.other_tenants == tuple(buckets)


@pytest.mark.parametrize(
    ("silent", "is_end", "state"), [(29, False, "working"), (31, False, "gone"), (31, True, "ended")]
)
def test_who_is_silent_is_gone_and_who_said_so_has_ended(silent: float, is_end: bool, state: str) -> None:
    assert read(spell_row(beat(is_end=is_end)), NOW - silent).state == state


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_end_no_part_of_a_row(name: str) -> None:
    counts = TaskCount(1, 0, 1.0, NOTHING)
    row = spell_row(
        beat(
            host=name, version=name, longest_task=name, longest_message=name, tasks={name: counts, "b": counts},
            tenants={name or "-": TenantCount(1, 1.0, NOTHING), "other": TenantCount(1, 1.0, NOTHING)},
        )
    )  # fmt: skip
    assert len(row) <= MAX_ROW
    assert row.isascii()
    assert row.isprintable()
    found = read(row)
    clean = name.encode(errors="replace").decode()
    if len(quoted(clean, 10**6)) <= 64:
        assert (found.host, found.longest_task, found.tasks[0].task) == (clean, clean, clean)
        assert {each.shard_key for each in found.tenants} == {clean or "-", "other"}
    assert clean.startswith(found.host)
    assert {each.task for each in found.tasks} >= {"b"}


def test_a_row_is_bounded_whatever_is_in_it() -> None:
    """What has no room of the tenants counts among the others."""
    random = Random()
    for _ in range(40):
        tenants = {
            random.randbytes(random.randint(1, 200)): TenantCount(random.randint(1, 10**9), 1e9, (1,) * BUCKETS)
            for _ in range(random.randint(0, 200))
        }
        tasks = {
            "".join(chr(random.randint(32, 0x2FFF)) for _ in range(random.randint(0, 90))): TaskCount(
                random.randint(0, 10**9), random.randint(0, 10**9), 1e9, NOTHING
            )
            for _ in range(random.randint(0, 200))
        }
        row = spell_row(beat(tasks=tasks, tenants=tenants))
        assert len(row) <= MAX_ROW
        found = read(row)
        assert len(found.tasks) <= MAX_RANK
        assert len(found.tenants) <= MAX_RANK
        assert found.other_tenants == (len(tenants) - len(found.tenants),) * BUCKETS
        assert all(len(quoted(each.shard_key, 10**6)) <= MAX_NAME for each in found.tenants)


def test_the_busiest_stay() -> None:
    tenants = {f"t{number}": TenantCount(number, 1.0, NOTHING) for number in range(1, 60)}
    found = read(spell_row(beat(tenants=tenants)))
    assert [each.shard_key for each in found.tenants] == [f"t{number}" for number in range(59, 39, -1)]


def test_rows_of_anybody_are_read_or_left_out() -> None:
    """Readers are not stopped by what another program wrote."""
    random = Random()
    good = f"{NOW * 1000:.0f}|{spell_row(beat())}".encode()
    for _ in range(1000):
        raw = bytearray(good)
        for _ in range(random.randint(1, 8)):
            at = random.randrange(len(raw))
            raw[at : at + random.randint(0, 3)] = random.choice(
                [b"|", b"\xff", b"\0", b"9" * 400, b"-", b"e", b"\n", b""]
            )
        flat = [b"good", good, b"\xff\n", bytes(raw), b"inf", b"1|0|1|inf" + b"|" * 14, b"", b"x" * 100_000]
        found = {each.id for each in workers_of("jobs", NOW, flat)}
        assert "good" in found
        minute_row(bytes(raw))
        task_minutes(bytes(raw))


def test_a_percentile_lies_within_its_bucket() -> None:
    random = Random()
    for _ in range(300):
        values = sorted(random.expovariate(1 / 10 ** random.uniform(-3, 3)) for _ in range(random.randint(1, 300)))
        counts = [0] * BUCKETS
        for value in values:
            counts[bucket_of(value)] += 1
        for part in (0.5, 0.99):
            exact = values[min(len(values) - 1, int(part * len(values) - 1e-9))]
            place, found = bucket_of(exact), percentile(counts, part)
            assert found is not None
            lower = PICKUP_BOUNDS[place - 1] if place else 0.0
            assert lower <= found <= max(lower, min(PICKUP_BOUNDS[place], PICKUP_BOUNDS[-2]))
    assert percentile(NOTHING, 0.99) is None


def test_minutes_tell_what_was_counted_since_the_one_before() -> None:
    rows = [
        (b"5|1|8|2.50|100|90||3|10|9|2|1500", b"5|mail=10,2,3000,a1b2;"),
        (b"6|2|16|0.00|130|110||4|8|8|0|", b"6|mail=1,0,3,a1;other=3,0,9,;zeta=5,0,1,;"),
        (b"", b""),
        (b"8|2|16|0.00|90|120||4|8|8|0|", b""),
        (b"9|2|16|0.00|91|119|7|4|8|8|0|", b""),
        (b"10|2|16|0.00|91|119|9|4|8|8|0|", b""),
    ]
    second, fourth, fifth, sixth = minutes_of(rows, 6)
    assert (second.at, second.written, second.done, second.failed, second.dead) == (360.0, 30, 20, 2, 1)
    assert [(each.task, each.durations[:3]) for each in second.tasks] == [("mail", (1, 2, 0))]
    assert (second.workers, second.slots, second.oldest_age) == (2, 16, None)
    assert (fourth.written, fourth.done, fourth.failed) == (None, None, None)  # the minute before is missing
    assert (fifth.written, fifth.done, fifth.failed) == (1, None, None)  # a counter that went back says nothing
    assert (sixth.failed, sixth.dead) == (2, 0)
    assert [each.task for each in task_minutes(rows[1][1])] == ["zeta", "mail", "other"]


def test_work_names_only_tasks_of_which_something_was_done() -> None:
    assert spell_work(7, {"a": TaskCount(0, 0, 0.0, NOTHING)}) == ""
    assert spell_work(7, {"a|b": TaskCount(1, 2, 0.5, (0, 3, *NOTHING[2:]))}) == "7|a%7Cb=1,2,500,b3;"


def test_two_workers_never_have_one_id() -> None:
    """Containers may all have the process number 1, and users the same name for all clients."""
    ids = [
        worker_id(name, host, pid, number)
        for name in ("a", "h-1")
        for host in "hg"
        for pid in (1, 2)
        for number in (1, 2)
    ]
    assert len({*ids}) == len(ids)

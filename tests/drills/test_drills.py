"""What breaks at night, on the real thing: the first line of `shardq queues` says what it is, in the design's words.

Each drill is a section of docs/on-call.md: what it says there to do ends what the line says.
"""

from __future__ import annotations

import re
import time
from itertools import count

import pytest

from shardq import Message
from tests.drills.conftest import Watch, fill_up
from tests.drills.handlers import send_digest, send_receipt
from tests.waiting import eventually

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(300)]

WITHIN = 35.0
"""Seconds within which it is said that all workers are dead."""
CLOCK = r"\d\d:\d\d"


def test_all_workers_are_dead(watch: Watch) -> None:
    exports = watch.client.queue("exports", create=True)
    exports.declare()
    for _ in range(2):
        watch.work("export", "-q", "exports", "-c", "4")
    watch.heard(2)
    assert watch.sentence() == "Nothing waits in exports."
    watch.kill_all_workers()
    died = time.monotonic()
    exports.write_many([Message(number, f"t{number % 7}") for number in range(420)])
    eventually(lambda: exports.verdict().kind == "no_worker", 90, every=0.1, what="that nobody works is said")
    assert time.monotonic() - died <= WITHIN
    assert re.match(rf"exports has no worker since {CLOCK}: 420 messages wait\.$", watch.sentence())
    assert watch.shardq("workers").splitlines()[0] == "No worker reads exports."
    watch.work("export", "-q", "exports", "-c", "64")
    watch.says(lambda line: "no worker" not in line)


def test_all_workers_ended_in_order(watch: Watch) -> None:
    """As by a deploy that starts none again: while another may be starting nothing is said to flow."""
    exports = watch.client.queue("exports", create=True)
    exports.declare()
    works = watch.work("export", "-q", "exports", "-c", "4")
    watch.heard(1)
    works.terminate()
    assert works.wait(60) == 0
    exports.write_many([Message(number, f"t{number % 7}") for number in range(420)])
    kinds = list[str]()

    def is_said() -> bool:
        kinds.append(exports.verdict().kind)
        return kinds[-1] == "no_worker"

    eventually(is_said, WITHIN, every=0.1, what="that nobody works is said")
    assert set(kinds) <= {"idle", "no_worker"}
    assert re.match(rf"exports has no worker since {CLOCK}: 420 messages wait\.$", watch.sentence())


def test_one_tenant_floods(watch: Watch) -> None:
    reports = watch.client.queue("reports", create=True)
    others = [f"tenant-{number}" for number in range(8)]
    watch.work("export", "-q", "reports", "-c", "2")
    reports.write_many([Message(number, "lumen-labs") for number in range(6_000)])
    numbers = count()

    def floods(line: str) -> object:
        reports.write_many([Message(next(numbers), name) for name in others])
        return re.match(
            r"lumen-labs holds \d\d % of what waits\. It drains in [\d.]+ (s|min); the other 8 tenants wait "
            r"[\d.]+ (ms|s)\.$",
            line,
        )

    watch.says(floods)
    told = watch.shardq("stats", "reports")
    assert "pausing lumen-labs: no use to the others" in told
    watch.shardq("purge", "reports", "-t", "lumen-labs", "--yes")
    watch.says(lambda line: "lumen-labs" not in line)


def test_one_kind_of_task_fails(watch: Watch) -> None:
    queue = watch.client.queue("mails", create=True)
    calls = (send_receipt, send_digest)
    queue.write_many([Message(task.call(number), f"t{number % 9}") for number in range(90) for task in calls])
    watch.work("mails", "-c", "8")
    watch.says(
        re.compile(
            rf"mail\.send_receipt fails since {CLOCK}: TimeoutError, [\d,]+ in 10 min, of 9 tenants\. "
            r"The other kinds of task are well\.$"
        ).match
    )
    told = watch.shardq("failures", "mails", "--error", "TimeoutError")
    assert "in send_receipt" in told, "where it was raised"
    assert "10" in watch.shardq("retry", "mails", "--error", "TimeoutError", "-n", "10", "--rate", "50", "--yes")


def test_redis_is_full(small: Watch) -> None:
    reports = small.client.queue("reports", create=True)
    fill_up(reports)
    said = small.says(
        re.compile(
            rf"Redis is full \(\d\d\d? % of 12 MB\): writes fail since {CLOCK}, [\d,]+ so far; reads and acks go on\.$"
        ).match
    )
    small.work("export", "-q", "reports", "-c", "16")
    small.says(lambda line: "full" not in line)
    assert reports.write(b"x", shard_key="t1"), said


def test_a_pause_was_forgotten(watch: Watch) -> None:
    invoices = watch.client.queue("invoices", create=True)
    invoices.declare()
    watch.work("export", "-q", "invoices")
    watch.heard(1)
    watch.shardq("pause", "invoices", "--by", "jonas", "--note", "ticket 812", "--yes")
    invoices.write_many([Message(number, f"t{number % 30}") for number in range(1_000)])
    invoices.write_many([Message(number, f"t{number % 30}") for number in range(1_000)])
    invoices.write_many([Message(number, f"t{number % 30}") for number in range(663)])
    watch.says(re.compile(rf"2,663 wait because jonas paused it at {CLOCK}, without an end\.$").match)
    assert "ticket 812" in watch.shardq("limits", "invoices")
    watch.shardq("resume", "invoices")
    watch.says(lambda line: "paused" not in line)


def test_several_are_told_the_worst_first(watch: Watch) -> None:
    for name in ("invoices", "exports", "thumbnails"):
        queue = watch.client.queue(name, create=True)
        queue.write_many([Message(number, "t") for number in range(3)])
    watch.shardq("pause", "invoices", "--by", "jonas", "--yes")
    lines = watch.shardq("queues").splitlines()
    assert lines[0] == "2 of 3 queues need you."
    assert sorted(lines[1:3]) == [f"{name} has no worker: 3 messages wait." for name in ("exports", "thumbnails")]
    assert re.match(rf"invoices: 3 wait because jonas paused it at {CLOCK}, without an end\.$", lines[3])

"""Sentences that the page and the command line share: of workers, failures, actions and schedules."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.model.action import ActionStatus
from shardq.model.failure import Failure
from shardq.model.minute import TaskMinute
from shardq.model.outlook import Outlook
from shardq.model.schedule import Schedule
from shardq.model.status import MessageState, MessageStatus
from shardq.model.verdict import Severity, Verdict, VerdictKind
from shardq.model.where import Where
from shardq.outlook import crew, failing, timely, underway
from shardq.outlook.outlook import outlook_of
from shardq.outlook.sentence import joined
from tests.outlook.given import NOON, facts, group, minutes, stats, worker


def verdict(kind: VerdictKind, severity: Severity = "bad") -> Verdict:
    return Verdict("jobs", NOON, kind, severity, "It is so.")


def outlook(**known: Any) -> Outlook:
    return outlook_of(facts(stats(**known)))


@pytest.mark.parametrize(
    ("found", "unread", "queue", "said"),
    [
        ([], [], "", "No worker was heard in the last 30 s."),
        ([], [], "jobs", "No worker reads jobs."),
        ([], ["jobs"], "", "No worker reads jobs."),
        ([[worker()]], [], "", "1 worker works, 8 of 8 slots busy."),
        ([[worker(), worker()]], [], "", "1 worker works, 16 of 8 slots busy."),
        ([[worker()], [worker("w2")]], [], "jobs", "2 workers read jobs, 16 of 16 slots busy."),
        (
            [[worker()], [worker("w2", state="gone")]],
            [*"abcde"],
            "",
            "No worker reads a, b, c and 2 more. 1 worker reads the others, 8 of 8 slots busy.",
        ),
    ],
)
def test_who_works_is_one_sentence(found: list[list[Any]], unread: list[str], queue: str, said: str) -> None:
    assert joined(crew.heading(found, unread, queue))[0] == said


def test_a_full_server_hides_that_nobody_reads_so_the_outlook_is_asked() -> None:
    assert crew.is_unread(verdict("no_worker"), None)
    assert not crew.is_unread(verdict("paused"), None)
    assert not crew.is_unread(verdict("redis_full"), None)
    assert crew.is_unread(verdict("redis_full"), outlook(backlog=3))


def test_what_a_task_usually_takes_is_what_99_of_100_of_its_jobs_took() -> None:
    tasks = (
        TaskMinute("mail", 100, 0, 1.0, (0, 0, 100, *[0] * 13)),
        TaskMinute("other", 1, 0, 900.0, (*[0] * 15, 1)),
    )
    assert crew.usual(minutes(3, tasks=tasks), "mail") == pytest.approx(0.00993)
    assert crew.usual(minutes(3, tasks=tasks), "unknown") is None


@pytest.mark.parametrize(
    ("groups", "retrying", "said"),
    [
        ([], 0, ""),
        ([group(dead=0)], 1, "1 waits for a next try and needs nothing from you. "),
        ([group(dead=0, recent=0), group("b", dead=3, recent=0)], 0, "3 are dead: redrive when the cause is mended."),
        ([group(dead=4)], 0, "4 are dead of what still fails: mend that before you redrive."),
        (
            [group(dead=1), group("b", dead=3, recent=0)],
            0,
            "4 are dead, 1 of them of what still fails: mend that before you redrive.",
        ),
        (
            [group(dead=0), group("b", dead=1, recent=0)],
            0,
            "1 is dead of other errors than what fails now: redrive when their cause is mended.",
        ),
    ],
)
def test_it_is_said_what_is_to_be_done_about_failures(groups: list[Failure], retrying: int, said: str) -> None:
    assert joined(failing.advice(groups, failing.fails_by_count(groups), retrying))[0] == said


def action(**known: Any) -> ActionStatus:
    usual: dict[str, Any] = {
        "id": "1", "kind": "redrive", "where": Where(), "state": "running", "by": "mira", "note": "", "rate": 50.0,
        "limit": None, "started": NOON, "heard": NOON, "done": 1_204, "passed": 0, "left": 800,
    }  # fmt: skip
    return ActionStatus(**usual | known)


def test_what_is_under_way_says_how_far_it_is() -> None:
    told = "mira has a redrive under way: 1,204 done, 800 left, 50/s, 16 s more."
    assert joined(underway.heading([action()]))[0] == told
    assert joined(underway.heading([action(), action(id="2")]))[0] == f"{told} 1 other runs."
    assert joined(underway.heading([action(state="abandoned")]))[0] == "1 action was left behind by a process."
    assert joined(underway.heading([action(state="done")]))[0] == "No action runs."


def schedule(name: str = "digest", **known: Any) -> Schedule:
    usual: dict[str, Any] = {
        "task": "mail", "shard_key": "cron", "cron": "0 6 * * *", "tz": "UTC", "every": None, "catch_up": "skip",
        "paused": False, "last": NOON, "next": NOON + 240,
    }  # fmt: skip
    return Schedule(name, **usual | known)


@pytest.mark.parametrize(
    ("schedules", "late", "failed", "said"),
    [
        ([], 0, [], "No schedule is stored."),
        ([schedule(next=None, paused=True)], 0, [], "The only schedule is paused."),
        ([schedule(next=None, paused=True)] * 2, 0, [], "All 2 schedules are paused."),
        ([schedule("b", next=NOON + 900), schedule("a")], 0, [], "a is next, in 4 min."),
        ([schedule()], 1, [], "digest is next, in 4 min. 1 schedule will be late."),
        ([schedule()], 0, ["gc"], "digest is next, in 4 min. gc failed at its last run."),
        ([schedule()], 0, ["gc", "sync"], "digest is next, in 4 min. gc and 1 other failed at the last run."),
    ],
)
def test_what_is_next_is_said_and_what_is_wrong(
    schedules: list[Schedule], late: int, failed: list[str], said: str
) -> None:
    assert joined(timely.heading(schedules, late, failed, NOON))[0] == said


def test_when_a_schedule_is_due_is_said_in_words() -> None:
    assert schedule().when == "0 6 * * * (UTC)"
    assert schedule(cron=None, every=300).when == "every 300 s"


def test_a_call_is_late_where_nobody_reads_or_the_queue_is_paused() -> None:
    read = outlook_of(facts(stats(), is_read=True))
    assert timely.why_late("jobs", verdict("quiet", "good"), read) == ""
    assert timely.why_late("jobs", verdict("paused", "pause"), read) == "jobs is paused: its calls will wait"
    assert timely.why_late("jobs", verdict("redis_full"), read).startswith("Redis is full")
    assert timely.why_late("jobs", verdict("idle"), outlook()) == "no worker reads jobs: nobody writes its calls"


@pytest.mark.parametrize(
    ("state", "deliveries", "kind", "words"),
    [
        ("waiting", None, "waits", "waits"),
        ("held_back", None, "waits", "waits"),
        ("delayed", 0, "comes", "not due"),
        ("delayed", 2, "retry", "is tried again"),
        ("in_flight", 1, "runs", "runs"),
        ("dead", 3, "failed", "failed"),
        ("done", None, "done", "done"),
        ("unknown", None, "done", "settled"),
    ],
)
def test_what_became_of_a_call_is_said_in_a_word(
    state: MessageState, deliveries: int | None, kind: str, words: str
) -> None:
    assert timely.became(MessageStatus("1-1-0", state, NOON, deliveries=deliveries)) == (kind, words)

"""The screens, of made-up values: to the letter, never wider than the terminal, harmless whatever is stored."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from shardq.cli.grid import Column, Rest, grid
from shardq.cli.screens import actions, failures, queues, stats, workers
from shardq.cli.width import cut, width, wrapped
from shardq.model.action import ActionStatus
from shardq.model.failure import Failure
from shardq.model.outlook import Help, Outlook
from shardq.model.stats import QueueStats
from shardq.model.verdict import Verdict
from shardq.model.where import Where
from shardq.model.worker_status import WorkerStatus
from shardq.outlook.failing import fails_by_count
from shardq.outlook.queues import QueueLook
from tests.cli.test_text import obeyed

NOW = 1_795_833_060.0
"""02:31 on a Saturday, UTC."""
HOSTILE = (
    "\x1b]0;owned\x07\x9b31m\u202egnp.exe\x7f\nfake  line",
    "x" * 10_000,
    "株式会社" * 50,
    "e" + "\u0301" * 5_000,
    "a|b'c\"d`e$(f)",
    "-rf",
    "\ud800\udcff",
    "👩‍👩‍👧" * 40,
    "",
)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are shown in UTC, on a terminal of 80 columns."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "80")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def worker(**known: Any) -> WorkerStatus:
    usual: dict[str, Any] = {
        "id": "reports-7d9f6b-m4c7d", "queue": "reports", "state": "working", "heard": NOW - 2, "started": NOW - 9_000,
        "version": "1", "host": "reports-7d9f6b-m4c7d", "pid": 7, "slots": 16, "busy": 16.0, "longest_since": NOW - 420,
        "longest_message": "1-1", "longest_task": "report", "memory": 0, "memory_limit": None, "done": 4, "failed": 0,
    }  # fmt: skip
    return WorkerStatus(**usual | known)


def failure(**known: Any) -> Failure:
    usual: dict[str, Any] = {
        "task": "mail.send_receipt", "error_type": "TimeoutError", "reason": "retry", "retried": 1_840, "dead": 0,
        "first": NOW - 1_075, "last": NOW - 1, "newest": "1-1", "minutes": (0,) * 7 + (40, 500, 600, 1_000, 4),
        "recent": 2_104, "tenants": ("acme",), "tenants_lately": 9,
    }  # fmt: skip
    return Failure(**usual | known)


def numbers(name: str = "reports", **known: Any) -> QueueStats:
    usual: dict[str, Any] = {
        "backlog": 13_097,
        "in_flight": 74,
        "delayed": 0,
        "dead": 33,
        "oldest_age": 480.0,
        "wanted": 1,
    }
    return QueueStats(queue=name, time=NOW, streams=(1,), **usual | known)


def outlook(**known: Any) -> Outlook:
    usual: dict[str, Any] = {
        "queue": "reports", "time": NOW, "waits": 13_097, "reasons": {"turn": 12_861, "limit": 188, "pause": 48},
        "drains": "drains", "drain_seconds": 480.0, "why": "", "grows": False, "rate": 27.0, "written_rate": 1.0,
        "slots": 112, "busy": 74.0, "workers": 6, "is_read": True,
    }  # fmt: skip
    return Outlook(**usual | known)


def verdict(sentence: str, kind: str = "flows", severity: str = "good", queue: str = "reports") -> Verdict:
    told: Any = {"kind": kind, "severity": severity}
    return Verdict(queue=queue, time=NOW, sentence=sentence, **told)


def action(**known: Any) -> ActionStatus:
    usual: dict[str, Any] = {
        "id": "7f3a", "kind": "redrive", "where": Where(error="TimeoutError"), "state": "running", "by": "jonas@ops",
        "note": "", "rate": 50.0, "limit": None, "started": NOW - 60, "heard": NOW, "done": 1_204, "passed": 3,
        "left": 800,
    }  # fmt: skip
    return ActionStatus(**usual | known)


def text(*lines: str) -> list[str]:
    return list(lines)


def test_workers_are_as_designed() -> None:
    gone = worker(
        id="exports-6f5c9-hx2lq", host="exports-6f5c9-hx2lq", queue="exports", state="gone", heard=NOW - 1_318,
        memory=502 * 1024**2, memory_limit=512 * 1024**2,
    )  # fmt: skip
    others = [
        worker(
            id=f"mails-{n}",
            host=f"mails-{n}",
            queue="mails",
            busy=9.0,
            slots=16,
            longest_since=NOW - 0.4,
            done=700,
            failed=7,
        )
        for n in (1, 2)
    ]
    assert workers.lines([gone, worker(), *others], NOW, unread=["exports"])[:2] + workers.lines(
        [gone, worker(), *others], NOW, unread=["exports"]
    )[-1:] == text(
        "No worker reads exports. 3 workers read the others, 34 of 48 slots busy.",
        "WORKER                QUEUES    BUSY  LONGEST  DONE/MIN   FAIL  HEARD",
        "exports-6f5c9-hx2lq   exports  gone at 02:09, memory 98 % of 512 MB",
    )
    assert "reports-7d9f6b-m4c7d  reports  16/16    7 min         4    0 %    2 s" in workers.lines(
        [worker(), *others], NOW
    )


def test_stats_are_as_designed() -> None:
    helps = (
        Help("two more workers", True, 240.0, 480.0, "4 min instead of 8 min"),
        Help("pausing lumen-labs", False, None, None, "no use to the others"),
    )
    sentence = "lumen-labs holds 98 % of what waits. It drains in 8 min; 38 others wait 0.5 s."
    assert stats.lines(verdict(sentence, "flood", "warn"), outlook(helps=helps)) == text(
        "lumen-labs holds 98 % of what waits. It drains in 8 min; 38 others wait 0.5 s.",
        "waiting 13,097: for a turn 12,861, a limit 188, paused 48     drains in 8 min",
        "two more workers: 4 min    pausing lumen-labs: no use to the others",
    )


def test_failures_are_as_designed() -> None:
    digest = failure(
        task="mail.send_digest", error_type="SMTPRecipientsRefused", reason="dead", retried=0, dead=33,
        first=NOW - 9 * 86_400, last=NOW - 180, recent=2, minutes=(0,) * 11 + (2,), tenants_lately=1,
    )  # fmt: skip
    fails = frozenset({("mail.send_receipt", "TimeoutError")})
    assert failures.lines([failure(), digest], fails, NOW, queue="mails") == text(
        "mail.send_receipt fails since 02:13: TimeoutError, 2,104 in 10 min, 9 tenants.",
        "TASK               ERROR                  10 MIN  RETRIED  DEAD  SINCE    LAST",
        "mail.send_receipt  TimeoutError            2,104    1,840     0  02:13     1 s",
        "mail.send_digest   SMTPRecipientsRefused       2        0    33  19 Nov  3 min",
        "shardq redrive mails --error SMTPRecipientsRefused --rate 50  # 33 dead letters",
    )


LOOKS = {
    "exports": ("exports has no worker since 02:09: 420 messages wait.", "no_worker", "bad"),
    "mails": ("mail.send_receipt fails since 02:13: TimeoutError, 2,104 in 10 min.", "failing", "bad"),
    "invoices": ("2,663 wait because jonas paused it Thursday 16:02, without an end.", "paused", "pause"),
    "reports": ("lumen-labs holds 98 % of what waits. It drains in 8 min.", "flood", "warn"),
    "thumbnails": ("Flows: 12/s, nobody waits longer than 0.5 s.", "flows", "good"),
}


def look(name: str, **known: Any) -> QueueLook:
    sentence, kind, severity = LOOKS[name]
    return QueueLook(name, numbers(name, **known), verdict(sentence, kind, severity, name), outlook(queue=name))


def test_the_first_line_says_how_many_queues_need_you_and_then_why_the_worst_first() -> None:
    told = queues.lines([look(name) for name in sorted(LOOKS)])
    assert told[:6] == text(
        "2 of 5 queues need you.",
        "exports has no worker since 02:09: 420 messages wait.",
        "mails: mail.send_receipt fails since 02:13: TimeoutError, 2,104 in 10 min.",
        "invoices: 2,663 wait because jonas paused it Thursday 16:02, without an end.",
        "reports: lumen-labs holds 98 % of what waits. It drains in 8 min.",
        "QUEUE       STATE      WAITING  FLIGHT  DEAD  OLDEST  DRAINS    BUSY",
    )
    assert told[6] == "exports     no worker   13,097      74    33   8 min   8 min  74/112"
    assert [line.split()[0] for line in told[6:]] == ["exports", "mails", "invoices", "reports", "thumbnails"]


@pytest.mark.parametrize("name", sorted(LOOKS.keys() - {"thumbnails"}))
def test_if_one_queue_is_ill_its_sentence_is_the_first_line(name: str) -> None:
    assert queues.lines([look("thumbnails"), look(name)])[0] == LOOKS[name][0]


def test_one_queue_that_needs_you_is_counted_too_where_others_are_named() -> None:
    told = queues.lines([look(name) for name in ("invoices", "exports", "thumbnails")])
    assert told[:3] == text(
        "1 of 3 queues needs you.",
        "exports has no worker since 02:09: 420 messages wait.",
        "invoices: 2,663 wait because jonas paused it Thursday 16:02, without an end.",
    )


def test_that_redis_is_full_is_said_once() -> None:
    full = verdict("Redis is full (98 % of 4 GB): writes fail since 02:20.", "redis_full", "bad")
    told = queues.heading([QueueLook(name, numbers(name), full, outlook()) for name in ("a", "b", "c")])
    assert told == [full.sentence]


def test_when_all_is_well_it_says_so() -> None:
    assert queues.lines([look("thumbnails")])[0] == "Work flows in thumbnails."
    idle = QueueLook("b", numbers("b"), verdict("Nothing waits.", "idle"), outlook())
    assert queues.lines([look("thumbnails"), idle])[0] == "Work flows in all 2 queues."
    assert queues.lines([idle])[0] == "Nothing waits in b."


def test_a_queue_that_is_gone_or_unreadable_is_a_line_all_the_same() -> None:
    told = queues.lines([QueueLook("lost", QueueStats("lost", NOW, 0, 0, 0, 0, None, ())), QueueLook("secret", None)])
    assert told[0].startswith("lost is missing")
    assert any(line.startswith("secret") and "unreadable" in line for line in told)


def test_actions_say_how_far_they_are_and_how_to_take_one_over() -> None:
    left = action(id="9b01", kind="cancel", state="abandoned", by="mia", left=None, where=Where(tenant="acme"))
    assert actions.lines([action(), left], NOW, queue="mails") == text(
        "jonas@ops has a redrive under way: 1,204 done, 800 left, 50/s, 16 s more.",
        "ID    WHAT     OF            STATE       DONE  LEFT  BY         SINCE",
        "7f3a  redrive  TimeoutError  running    1,204   800  jonas@ops  02:30",
        "9b01  cancel   acme          abandoned  1,204     -  mia        02:30",
        "shardq actions mails take-over 9b01    # its process was silent for 30 s",
    )


def hostile_screens(name: str, columns: int) -> Iterator[list[str]]:
    """Each screen with this name wherever one may put one."""
    key: str | bytes = name
    waits = outlook(helps=(Help(f"no limit of {name}", True, 1.0, 2.0, name, key), Help(name, False, None, None, name)))
    told = verdict(f"{name} holds 98 % of what waits.", "flood", "warn", "jobs")
    yield queues.lines([QueueLook("jobs", numbers("jobs"), told, waits), QueueLook("q" * 120, None)])
    yield stats.lines(told, waits)
    yield workers.lines(
        [worker(id=name, host=name), worker(id=f"{name}2", host=name, state="gone"), worker(id="e", state="ended")],
        NOW,
        unread=["q" * 120] * 5,
    )
    groups = [
        failure(task=name, error_type=name, dead=3, tenants=(name, b"\xff"), trace=f"{name}\n{name}", newest=name),
        failure(task=name, error_type="", reason="lease ended", dead=2, recent=0),
    ]
    yield failures.lines(groups, fails_by_count(groups), NOW, queue="jobs")
    yield [line for group in groups for line in failures.details(group, NOW)]
    yield failures.lines([failure(task="", error_type=name, dead=7, recent=0)], (), NOW, queue="jobs")
    allowed = name[:300].encode("utf-8", "ignore").decode() or None  # others are refused
    where = Where(tenant=allowed, task=allowed, error=allowed)
    yield actions.lines([action(id="1", by=name, where=where, state="failed", problem=name)], NOW, queue="jobs")


@pytest.mark.parametrize("columns", [80, 120, 40])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_screen_is_wider_than_the_terminal_or_obeys_what_is_stored(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for lines in hostile_screens(name, columns):
        if columns >= 80:
            assert max(map(width, lines)) <= columns, max(lines, key=width)
        assert obeyed("".join(lines)) == []
        assert not any("\n" in line for line in lines)
        assert sum(map(len, lines)) < 50_000


def test_numbers_of_any_size_leave_the_table_in_80_columns() -> None:
    huge = numbers("q" * 100, backlog=10**15, in_flight=10**15, dead=10**15, oldest_age=1e12)
    for kind in ("no_worker", "flood"):
        told = verdict("x", kind, "bad")
        told_of = QueueLook("q" * 100, huge, told, outlook(slots=10**6, busy=1e6, drain_seconds=1e9))
        assert max(map(width, queues.lines([told_of]))) <= 80
    one = worker(slots=10**4, busy=1e4, done=10**9, failed=1, longest_since=NOW - 1e8, heard=NOW - 29)
    assert max(map(width, workers.lines([one, worker(queue="z" * 99, id=one.id)], NOW))) <= 80
    many = failure(recent=10**9, retried=10**9, dead=10**9, first=1.0, last=2.0, task="t" * 99, error_type="E" * 99)
    assert max(map(width, failures.lines([many], fails_by_count([many]), NOW, queue="q"))) <= 80
    much = action(
        done=10**9, left=10**9, started=NOW - 5e5, id="1795833060000-12", kind="delete_dead", state="abandoned"
    )
    assert max(map(width, actions.lines([much], NOW, queue="q"))) <= 80


def test_a_command_that_is_shown_can_be_pasted_whatever_the_errors_are_called() -> None:
    """A class is called by who raises it: a shell must not run what stands in its name."""
    for name in ("$(reboot)", "`reboot`", "a; reboot", "'; reboot #", "-rf", "a b"):
        command = failures.mending([failure(error_type=name, dead=3, recent=0)], (), "jobs")[0].partition("    #")[0]
        import shlex

        words = shlex.split(command)
        assert words[:3] == ["shardq", "redrive", "jobs"]
        assert (f"--error={name}" in words) or words[words.index("--error") + 1] == name
    assert not any(
        "shardq redrive jobs --error" in line
        for line in failures.mending([failure(error_type="\x1b[2J", dead=1)], (), "jobs")
    )


def test_cut_and_wrapped_never_take_more_columns_than_they_have() -> None:
    seed = int(os.environ.get("SHARDQ_SEED", time.time_ns() % 2**31))
    random = Random(seed)
    letters = "aé株👩\u0301\u200d\x1b\u202e \ud800"
    for _ in range(3_000):
        told = "".join(random.choices(letters, k=random.randrange(60)))
        most = random.randrange(1, 40)
        assert width(cut(told, most)) <= most, (seed, told, most)
        for line in wrapped(told, max(most, 8), indent="  "):
            assert width(line) <= max(most, 8), (seed, told, most)


def test_a_table_gives_way_where_names_are_and_keeps_its_numbers() -> None:
    table = (Column("NAME", 4), Column("N"), Column("WHAT", begins=True))
    assert grid(table, [("x" * 90, "1,234", "full"), ("y", Rest("gone"))], most=20) == [
        "NAME         N  WHAT",
        "xxxxxx…  1,234  full",
        "y        gone",
    ]

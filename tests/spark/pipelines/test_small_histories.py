"""Fairness of small histories whose answer is known by hand: nothing served, cancelled in time, no shard keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardq.client import Queue
from shardq.spark.pipelines.fairness.findings import Findings
from shardq.spark.pipelines.fairness.pipeline import SIZED, Request, run
from shardq.spark.pipelines.fairness.tallies import tallied
from shardq.spark.pipelines.files import overridden
from shardq.spark.pipelines.inputs import read_journal
from shardq.spark.pipelines.report import Progress, Report
from tests.spark.pipelines.history import History

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
DEALT = (8, 2)


def judged(events: Any, out: Path | None = None) -> tuple[Findings, list[str]]:
    """The findings on the one queue of *events*, and the remarks on it."""
    progress = Progress(Report("fairness"))
    (found,) = run(events, Request(60, DEALT, None, out), progress)
    return found, progress.report.remarks


def test_a_history_in_which_nothing_was_served_says_so(spark: Any, tmp_path: Path) -> None:
    history = History()
    for at, key in enumerate("aab"):
        history.message(at * 60_000, key)
    found, remarks = judged(history.frame(spark), tmp_path)
    assert remarks == ["jobs: nothing was served in 3 windows; 3 messages were waiting at the end"]
    assert [each["share"] for each in found.top] == [None, None]
    assert [each["demand_share"] for each in found.top] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert (found.jain, found.around.noisy) == (None, ())
    assert (tmp_path / "jobs.html").exists()


def test_a_history_without_any_arrival_is_judged_by_what_was_served(spark: Any) -> None:
    history = History()
    for key in "ab":
        history.tell(1_000, "delivered", f"1763699990000-{ord(key)}-1", key, 1)
    found, remarks = judged(history.frame(spark))
    assert remarks[0] == "jobs: service was fair: Jain's index was at least 0.9 in all 1 windows with service"
    assert [(each["share"], each["demand_share"]) for each in found.top] == [(0.5, None)] * 2


@pytest.mark.parametrize("kind", ["cancelled", "purged"])
def test_a_delayed_message_that_is_removed_before_it_is_due_never_asked_for_anything(spark: Any, kind: str) -> None:
    """Counted by hand: "busy" gets all of its 12 messages, and "later" has none that could have been delivered."""
    history = History()
    for at in range(0, 240_000, 20_000):
        history.tell(at + 50, "delivered", history.message(at, "busy"), "busy", 1)
    late = [history.message(5_000 + at, "later", due=200_000) for at in range(10)]
    for at, message in enumerate(late):
        history.tell(70_000 + at, kind, message, "later")
    found, _ = judged(history.frame(spark))
    assert [each["shard_key"] for each in found.top] == ["busy"]
    assert [each["jain"] for each in found.windows] == [pytest.approx(1)] * 4
    assert [each["demand"] for each in found.windows] == [3] * 4
    assert found.around.noisy == ()
    assert (found.totals["arrived"], found.totals["keys"]) == (12, 1)


def test_a_message_that_is_cancelled_after_a_delivery_was_served_and_asks_for_nothing_more(spark: Any) -> None:
    history = History()
    for at in range(0, 120_000, 20_000):
        message = history.message(at, "a")
        history.tell(at + 50, "delivered", message, "a", 1)
        history.tell(at + 60, "nacked", message, "a", 1)
        history.tell(at + 70, "cancelled", message, "a")
    found, _ = judged(history.frame(spark))
    assert [(each["demand"], each["picked"], each["waiting"]) for each in found.windows] == [(3, 3, 0)] * 2


def test_the_journal_of_a_queue_whose_delayed_messages_were_cancelled(spark: Any, url: str, queue: Queue) -> None:
    queue.configure(journal=1000)
    late = queue.write("later", shard_key="later", delay=3600)
    for at in range(4):
        queue.write(at, shard_key="busy")
    assert queue.cancel(late)
    queue.ack_many(queue.read_many(10))
    found, remarks = judged(read_journal(spark, url, queue.name))
    assert found.jain == pytest.approx(1)
    assert [each["shard_key"] for each in found.top] == ["busy"]
    assert remarks[1] == f"{queue.name}: no shard key asked for more than twice its fair share"


def test_events_without_shard_keys_leave_nothing_to_judge(spark: Any, tmp_path: Path) -> None:
    history = History()
    history.tell(2_000, "lease_ended", "1763699990000-1-1", None, 1)
    found, remarks = judged(history.frame(spark), tmp_path)
    assert remarks == ["jobs: nothing was served in 0 windows; 0 messages were waiting at the end"]
    assert (found.totals["keys"], found.top) == (0, [])


def test_few_events_are_divided_into_few_partitions(spark: Any) -> None:
    """A table that is kept in memory had as many partitions as a shuffle, and all that was made of it, too."""
    settings = {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "50"}
    before = {name: spark.conf.get(name) for name in (*settings, *SIZED)}
    history = History()
    for at in range(100):
        history.message(at, f"t-{at}")
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        with overridden(spark, SIZED):
            kept = tallied(history.frame(spark), 60).persist()
            assert (kept.count(), kept.rdd.getNumPartitions()) == (100, 1)
        kept.unpersist()
        assert {name: spark.conf.get(name) for name in SIZED} == {name: before[name] for name in SIZED}
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)

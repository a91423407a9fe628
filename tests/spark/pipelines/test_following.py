"""What `fairness --follow` keeps between its runs: what is counted once stays so, and what does not fit is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq.errors import ConfigError
from shardq.spark.pipelines.fairness.follow import follow
from shardq.spark.pipelines.fairness.pipeline import Request
from shardq.spark.pipelines.report import Progress, Report
from tests.spark.pipelines.history import History

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]

Follow = Callable[[History], dict[str, Any]]


@pytest.fixture
def followed(spark: Any, tmp_path: Path) -> Follow:
    """Follows the events of a history that are not yet in the folder `report`; the figures on its queue."""

    def run(history: History) -> dict[str, Any]:
        rows, history.rows = history.rows, []
        History(rows=rows).frame(spark).coalesce(1).write.mode("append").parquet(str(tmp_path / "events"))
        events = spark.readStream.schema(history.frame(spark).schema).parquet(str(tmp_path / "events"))
        progress = Progress(Report("fairness"))
        follow(events, Request(60, (8, 2), "jobs", tmp_path / "report"), progress, lateness=0)
        return dict(progress.report.figures["queues"][0]) if "queues" in progress.report.figures else {}

    return run


def served(history: History, begin: int, end: int) -> None:
    """A message of "busy" each 20 s, delivered at once."""
    for at in range(begin, end, 20_000):
        history.tell(at + 50, "delivered", history.message(at, "busy"), "busy", 1)


def test_messages_that_were_removed_without_having_waited_ask_for_nothing(
    followed: Follow, spark: Any, tmp_path: Path
) -> None:
    """Counted by hand: "busy" gets all of its 12 messages; "later" is never due, "back" was served already."""
    history = History()
    served(history, 0, 120_000)
    late = [history.message(5_000 + at, "later", due=200_000) for at in range(10)]
    back = [history.message(6_000 + at, "back") for at in range(3)]
    for at, message in enumerate(back):
        history.tell(6_100 + at, "delivered", message, "back", 1)
        history.tell(6_200 + at, "lease_ended", message, None, 1)
    followed(history)
    served(history, 120_000, 300_000)
    for at, message in enumerate(late):
        history.tell(130_000 + at, "cancelled", message, "later")
    for at, message in enumerate(back):
        history.tell(140_000 + at, "purged", message, "back")
    found = followed(history)
    assert (found["jain"], found["noisy"]) == (pytest.approx(1), [])
    assert (found["arrived"], found["picked"], found["keys"]) == (12 + 3, 12 + 3, 2)
    windows = spark.read.parquet(str(tmp_path / "report" / "by_window")).orderBy("window").collect()
    assert [(row.demand, row.waiting) for row in windows] == [(6, 0), (3, 0), (3, 0), (3, 0)]


def test_tallies_whose_checkpoint_is_gone_are_refused(followed: Follow, tmp_path: Path) -> None:
    """Their events would be read and counted again."""
    history, report = History(), tmp_path / "report"
    served(history, 0, 120_000)
    assert followed(history)["picked"] == 3
    shutil.rmtree(report / "_checkpoint")
    served(history, 120_000, 180_000)
    with pytest.raises(ConfigError, match=r"report/tallies has batches up to \d+, .* remove .*report/tallies"):
        followed(history)
    shutil.rmtree(report / "tallies")
    assert followed(history)["picked"] == 6


@pytest.mark.parametrize("rubbish", ["", "{", "[]", '"jobs"', '{"queue": ["jobs"]}', "\udcff"])
def test_rubbish_that_says_what_is_followed_is_refused(followed: Follow, tmp_path: Path, rubbish: str) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "_follows.json").write_bytes(rubbish.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=r"report.* name another folder") as refused:
        followed(History())
    assert "\n" not in str(refused.value)


def test_tallies_of_nobody_knows_what_are_refused(followed: Follow, tmp_path: Path) -> None:
    history = History()
    served(history, 0, 120_000)
    followed(history)
    (tmp_path / "report" / "_follows.json").unlink()
    with pytest.raises(ConfigError, match=r"_follows\.json .* name another folder"):
        followed(history)

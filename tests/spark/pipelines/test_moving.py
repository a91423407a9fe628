"""Loading, archiving and redriving: counts agree, whatever is run twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import ConfigError
from shardq.spark.pipelines.archive import Archive
from shardq.spark.pipelines.inputs import read_table
from shardq.spark.pipelines.load import LoadColumns, identity, load, messages
from shardq.spark.pipelines.redrive import letters, preview, redrive
from shardq.spark.pipelines.report import PipelineProgress, Report
from shardq.testing import ManualClock
from tests.spark.rows import drained

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


@pytest.fixture
def told() -> PipelineProgress:
    return PipelineProgress(Report("test"))


def test_a_load_that_is_run_again_changes_nothing(
    spark: Any, url: str, queue: Queue, tmp_path: Path, told: PipelineProgress
) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("customer,order,wait\n" + "".join(f"{at % 7},order-{at},0\n" for at in range(500)))
    rows = read_table(spark, str(path))
    columns = LoadColumns("customer", delay="wait")
    made = messages(rows, columns)
    name = identity(rows, queue.name, columns)
    for _ in range(2):
        assert load(made, queue.name, name, {"url": url, "codec": "json"}, told) == 500
    found = drained(queue)
    assert sorted(each.payload["order"] for each in found) == sorted(f"order-{at}" for at in range(500))
    assert all(each.shard_key == str(each.payload["customer"]) for each in found)
    assert "wait" not in found[0].payload
    assert identity(rows, "other", columns) != name == identity(read_table(spark, str(path)), queue.name, columns)


def test_what_cannot_be_loaded_is_refused_before_anything_is_written(spark: Any, tmp_path: Path) -> None:
    rows = spark.sql("select 1.5 as x, 'a' as y")
    for columns, error in (
        (LoadColumns("tenant"), r"shard_key: there is no column 'tenant'; the columns are x, y"),
        (LoadColumns("x"), r"column x is decimal\(2,1\): it must be text or whole numbers"),
        (LoadColumns("y", payload="z"), r"payload: there is no column 'z'"),
    ):
        with pytest.raises(ConfigError, match=error):
            messages(rows, columns)
    with pytest.raises(ConfigError, match="come from no files"):
        identity(rows, "jobs", LoadColumns("y"))
    with pytest.raises(ConfigError, match="format 'xml' is unknown"):
        read_table(spark, str(tmp_path), form="xml")


@pytest.fixture
def told_queue(client: Client, queue_name: str) -> Queue:
    """A queue with a journal, whose name Spark would take for a number."""
    queue = client.queue(f"00{abs(hash(queue_name)) % 10**9}", streams=4, max_deliveries=2, journal=100_000)
    queue.read_many(1)
    return queue


def work(queue: Queue, count: int) -> None:
    """Write, ack most, reject every fifth."""
    queue.write_many([(b"x", f"tenant-{at % 3}") for at in range(count)])
    found = queue.read_many(count)
    queue.reject_many(found[::5], "no good")
    queue.ack_many([each for at, each in enumerate(found) if at % 5])


def test_each_event_is_archived_once_though_batches_are_replayed_and_compacted(
    spark: Any, url: str, told_queue: Queue, tmp_path: Path, told: PipelineProgress
) -> None:
    archive, options = Archive(spark, str(tmp_path)), {"url": url, "maxOffsetsPerTrigger": "150"}

    def archived() -> list[int]:
        return sorted(row.number for row in archive.table("journal").select("number").collect())

    def journal() -> list[int]:
        return [event.number for event in told_queue.journal(10_000).events]

    with pytest.raises(ConfigError, match="there is no archive of journal"):
        archive.table("journal")
    work(told_queue, 100)
    assert archive.follow("journal", [told_queue.name], options, told) == 300
    assert archived() == journal()
    for commit in sorted((tmp_path / "_checkpoints" / "journal" / "commits").glob("[.0-9]*")):
        if commit.name.strip(".").partition(".")[0] == str(archive.finished("journal")):
            commit.unlink()  # as if Spark had died before it wrote down the last batch
    work(told_queue, 50)
    archive.follow("journal", [told_queue.name], options, told)
    assert archived() == journal()
    merged = archive.compact("journal")
    assert merged >= 3
    assert len(archive.live("journal")) == 1
    assert archived() == journal()
    assert archive.compact("journal") == 0
    assert {row.queue for row in archive.table("journal").select("queue").distinct().collect()} == {told_queue.name}
    files = [path for path in (tmp_path / "journal").rglob("*.parquet") if "_compacting" not in path.parts]
    assert len(files) == archive.table("journal").select("day").distinct().count()
    work(told_queue, 10)
    archive.follow("journal", [told_queue.name], options, told)
    merged_one = next((tmp_path / "journal").glob("batch=*-*"))
    shutil.copytree(
        merged_one, merged_one.with_name("batch=000000000001")
    )  # as if a compaction had died before the end
    assert archived() == journal()
    assert archive.follow("dead", [told_queue.name], options, told) == 32
    assert archive.table("dead").where("reason = 'no good'").count() == 32


def test_chosen_dead_letters_go_back_at_the_rate_and_the_others_stay(
    spark: Any, url: str, queue: Queue, told: PipelineProgress
) -> None:
    queue.write_many([(b"%d" % at, f"tenant-{at % 2}") for at in range(60)])
    found = queue.read_many(60)
    queue.reject_many([each for each in found if each.shard_key == "tenant-0"], "broken")
    queue.reject_many([each for each in found if each.shard_key == "tenant-1"], "timed out")
    chosen = letters(spark, url, queue.name, "reason = 'timed out' and int(cast(payload as string)) < 41").persist()
    assert preview(chosen, told) == 20
    assert told.report.remarks[0] == "20 dead of 'timed out'"
    assert queue.stats().dead == 60
    clock, pauses = ManualClock(), []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    assert redrive(chosen, queue, 8.0, told, clock=clock, pause=pause) == 20
    assert pauses == [pytest.approx(1.0)] * 2  # 8, 8 and 4 letters
    assert redrive(chosen, queue, 1000.0, told) == 0
    assert sorted(int(each.body) for each in drained(queue)) == list(range(1, 41, 2))
    assert queue.stats().dead == 40
    with pytest.raises(ConfigError, match="rate must be a positive number"):
        redrive(chosen, queue, 0, told)


@pytest.mark.parametrize(
    ("condition", "payloads"),
    [
        ("reason = 'no PAYLOAD' or reason = 'broken'", False),
        ("PAYLOAD = X'37'", True),
        ("int(cast(`Payload` as string)) = 7", True),
    ],
)
def test_payloads_are_read_if_the_condition_names_the_column(
    spark: Any, url: str, queue: Queue, condition: str, payloads: bool
) -> None:
    queue.write_many([(b"7", "tenant")])
    queue.reject_many(queue.read_many(1), "broken")
    chosen = letters(spark, url, queue.name, condition)
    assert (chosen.count(), "payload" in chosen.columns) == (1, payloads)

"""An archive whose checkpoint is gone or does not fit, and what reads it while a compaction is half done."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from shardq import Client
from shardq.client import Queue
from shardq.errors import ConfigError
from shardq.spark.pipelines.archive import Archive, archived
from shardq.spark.pipelines.report import PipelineProgress, Report
from shardq.tasks import Tasks
from tests.spark.pipelines.test_moving import work

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


@pytest.fixture
def told() -> PipelineProgress:
    return PipelineProgress(Report("test"))


@pytest.fixture
def queues(client: Client, queue_name: str) -> list[Queue]:
    """Two queues with journals; Spark would take the names for numbers, or for folders."""
    names = f"00{abs(hash(queue_name)) % 10**9}", f"{queue_name}/a:b"
    found = [client.queue(name, streams=4, max_deliveries=2, journal=100_000) for name in names]
    for queue in found:
        queue.read_many(1)
    return found


def numbers(archive: Archive) -> list[tuple[str, int]]:
    """The events in the archive."""
    return sorted((row.queue, row.number) for row in archive.table("journal").select("queue", "number").collect())


def wanted(*queues: Queue) -> list[tuple[str, int]]:
    """The events in the journals."""
    return sorted((queue.name, each.number) for queue in queues for each in queue.journal(10_000).events)


def test_an_archive_without_its_checkpoint_is_refused_until_it_is_adopted(
    spark: Any, url: str, queues: list[Queue], tmp_path: Path, told: PipelineProgress
) -> None:
    archive, options = Archive(spark, f"file://{tmp_path}/"), {"url": url, "maxOffsetsPerTrigger": "100"}
    first, second = queues
    for queue in queues:
        work(queue, 30)
    both = [first.name, second.name]
    archive.follow("journal", both, options, told)
    assert archive.compact("journal") == 2
    shutil.rmtree(tmp_path / "_checkpoints")
    for queue in queues:
        work(queue, 10)
    with pytest.raises(ConfigError, match="--adopt"):
        archive.follow("journal", both, options, told)
    with pytest.raises(ConfigError, match="--adopt"):
        archive.compact("journal")
    assert archive.follow("journal", [first.name], options, told, adopt=True) == 30
    work(first, 10)
    assert archive.follow("journal", both, options, told) == 60
    assert numbers(archive) == wanted(*queues)
    assert archive.follow("journal", both, options, told, adopt=True) == 0
    assert archive.compact("journal") > 1
    assert numbers(archive) == wanted(*queues)
    merged = next((tmp_path / "journal").glob("batch=*-*"))
    shutil.copytree(merged, merged.with_name("batch=000000000001"))  # as if it had died before it removed that one
    judged = archived(spark, f"{tmp_path}/journal")
    assert judged is not None
    assert judged.where(F.col("queue") == first.name).count() == len(wanted(first))
    assert archived(spark, str(tmp_path)) is archived(spark, f"{tmp_path}/no/journal") is None
    archive.follow("dead", both, options, told)
    shutil.rmtree(tmp_path / "_checkpoints" / "dead")
    work(first, 10)
    assert archive.follow("dead", both, options, told, adopt=True) == 2
    assert archive.table("dead").select("entry_id", "queue").distinct().count() == archive.table("dead").count() == 20


def test_a_queue_that_the_checkpoint_does_not_know_and_the_archive_does_is_refused(
    spark: Any, url: str, queues: list[Queue], tmp_path: Path, told: PipelineProgress
) -> None:
    """As an archive is whose list of queues was changed by a shardq that forgot queues that left."""
    archive, options = Archive(spark, str(tmp_path)), {"url": url}
    first, second = queues
    for queue in queues:
        work(queue, 10)
    archive.follow("journal", [first.name, second.name], options, told)
    shutil.rmtree(tmp_path / "_checkpoints")
    shutil.move(tmp_path / "journal", tmp_path / "old")
    archive.follow("journal", [first.name], options, told)
    for each in (tmp_path / "old").glob("*/queue=*"):
        if each.name != f"queue={first.name}":
            shutil.copytree(each, tmp_path / "journal" / "batch=000000000000" / each.name)
    with pytest.raises(ConfigError, match="--adopt"):
        archive.follow("journal", [first.name, second.name], options, told)
    archive.follow("journal", [first.name, second.name], options, told, adopt=True)
    assert numbers(archive) == wanted(first, second)


def test_a_batch_that_was_not_finished_is_not_adopted(
    spark: Any, url: str, queues: list[Queue], tmp_path: Path, told: PipelineProgress
) -> None:
    archive, options = Archive(spark, str(tmp_path)), {"url": url}
    work(queues[0], 10)
    archive.follow("journal", [queues[0].name], options, told)
    shutil.rmtree(tmp_path / "_checkpoints")
    folder = tmp_path / "journal" / "batch=000000000000"
    (folder / "_SUCCESS").unlink()
    with pytest.raises(ConfigError, match="was not finished"):
        archive.follow("journal", [queues[0].name], options, told, adopt=True)
    shutil.rmtree(folder)
    archive.follow("journal", [queues[0].name], options, told, adopt=True)
    assert numbers(archive) == wanted(queues[0])


NEWER = ("task", "charged_ms", "ran_ms", "values", "version")
"""Columns that earlier versions did not archive."""


def test_tasks_bills_and_values_are_archived_and_archives_without_them_are_read(
    spark: Any, url: str, client: Client, queue_name: str, tmp_path: Path, told: PipelineProgress
) -> None:
    tasks: Tasks[None] = Tasks(queue_name, journal=100_000)

    @tasks.task(name="send")
    def send(number: int) -> None:
        """Do nothing."""

    queue = client.queue(tasks)
    archive, options = Archive(spark, str(tmp_path)), {"url": url}
    queue.write_many([(send.call(number), f"t{number}") for number in range(9)])
    archive.follow("journal", [queue.name], options, told)
    batch = tmp_path / "journal" / "batch=000000000000"
    older = spark.read.parquet(str(batch)).drop(*NEWER)
    older.write.partitionBy("queue", "day").parquet(str(tmp_path / "older"))
    shutil.rmtree(batch)
    shutil.move(tmp_path / "older", batch)
    queue.write_many([(send.call(number), f"t{number}") for number in range(9)])
    queue.read().ack()
    queue.set_weights({"t0": 3})
    archive.follow("journal", [queue.name], options, told)
    for _ in range(2):
        assert numbers(archive) == wanted(queue)
        rows = archive.table("journal").select("number", *NEWER).orderBy("number").collect()
        assert [tuple(row)[1:] for row in rows[:9]] == [(None,) * len(NEWER)] * 9
        assert [tuple(row) for row in rows[9:]] == [
            (each.number, each.task or None, each.charged_ms, each.ran_ms, dict(each.values) or None, 2)
            for each in queue.journal(100).events[9:]
        ]
        archive.compact("journal")

"""The table of jobs that Spark makes is that of plain Python, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardq import Client
from shardq.client import Queue
from shardq.errors import QueueMissing
from shardq.jobs.folder import TableFolder
from shardq.jobs.gone import RunQueues
from shardq.jobs.making import Archived, LiveQueue, make, settings_if_there
from shardq.spark.pipelines.archive import Archive
from shardq.spark.pipelines.jobs import JobsFolder, add, archived_batch, live_batches
from shardq.spark.pipelines.report import PipelineProgress, Report
from tests.jobs.life import live as work

pytestmark = [pytest.mark.timeout(600)]
KEYS = [(name, "ascending") for name in ("queue_id", "message_id", "redriven")]
ALL = 1_000_000


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.runs_in("test-all"))])
def queue(client: Client, queue_name: str, request: pytest.FixtureRequest) -> Queue:
    queue = client.queue(queue_name, streams=4, journal=1_000_000, partitions=request.param)
    queue.declare()
    return queue


class Both:
    """One folder by Spark, one by plain Python."""

    def __init__(self, spark: Any, client: Client, url: str, name: str, path: Path) -> None:
        self.spark, self.client, self.url, self.name = spark, client, url, name
        self.ours, self.plain = path / "spark", path / "plain"

    def seen(self, name: str, queue_id: str, events: pa.Table) -> pa.Table | None:
        return settings_if_there(self.client, name, queue_id, events)

    def run(self, most: int = ALL) -> None:
        make(LiveQueue(self.client, [self.name]), self.plain, self.seen)
        folder = JobsFolder(self.spark, str(self.ours))
        for batch in live_batches(self.spark, {"url": self.url}, RunQueues([self.name]), folder.newest(), most):
            add(folder, batch, self.seen)

    def check(self) -> int:
        ours, plain = TableFolder(self.ours), TableFolder(self.plain)
        jobs = plain.table("jobs").sort_by(KEYS)
        assert ours.table("jobs").sort_by(KEYS) == jobs
        assert ours.open().sort_by(KEYS) == plain.open().sort_by(KEYS)
        for name in ("settings", "capacity", "lost"):
            assert sorted(map(str, ours.table(name).to_pylist())) == sorted(map(str, plain.table(name).to_pylist()))
        return len(jobs)


@pytest.fixture
def both(spark: Any, client: Client, url: str, queue: Queue, tmp_path: Path) -> Both:
    return Both(spark, client, url, queue.name, tmp_path)


def test_spark_makes_the_rows_of_plain_python_run_by_run(both: Both, queue: Queue) -> None:
    work(queue)
    both.run()
    assert both.check() > 50
    work(queue)
    both.run()
    both.check()
    ours, plain = TableFolder(both.ours).newest(), TableFolder(both.plain).newest()
    assert max(ours.until.values()) / 1000 <= ours.upto >= plain.upto  # it was read after that
    for _ in range(2):
        both.run()
    assert len([*both.ours.glob("runs/*.json")]) == 2


@pytest.mark.runs_in("test-all")
def test_a_queue_that_is_gone_leaves_the_others_their_jobs_by_spark_too(both: Both, queue: Queue) -> None:
    work(queue)
    make(LiveQueue(both.client, [queue.name]), both.plain, both.seen)
    folder, queues = JobsFolder(both.spark, str(both.ours)), RunQueues(["gone", queue.name])
    for batch in live_batches(both.spark, {"url": both.url}, queues, folder.newest(), ALL):
        add(folder, batch, both.seen)
    assert both.check() > 50
    assert [*queues.missing] == ["gone"]
    with pytest.raises(QueueMissing, match="gone"):
        next(live_batches(both.spark, {"url": both.url}, RunQueues(["gone"]), folder.newest(), ALL))


@pytest.mark.runs_in("test-all")
def test_a_run_of_spark_that_was_killed_is_made_once_more(
    both: Both, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(queue)
    both.run()
    work(queue)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(JobsFolder, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            both.run()
    work(queue)
    both.run()
    both.check()


@pytest.mark.runs_in("test-all")
def test_an_archive_gives_the_same_by_spark_and_by_plain_python(both: Both, queue: Queue, tmp_path: Path) -> None:
    archive = Archive(both.spark, str(tmp_path / "archive"))
    for _ in range(2):
        work(queue)
        archive.follow(
            "journal", [queue.name], {"url": both.url, "markDataLoss": "true"}, PipelineProgress(Report("test"))
        )
    make(LiveQueue(both.client, [queue.name]), tmp_path / "live", both.seen)
    make(Archived(tmp_path / "archive", [queue.name]), both.plain, both.seen)
    folder = JobsFolder(both.spark, str(both.ours))
    add(folder, archived_batch(both.spark, str(tmp_path / "archive"), [queue.name], folder.newest()), both.seen)
    both.check()
    assert TableFolder(tmp_path / "live").table("jobs").sort_by(KEYS) == TableFolder(both.plain).table("jobs").sort_by(
        KEYS
    )
    work(queue)
    archive.follow("journal", [queue.name], {"url": both.url, "markDataLoss": "true"}, PipelineProgress(Report("test")))
    archive.compact("journal")
    make(Archived(tmp_path / "archive", [queue.name]), both.plain, both.seen)
    make(LiveQueue(both.client, [queue.name]), tmp_path / "live", both.seen)
    assert TableFolder(tmp_path / "live").table("jobs").sort_by(KEYS) == TableFolder(both.plain).table("jobs").sort_by(
        KEYS
    )


@pytest.mark.runs_in("test-all")
def test_forty_thousand_jobs_are_equal_row_by_row(both: Both, queue: Queue) -> None:
    for _ in range(40):
        queue.write_many([(b"x", f"tenant-{number % 1000}") for number in range(1000)])
    while found := queue.read_many(200):
        for each in found[:4]:
            if each.count < 2:
                each.nack()
        queue.ack_many(found[4:])
        queue.ack_many([each for each in found[:4] if each.count > 1])
    both.run(most=70_000)
    assert both.check() == 40_000

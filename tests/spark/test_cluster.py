"""Several executors on this machine: ones that are killed, tasks that run twice, a driver that is killed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from tests.spark.job import ROWS
from tests.spark.programs import ended, running, standalone
from tests.spark.rows import numbered, numbers, write
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.runs_in("test-all")]


def job(task: str, master: str, url: str, queue: Queue, folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.spark.job", task, master, url, queue.name, str(folder)]


def test_the_rows_of_a_killed_executor_are_stored_once(url: str, queue: Queue, home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(job("kill", "local-cluster[2,1,1024]", url, queue, tmp_path), home, log) as process:
        assert ended(process, log) == ["held", str(ROWS), str(ROWS)]
    assert (tmp_path / "again").exists()
    assert numbers(queue) == list(range(ROWS))


def test_the_log_of_a_write_that_failed_names_the_id_that_completes_it(
    spark: Any, url: str, queue: Queue, home: Path, tmp_path: Path
) -> None:
    """On standard error, with no logging set up, and Spark's own switched off."""
    log = tmp_path / "log"
    with running(job("fail", "local[2]", url, queue, tmp_path), home, log) as process:
        assert process.wait(400) == 1
    [found] = re.findall(r"Write again with writeId=(\S+) and the same rows", log.read_text())
    assert 0 < queue.len() < ROWS
    write(numbered(spark, ROWS, partitions=8), queue, url, writeId=found)
    assert numbers(queue) == list(range(ROWS))


@pytest.fixture
def master(home: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a standalone master with two workers."""
    with standalone(home, tmp_path) as url:
        yield url


def test_the_rows_of_a_task_that_runs_twice_are_stored_once(
    url: str, queue: Queue, home: Path, master: str, tmp_path: Path
) -> None:
    """Speculatively: the first waits in the midst of its rows until the copy has them, too, and goes on."""
    log = tmp_path / "log"
    with running(job("copy", master, url, queue, tmp_path), home, log) as process:
        assert ended(process, log) == ["held", str(ROWS), str(ROWS)]
    assert (tmp_path / "again").exists()
    assert numbers(queue) == list(range(ROWS))


def test_an_archive_whose_driver_is_killed_goes_on_where_it_was(
    url: str, client: Client, queue_name: str, home: Path, master: str, tmp_path: Path
) -> None:
    queue = client.queue(queue_name, streams=8, streams_per_shard=2, journal=100_000)
    queue.write_many([(b"x", f"tenant-{at % 10}") for at in range(5000)])
    words = job("archive", master, url, queue, tmp_path)
    with running(words, home, tmp_path / "first"):
        commits = tmp_path / "checkpoint" / "commits"
        eventually(lambda: commits.exists() and len([*commits.glob("[0-9]*")]) >= 2, 250)
    assert len([*commits.glob("[0-9]*")]) < 10
    with running(words, home, tmp_path / "second") as process:
        assert ended(process, tmp_path / "second") == ["archived", "5000", "5000"]

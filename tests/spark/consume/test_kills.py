"""A streaming query that consumes, while executors, its driver or Redis are killed: nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from tests.selection import SOAK
from tests.servers import Server
from tests.spark.consume.queries import Sink, drain
from tests.spark.programs import ended, running
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.runs_in("test-all")]
MESSAGES = 20_000
KILLS = 30 if SOAK else 2


def fill(queue: Queue, count: int, first: int = 0) -> None:
    for at in range(first, first + count, 5000):
        rows = range(at, min(first + count, at + 5000))
        queue.write_many([(f"{each}".encode(), f"tenant-{each % 50}") for each in rows])


def job(trouble: str, master: str, url: str, queue: Queue, folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.spark.consume.job", trouble, master, url, queue.name, str(folder)]


def stored(folder: Path) -> tuple[list[int], int]:
    """The numbers in the sink, sorted, and how many different messages they are of."""
    import pyarrow.dataset

    rows = pyarrow.dataset.dataset(folder / "sink", partitioning="hive").to_table(["payload", "message_id"])
    return sorted(map(int, rows["payload"].to_pylist())), len(set(rows["message_id"].to_pylist()))


def test_the_messages_of_a_killed_executor_are_read_again(url: str, queue: Queue, home: Path, tmp_path: Path) -> None:
    fill(queue, MESSAGES)
    log = tmp_path / "log"
    with running(job("executor", "local-cluster[2,1,1024]", url, queue, tmp_path), home, log) as process:
        assert ended(process, log) == ["done", str(MESSAGES)]
    assert (tmp_path / "killed").exists()
    assert stored(tmp_path) == ([*range(MESSAGES)], MESSAGES)
    assert (queue.stats().acked, queue.len()) == (MESSAGES, 0)


def test_a_driver_that_was_killed_before_it_committed_is_handed_the_same_messages(
    url: str, queue: Queue, home: Path, tmp_path: Path
) -> None:
    fill(queue, MESSAGES)
    log = tmp_path / "log"
    with running(job("driver", "local[2]", url, queue, tmp_path), home, log) as process:
        eventually(lambda: (tmp_path / "written").exists() or process.poll() is not None, 200)
        assert process.poll() is None, log.read_text()[-6000:]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = sorted((tmp_path / "sink").glob("query=*/batch=1/*.parquet"))
    assert before
    assert queue.stats().acked == 5000
    with running(job("none", "local[2]", url, queue, tmp_path), home, log) as process:
        assert ended(process, log) == ["done", str(MESSAGES)]
    assert stored(tmp_path) == ([*range(MESSAGES)], MESSAGES)
    assert (queue.stats().acked, queue.len()) == (MESSAGES, 0)


def has_begun(log: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether a program works on a micro-batch; it must not end before."""
    assert process.poll() is None, log.read_text()[-6000:]
    return "working" in log.read_text()


@pytest.mark.timeout(3600 if SOAK else 900)
@pytest.mark.runs_in("test-all", "soak")
def test_a_driver_that_is_killed_at_random_loses_nothing_and_finds_the_poison_all_the_same(
    url: str, queue: Queue, home: Path, tmp_path: Path, rng: random.Random
) -> None:
    """The sink is idempotent: what it has of a micro-batch is replaced when that is tried again."""
    queue.configure(max_deliveries=16)
    command = job("poison", "local[2]", url, queue, tmp_path)
    for at in range(KILLS):
        fill(queue, 500, 500 * at)
        log = tmp_path / f"log-{at}"
        with running(command, home, log) as process:
            eventually(partial(has_begun, log, process), 300)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, 8))
            assert process.poll() in (None, 0), log.read_text()[-6000:]
    log, count = tmp_path / "log", 500 * KILLS
    with running(command, home, log) as process:
        assert ended(process, log) == ["done", str(count - 1)]
    assert stored(tmp_path) == ([*range(77), *range(78, count)], count - 1)
    assert [bytes(letter.body) for letter in queue.dead(10)] == [b"77"]
    assert (queue.stats().acked, queue.len()) == (count - 1, 0)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Server]:
    """A server that keeps its data when it is killed."""
    with Server(directory=tmp_path / "redis") as server:
        yield server


def test_redis_may_be_killed_while_a_micro_batch_runs(
    spark: Any, durable: Server, queue_name: str, tmp_path: Path
) -> None:
    sink = Sink(tmp_path / "sink")
    with Client.from_url(durable.url) as client:
        queue = client.queue(queue_name, streams=8, visibility_timeout=120)
        fill(queue, 6000)

        def work(df: Any, batch: int) -> None:
            if batch == 1:
                durable.restart()
            sink(df, batch)

        drain(spark, durable.url, work, tmp_path / "checkpoint", subscribe=queue.name, maxInFlight=2000)
        assert sink.numbers(spark) == list(range(6000))
        assert (queue.stats().acked, queue.len()) == (6000, 0)

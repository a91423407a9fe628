"""Errors of Spark are one line that says what to do; messages that no test can provoke are recorded ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException

from shardq.client import Queue
from shardq.errors import PipelineFailed
from shardq.spark.connection import client_of
from shardq.spark.options import Connecting
from shardq.spark.pipelines.errors import line_of
from shardq.spark.pipelines.session import explained, patient
from tests.spark.rows import drained

JOB = "An error occurred while calling o96.save.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
RECORDED = [
    (
        f"{JOB}Task 0 in stage 1.0 failed 1 times: java.lang.OutOfMemoryError: Java heap space\n\tat x",
        "too little memo",
    ),
    (
        f"{JOB}ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "executors of Spark were lost",
    ),
    (
        (
            "An error occurred while calling o105.parquet.\n: x.SparkException: [TASK_WRITE_FAILED] Task failed"
            " while writing rows to file:/a. SQLSTATE: 58030\nCaused by: IOException: No space left on device"
        ),
        "the disk is full",
    ),
    (
        f"{JOB}java.io.IOException: Mkdirs failed to create file:/proc/x/_temporary/0 (exists",
        "the folder /proc/x cannot",
    ),
    (
        f"{JOB}java.io.FileNotFoundException: /a/b.csv (Permission denied)\n\tat x",
        "no right to read or to write /a/b.csv",
    ),
    (
        (
            "An error occurred while calling o1.parquet.\n: x.UnsupportedFileSystemException: No FileSystem"
            ' for scheme "foo"\n\tat x'
        ),
        "does not know the file system foo",
    ),
    (
        (
            "An error occurred while calling o1.parquet.\n: java.lang.RuntimeException: ClassNotFoundException:"
            " Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat x"
        ),
        "does not know the file system org.apache.hadoop.fs.s3a.S3AFileSystem",
    ),
    ("java.net.UnknownHostException: nowhere.invalid", "there is no host nowhere.invalid"),
    (
        (
            "An error occurred while calling o1.parquet.\n: x.SparkException: [FAILED_READ_FILE."
            "CANNOT_READ_FILE_FOOTER] Encountered error while reading file file:/a/b.py. Could not read footer.\nIf not"
        ),
        "file:/a/b.py has another format",
    ),
    (
        "x\n: org.apache.spark.SparkException: Could not parse Master URL: 'lokal'\n\tat x",
        "lokal is no master of Spark",
    ),
    ("An error occurred while calling o1.x.\n: java.lang.IllegalStateException: all is lost\n\tat x", "all is lost"),
]


@pytest.mark.parametrize(("text", "told"), RECORDED)
def test_of_a_trace_of_java_one_line_is_said(text: str, told: str) -> None:
    line = line_of(Exception(text))
    assert told in line
    assert not any(each in line for each in ("\n", "An error occurred", "\tat"))


def test_redis_that_does_not_answer_is_no_wrong_command() -> None:
    trace = "[PYTHON_DATA_SOURCE_ERROR] Traceback (most recent call last):\n  File x\nshardq.errors.{}: {}"
    with pytest.raises(PipelineFailed, match=r"^no answer after 6 tries$"), explained():
        raise AnalysisException(trace.format("BackendTimeout", "no answer after 6 tries"))


def test_a_process_that_was_forked_has_a_client_of_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Connecting(url=url)
    parents = client_of(options)
    assert client_of(options) is parents
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert client_of(options) is not parents


def test_a_jvm_that_has_ended_is_said() -> None:
    for error in (Py4JNetworkError("Error while receiving"), ConnectionRefusedError(111, "Connection refused")):
        with pytest.raises(PipelineFailed, match=r"^Spark's JVM has ended.*run it again"), explained():
            raise error


def test_a_local_master_tries_a_task_more_than_once_unless_it_says_how_often() -> None:
    told = {"local": "local[1,4]", "local[*]": "local[*,4]", "local[2]": "local[2,4]", "local[2,1]": "local[2,1]"}
    told |= {"spark://host:7077": "spark://host:7077", "local-cluster[2,1,1024]": "local-cluster[2,1,1024]"}
    assert {master: patient(master) for master in told} == told


def killed(after: Path | None = None) -> Any:
    """A step that kills the Python worker that runs it: every one, or only the first."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if after is None or not after.exists():
                if after is not None:
                    after.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return work


@pytest.mark.timeout(120)
def test_workers_that_are_killed_again_and_again_are_said(spark: Any) -> None:
    wanted = pytest.raises(PipelineFailed, match=r"^a Python worker of Spark ended suddenly.*Run it again")
    with wanted as failed, explained():
        spark.range(10).mapInArrow(killed(), "id long").count()
    assert "\n" not in str(failed.value)


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(120)
def test_a_worker_that_is_killed_once_costs_no_row(spark: Any, queue: Queue, url: str, tmp_path: Path) -> None:
    rows = spark.range(0, 2000, 1, 2).mapInArrow(killed(tmp_path / "once"), "id long")
    made = rows.selectExpr("concat('key-', id % 7) shard_key", "cast(id as string) payload")
    made.write.format("shardq").option("url", url).option("queue", queue.name).mode("append").save()
    assert (tmp_path / "once").exists()
    assert sorted(int(each.payload) for each in drained(queue)) == list(range(2000))

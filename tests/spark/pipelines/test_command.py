"""`shardq pipeline NAME` in the session of the tests: one line when something is wrong, a report when all went well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from examples.demo_spark import __main__ as demo_spark
from shardq.cli.pipelines.stage import connecting
from shardq.cli.shell import Shell
from shardq.client import Client, Queue
from shardq.errors import ConfigError, PipelineFailed
from shardq.spark.pipelines.session import check_java, explained, session
from tests.spark.pipelines.conftest import Shardq
from tests.spark.rows import drained

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


def test_a_day_of_a_queue(shardq: Shardq, client: Client, queue_name: str, tmp_path: Path) -> None:
    """Loaded, worked off, archived, redriven; the counts agree at every step."""
    jobs = client.queue(queue_name, streams=8, streams_per_shard=2, journal=100_000)
    jobs.read_many(1)
    rows, archive = tmp_path / "rows.json", tmp_path / "archive"
    rows.write_text("".join(json.dumps({"tenant": f"t-{at % 9}", "n": at}) + "\n" for at in range(300)))
    loaded = shardq.report("load", str(rows), queue_name, "--key", "tenant")
    assert (loaded["rows"], jobs.len()) == (300, 300)
    found = jobs.read_many(300)
    jobs.reject_many(found[:12], "timed out")
    jobs.ack_many(found[12:])
    told = shardq.report("archive", str(archive), queue_name)
    assert (told["journal rows"], told["dead rows"]) == (900, 12)
    dry = shardq.report("redrive", queue_name, "--where", "reason = 'timed out'")
    assert (dry["chosen"], dry.get("redriven"), jobs.stats().dead) == (12, None, 12)
    done = shardq.report("redrive", queue_name, "--where", "reason = 'timed out'", "--go", "--rate", "1000")
    assert (done["redriven"], len(drained(jobs))) == (12, 12)


def test_the_counts_of_the_demo_agree(
    spark: Any, url: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 30 files; real workers take them."""
    monkeypatch.setattr(demo_spark, "SPAN", 0.5)
    demo_spark.demo(spark, url, demo_spark.queues_of(client), tmp_path, tmp_path, 30)
    assert (tmp_path / "plain.html").exists()
    assert (tmp_path / "fair.html").exists()
    third = client.queue("spark", streams=4)
    third.read_many(1)  # creates it
    demo_spark.consume(spark, url, spark.read.parquet(str(tmp_path / "rows")), third, tmp_path / "consumed")
    assert third.len() == 0


def test_counts_of_the_demo_that_disagree_end_it() -> None:
    with pytest.raises(demo_spark.Disagreement, match=r"step: \{'one': 1, 'two': 2\}"):
        demo_spark.agree("step", one=1, two=2)


def test_a_report_for_people(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("tenant,n\na,1\n")
    code, out, err = shardq("load", str(tmp_path / "rows.csv"), queue.name, "--key", "tenant")
    assert (code, queue.len()) == (0, 1)
    assert re.search(r"^rows +1$", out, re.MULTILINE)
    assert "shardq: " in err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("load", "{folder}/none.csv", "{queue}", "--key", "x"), 2, "PATH_NOT_FOUND"),
        (
            ("load", "{folder}/rows.csv", "{queue}", "--key", "x"),
            2,
            "there is no column 'x'; the columns are tenant, n",
        ),
        (("load", "{folder}/rows.csv", "nowhere", "--key", "tenant"), 3, "there is no queue 'nowhere'"),
        (
            ("load", "{folder}/broken.json", "{queue}", "--key", "tenant", "--schema", "tenant string"),
            1,
            "/broken.json cannot be parsed",
        ),
        (("archive", "{folder}/archive", "{queue}", "--every", "5"), 2, "--every follows one table"),
        (("archive", "{folder}/archive", "--compact", "--adopt"), 2, "--adopt needs the queues"),
        (("redrive", "{queue}", "--where", "colour = 'red'"), 2, "colour"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    shardq: Shardq, queue: Queue, tmp_path: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    (tmp_path / "rows.csv").write_text("tenant,n\na,1\n")
    (tmp_path / "broken.json").write_text('{"tenant": "a"}\n{"tenant": \n')
    found, _, err = shardq(*(word.format(folder=tmp_path, queue=queue.name) for word in words))
    last = [line for line in err.splitlines() if not line.endswith(" ...")][-1]
    assert (found, told in last) == (code, True), err
    assert queue.len() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "{folder}/archive", "{queue}"),
        ("redrive", "{queue}"),
        ("load", "{folder}/rows.csv", "{queue}", "--key", "tenant"),
    ],
)
def test_the_timeout_of_the_command_is_that_of_the_tasks(
    shardq: Shardq, queue: Queue, tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the format refuses, and the client would, too, tells that it got there."""
    assert connecting(Namespace(timeout=2.5), Shell("redis://x", 2.5, json=False))["timeout"] == "2.5"
    options = {"url": shardq.url, "timeout": "4000"}
    (tmp_path / "rows.csv").write_text("tenant,n\na,1\n")
    module = "rows" if words[0] == "load" else words[0]
    monkeypatch.setattr(f"shardq.cli.pipelines.{module}.connecting", lambda args, shell: options)
    found, _, err = shardq(*(word.format(folder=tmp_path, queue=queue.name) for word in words))
    assert (found, "timeout must be a number of seconds from 0." in err) == (2, True), err


def test_java_that_is_missing_or_too_old_is_said_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="there is no java on PATH: Spark needs Java 17 or newer"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .*, which has no bin/java"):
        check_java()
    java = tmp_path / "bin" / "java"
    for version, old in (("1.8.0_312", 8), ("11.0.2", 11)):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        with pytest.raises(ConfigError, match=f"is Java {old}: Spark needs 17 or newer"):
            check_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\" 2023-09-19' >&2\n")
    check_java()


def bare(folder: Path) -> dict[str, str]:
    """An environment in which there is no Java, and nothing else but what *folder* holds."""
    left = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHONPATH")}
    return left | {"PATH": str(folder), "PYTHONPATH": str(folder)}


def test_the_command_says_in_one_line_that_java_or_a_fitting_pyspark_is_missing(tmp_path: Path) -> None:
    """In a process of its own, as a newcomer meets it: no Java, then an old one, then an old PySpark."""

    def told() -> str:
        command = [sys.executable, "-m", "shardq.cli", "pipeline", "archive", "x", "--compact"]
        done = subprocess.run(command, env=bare(tmp_path), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        *before, last = done.stderr.splitlines()
        assert before in ([], ["shardq: starting Spark ..."])
        return last

    assert told() == ("shardq: there is no java on PATH: Spark needs Java 17 or newer (Debian: default-jre-headless)")
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    assert told() == f"shardq: {java} is Java 11: Spark needs 17 or newer; set JAVA_HOME to one"
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'")
    assert told() == "shardq: PySpark 3.5.1 is installed, but 4.0 up to 5 is needed: pip install 'shardq[spark]'"


def test_a_session_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", object)  # Connect's have no JVM either
    with pytest.raises(ConfigError, match="pipelines do not run through Spark Connect: unset SPARK_REMOTE"):
        session("test")


TRACEBACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to initialize: Traceback (most recent call last):
  File "worker.py", line 1, in main
    command = serializer.load_stream(file)
{}: {}
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("kind", "message", "told"),
    [
        (
            "ModuleNotFoundError",
            "No module named 'shardq'",
            r"Spark's workers have no shardq: .*--py-files shardq\.zip",
        ),
        ("ModuleNotFoundError", "No module named 'pyarrow'", r"^ModuleNotFoundError: No module named 'pyarrow'$"),
        ("shardq.errors.QueueMissing", "there is no queue 'x'", r"^there is no queue 'x'$"),
    ],
)
def test_of_a_python_traceback_the_last_line_is_said(kind: str, message: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told), explained():
        raise AnalysisException(TRACEBACK.format(kind, message))


def test_an_error_of_shardq_in_a_task_is_what_is_said(spark: Any, url: str, queue: Queue) -> None:
    rows = spark.sql("select '' as shard_key, 'x' as payload")
    with pytest.raises(PipelineFailed, match=r"shard_key has 0 bytes") as failed, explained():
        rows.write.format("shardq").options(url=url, queue=queue.name).mode("append").save()
    assert "\n" not in str(failed.value)

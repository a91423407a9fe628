"""The Spark session of a pipeline, and Spark's errors as one line of text."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final
from warnings import catch_warnings, simplefilter

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from shardq.errors import ConfigError, PipelineFailed
from shardq.spark import check_install, register
from shardq.spark.pipelines.errors import GONE, line_of, unanswered
from shardq.spark.pipelines.jvm import Tell, end, logging_options, start, to_stderr
from shardq.spark.privates import context_there, jvm_of, session_there

OLDEST_JAVA: Final = 17
MAX_TRIES: Final = 4
PARTITIONS: Final = "spark.sql.shuffle.partitions"
MIN_PARTITIONS: Final = 16
"""On a cluster, whose executors may come later, and only then Spark knows how many cores it has."""
LOCAL_MASTER: Final = re.compile(r"local(?:\[([^,\]]+)\])?")
"""A local master that says nothing of failures; then Spark tries no task twice."""

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",  # fewer and larger tasks: Python ones cost 50 ms
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults of a session that a pipeline starts itself; spark-submit and `settings` override them."""


def check_java() -> None:
    """ConfigError that says what to install, unless a Java is found that can run Spark 4."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise ConfigError(f"{where}: Spark needs Java {OLDEST_JAVA} or newer (Debian: default-jre-headless)")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found on PATH
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if found is None:
        raise ConfigError(f"{java} -version prints no version: Spark needs Java {OLDEST_JAVA} or newer")
    version = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if version < OLDEST_JAVA:
        raise ConfigError(f"{java} is Java {version}: Spark needs {OLDEST_JAVA} or newer; set JAVA_HOME to one")


def session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None, tell: Tell = to_stderr
) -> SparkSession:
    """The active session, for example under spark-submit; else a new one on *master*, by default all cores here.

    The format "shardq" is registered with it. If a JVM is started, *tell* gets each line of its stderr, mostly errors.
    ConfigError when PySpark, PyArrow or Java is missing or too old, or the session is one of Spark Connect.
    """
    check_install()
    running = SparkSession.getActiveSession()
    if running is None:
        check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has chosen the master and the settings
            start(_settings(name, master or "local[*]") | dict(settings or {}), tell)
        running = SparkSession.builder.appName(f"shardq {name}").getOrCreate()
        _size(running)
    if jvm_of(running) is None:
        raise ConfigError(
            "pipelines do not run through Spark Connect: unset SPARK_REMOTE and give the --master instead"
        )
    register(running)
    return running


def patient(master: str) -> str:
    """*master*, where a local one tries a task as often as a cluster does: one killed worker then costs nothing.

    No pipeline takes harm from that: each row is stored once, and each file is written whole.
    """
    found = LOCAL_MASTER.fullmatch(master)
    return f"local[{found[1] or 1},{MAX_TRIES}]" if found else master


def stop() -> None:
    """Stop Spark, and end the JVM if this process started it: it would continue for a while."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Py4J logs the stack of a thread that is waiting for an answer now
    try:
        context = context_there()
        if context is not None:
            with suppress(Exception), catch_warnings():  # the JVM has ended already, perhaps for want of memory
                simplefilter("ignore")
                (session_there() or context).stop()
        end()
    finally:
        logging.disable(before)


def _settings(name: str, master: str) -> dict[str, str]:
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {"spark.app.name": f"shardq {name}", "spark.master": patient(master), **SETTINGS, **logging_options()}


def _size(spark: SparkSession) -> None:
    """Shuffle into two partitions for each core, unless the user says how many; Spark merges them where rows are few.

    Spark's own 200 are as many tasks of each batch of a stream, whose partitions it does not merge.
    """
    context = spark.sparkContext
    if PARTITIONS not in dict(context.getConf().getAll()):
        fewest = 1 if context.master.startswith("local") else MIN_PARTITIONS
        spark.conf.set(PARTITIONS, str(max(fewest, 2 * context.defaultParallelism)))


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of Spark into one line: ConfigError for a wrong table, column or path, else PipelineFailed."""
    try:
        yield
    except AnalysisException as error:
        raise (PipelineFailed if unanswered(error) else ConfigError)(line_of(error)) from error
    except (PySparkException, Py4JJavaError) as error:  # Py4JJavaError if Spark has no message of its own
        raise PipelineFailed(line_of(error)) from error
    except (Py4JError, ConnectionError) as error:  # others that do not answer are named by an error of shardq
        raise PipelineFailed(GONE) from error

"""The Spark session of a pipeline, and Spark's errors as one line of text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from shardq.errors import ConfigError, PipelineFailed
from shardq.spark import check_install, register
from shardq.spark.pipelines.jvm import Tell, logging_options, start, to_stderr

OLDEST_JAVA: Final = 17
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
        if not _submitted():
            start(_settings(name, master or "local[*]") | dict(settings or {}), tell)
        running = SparkSession.builder.appName(f"shardq {name}").getOrCreate()
    if getattr(running, "_jvm", None) is None:
        raise ConfigError(
            "pipelines do not run through Spark Connect: unset SPARK_REMOTE and give the --master instead"
        )
    register(running)
    return running


def _settings(name: str, master: str) -> dict[str, str]:
    here = {}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        here = {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}
    return {"spark.app.name": f"shardq {name}", "spark.master": master, **SETTINGS, **logging_options(), **here}


def _submitted() -> bool:
    """Whether spark-submit started this program, and so has chosen the master and the settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of Spark into one line: ConfigError for a wrong table, column or path, else PipelineFailed."""
    try:
        yield
    except AnalysisException as error:
        raise ConfigError(_line(error)) from error
    except (PySparkException, Py4JJavaError) as error:  # Py4JJavaError if Spark has no message of its own
        raise PipelineFailed(_line(error)) from error


RAISED: Final = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
"""The last line of a Python traceback."""

OURS: Final = re.compile(r"shardq\.errors\.\w+: (.+)")
"""The last line of a Python traceback with an error of shardq, within a message of Spark."""

SPARKS: Final = re.compile(r"^.*?(\[[A-Z_.]+\] .+)$", re.MULTILINE)
"""A message of Spark that begins with the name of an error class in brackets."""


def _line(error: Exception) -> str:
    """The message of a Spark error in one line, without tracebacks; if shardq raised it in a task, shardq's message."""
    text = str(error)
    if "[MALFORMED_RECORD_IN_PARSING" in text:  # whose message holds the record
        return "a line of the input cannot be parsed: fix it, or give its format and schema"
    if "CSV header does not conform to the schema" in text:  # the reader of load and route checks headers
        return "a CSV file has other columns than the schema, which is that of the first file unless one is given"
    ours, sparks = OURS.findall(text), SPARKS.findall(text)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    line: str = ours[-1] if ours else sparks[-1] if sparks else first
    if not ours and line.endswith("Traceback (most recent call last):") and (raised := RAISED.findall(text)):
        line = ": ".join(raised[-1])
    if "ModuleNotFoundError: No module named 'shardq'" in text:
        line = (
            "Spark's workers have no shardq: install it there, or ship it by --py-files shardq.zip (docs/pipelines.md)"
        )
    return line.partition(" SQLSTATE:")[0].strip()

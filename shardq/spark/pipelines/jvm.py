"""The JVM of a session that we start: what it says on stderr passes through here, without what it always says."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger

from shardq.errors import ConfigError

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
ALWAYS: Final = re.compile(r"WARNING: Using incubator modules: ")
"""The JVM says this of modules that Spark asks for itself; no setting keeps it from doing so."""

FRAME: Final = re.compile(r"\tat ")
"""Of a stack trace: of no use to anybody before anything runs."""

Tell = Callable[[str], None]


def to_stderr(line: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"{line}\n")


def start(settings: dict[str, str], tell: Tell) -> None:
    """Start Spark in a JVM with these *settings*, which then is the one of `SparkSession.builder`.

    *tell* gets each line of the JVM's stderr, on a thread of its own. A JVM that an earlier session left is used again.
    """
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # says in JSON what is raised as well
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    SparkContext(conf=conf, gateway=_launched(conf, tell) if SparkContext._gateway is None else None)


def _launched(conf: SparkConf, tell: Tell) -> Any:
    """The way to a new JVM. ConfigError when it does not start, after what it said was told."""
    (reading, writing), running = os.pipe(), Event()
    thread = Thread(target=_pass_on, args=(reading, tell, running), name="stderr of the JVM", daemon=True)
    thread.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})
    except PySparkRuntimeError as error:
        os.close(writing)
        thread.join(5)
        raise ConfigError("Spark did not start: above is what it said; look at --master and --conf") from error
    os.close(writing)
    running.set()
    return gateway


def logging_options() -> dict[str, str]:
    """The setting that keeps Spark's log to errors; a user's spark.driver.extraJavaOptions come after it, and win."""
    if not LOGGING.is_file():  # imported from a zip, say
        return {"spark.log.level": "ERROR"}
    quoted = str(LOGGING).replace("\\", "\\\\").replace('"', '\\"')
    return {"spark.driver.defaultJavaOptions": f'"-Dlog4j2.configurationFile={quoted}"'}


def _pass_on(reading: int, tell: Tell, running: Event) -> None:
    with open(reading, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if not ALWAYS.match(line) and (running.is_set() or not FRAME.match(line)):
                tell(line.rstrip("\n"))

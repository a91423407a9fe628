"""Starting a JVM for Spark. Its stderr is forwarded line by line, without a warning that it always prints."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger

from shardq.errors import ConfigError
from shardq.spark.privates import (
    forget_gateway,
    gateway_there,
    launch,
    process_begun,
    process_of,
    say_nothing_of_the_end,
)

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
EXPECTED_WARNINGS: Final = re.compile(r"WARNING: Using incubator modules: ")
"""The JVM warns of modules that Spark itself requests; no setting turns that off."""

FRAME: Final = re.compile(r"\tat ")
"""A line of a Java stack trace. Before Spark runs these are left out, because they help nobody."""

Tell = Callable[[str], None]


def to_stderr(line: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"{line}\n")


def start(settings: dict[str, str], tell: Tell) -> None:
    """Start Spark in a JVM with these *settings*, which then is the one of `SparkSession.builder`.

    *tell* gets each line of the JVM's stderr, on a thread of its own. A JVM that an earlier session left is used again.
    """
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # it logs errors as JSON that are raised, too
    logging.root.addFilter(_is_not_py4js)
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    gateway = _launched(conf, tell) if gateway_there() is None else None
    say_nothing_of_the_end(SparkContext(conf=conf, gateway=gateway))


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is not one of Py4J, which logs the stacks of errors that it raises, too."""
    return Path(record.pathname).parent.name != "py4j"


def _launched(conf: SparkConf, tell: Tell) -> Any:
    """Start a JVM; its Py4J gateway. ConfigError if it does not start, after its stderr was forwarded.

    It is in a session of its own, so that a terminal's Ctrl-C does not reach its processes before this one. Nor do they
    keep stdout open, which is for reports.
    """
    (reading, writing), running = os.pipe(), Event()
    thread = Thread(target=_forward_lines, args=(reading, tell, running), name="stderr of the JVM", daemon=True)
    thread.start()
    try:
        try:
            gateway = Launch(conf, {"stdout": writing, "stderr": writing, "start_new_session": True}).gateway()
        finally:
            os.close(writing)
    except PySparkRuntimeError as error:
        thread.join(5)
        raise ConfigError("Spark did not start; its messages are above; check --master and --conf") from error
    running.set()
    return gateway


class Launch:
    """Starts a JVM on a thread of its own, so that a signal's handler raises nothing there.

    If it did right after the fork, nobody would know the process, which lives on: PySpark removes the folder into which
    it is about to write, and after that error it waits for nothing.
    """

    def __init__(self, conf: SparkConf, popen: dict[str, Any]) -> None:
        self._conf, self._popen = conf, popen
        self._gateway: Future[Any] = Future()
        self._thread = Thread(target=self._run, name="starting the JVM", daemon=True)

    def gateway(self) -> Any:
        """Return the Py4J gateway. If this is interrupted, the JVM is killed."""
        try:
            self._thread.start()
            return self._gateway.result()
        except BaseException:
            self._kill()
            raise

    def _run(self) -> None:
        try:
            self._gateway.set_result(launch(self._conf, self._popen))
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            self._gateway.set_exception(error)

    def _kill(self) -> None:
        """Kill the JVM as soon as its process is known, which is soon."""
        while not wait([self._gateway], 0.01).done:
            if (process := process_begun(self._thread)) is not None:
                process.kill()
        if self._gateway.exception() is None and (process := process_of(self._gateway.result())) is not None:
            process.kill()


def end() -> None:
    """End the JVM that this process started, if it did; a later session starts another one."""
    process = process_of(gateway_there())
    if process is None or process.stdin is None:
        return
    forget_gateway()
    with contextlib.suppress(OSError):
        process.stdin.close()  # which the JVM is waiting for
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kill() -> None:
    """Kill the JVM that this process started, if it did."""
    process = process_of(gateway_there())
    if process is not None:
        process.kill()


def logging_options() -> dict[str, str]:
    """The setting that keeps Spark's log to errors; a user's spark.driver.extraJavaOptions come after it, and win."""
    if not LOGGING.is_file():  # imported from a zip, say
        return {"spark.log.level": "ERROR"}
    quoted = str(LOGGING).replace("\\", "\\\\").replace('"', '\\"')
    return {"spark.driver.defaultJavaOptions": f'"-Dlog4j2.configurationFile={quoted}"'}


def _forward_lines(reading: int, tell: Tell, running: Event) -> None:
    with open(reading, encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if not EXPECTED_WARNINGS.match(line) and (running.is_set() or not FRAME.match(line)):
                tell(line.rstrip("\n"))

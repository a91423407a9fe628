"""One Spark for all tests of this folder that a process runs, and a queue to fill or look into."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from tests.parts import JAVA
from tests.servers import Server
from tests.spark.programs import QUICK, spark_home

MASTER = "local[2,3]"  # two tasks at once, each tried up to three times
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # without checksums: a checkpoint takes
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",  # half of the time
    "spark.log.level": "OFF",  # failures are made on purpose here; what a test needs is in the exception
    "spark.default.parallelism": "1",  # for few rows, each further task only takes time
    "spark.python.authenticate.socketTimeout": "120s",  # 15 s are not enough on a busy machine
    "spark.python.daemon.module": "tests.spark.daemon",
    "spark.sql.adaptive.enabled": "false",  # this and the next two: for few rows, planning and compiling take longest
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextlib.contextmanager
def _going_first() -> Iterator[None]:
    """What is started here goes before other tests, if it may: Spark gives a Python only 10 s to start."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


@contextlib.contextmanager
def _ctrl_c_as_it_was() -> Iterator[None]:
    """PySpark sets a handler of SIGINT, and a worker that a later test runs would take this process for a host's."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave_handlers() -> None:
    """PySpark's loggers set the format of each handler that they get, so also of pytest's, for all tests to come."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.addHandler = logging.Logger.addHandler


def _drop_what_was_cut_off(session: Any) -> None:
    """A test that takes too long is struck while it waits for Java, and py4j would keep the connection.

    The answer would then be taken for that to the next call, of another test: all tests after it would fail. The next
    connection has another thread of Java, in which the session is made the active one, as it was in that before.
    """
    from py4j.clientserver import ClientServerConnection

    send = ClientServerConnection.send_command

    def send_command(self: Any, command: str) -> Any:
        try:
            return send(self, command)
        except BaseException as cut_off:
            if not isinstance(cut_off, Exception):  # py4j itself deals with these
                self.close()
                session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
            raise

    ClientServerConnection.send_command = send_command


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session in which the format is known."""
    JAVA.need()
    _leave_handlers()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    from pyspark.sql import SparkSession

    from shardq.spark import register

    builder = SparkSession.builder.master(MASTER).appName("shardq tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    with _going_first(), _ctrl_c_as_it_was():
        session = builder.getOrCreate()
    _drop_what_was_cut_off(session)
    register(session)
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()  # the JVM would outlive the session
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark home for programs that a test starts."""
    JAVA.need()
    return spark_home(tmp_path)


@pytest.fixture(scope="session")
def spark_server() -> Iterator[Server]:
    """A server for this folder: what differs between servers is tested where no Spark is needed."""
    with Server() as server:
        yield server


@pytest.fixture
def url(spark_server: Server) -> str:
    """The URL of that server. Tasks of a job that failed may go on in later tests: each test has queues of its own."""
    return spark_server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A client of that server."""
    with Client.from_url(url) as client:
        yield client


@pytest.fixture
def queue(client: Client, queue_name: str) -> Queue:
    """An empty queue of eight streams; a lease lasts longer than a job of Spark on a busy machine."""
    queue = client.queue(queue_name, streams=8, streams_per_shard=2, max_deliveries=2, visibility_timeout=600)
    queue.read_many(1)  # creates it
    return queue

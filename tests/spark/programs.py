"""Spark programs as processes of their own, and a home for their Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half of a JVM's CPU at its start


DEFAULTS = f"""
spark.driver.extraJavaOptions {QUICK}
spark.executor.extraJavaOptions {QUICK}
spark.python.authenticate.socketTimeout 120s
spark.python.daemon.module tests.spark.daemon
spark.sql.codegen.factoryMode NO_CODEGEN
spark.sql.codegen.wholeStage false
"""
"""What makes small jobs cheap, as in the session of the other tests; a program's own settings go before these."""


def spark_home(folder: Path) -> Path:
    """A Spark home in *folder*, whose work folders are not in the installed package."""
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python", "sbin"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    return home


def environment(home: Path) -> dict[str, str]:
    """What Spark's processes need to know."""
    return os.environ | {
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def running(
    words: list[str], home: Path, log: Path, beside: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is killed at the end. *beside* changes its environment."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, cwd=home, env={**environment(home), **(beside or {})}, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def ended(process: subprocess.Popen[bytes], log: Path) -> list[str]:
    """What a program printed at last; its log when it failed."""
    assert process.wait(400) == 0, log.read_text()[-6000:]
    return log.read_text().splitlines()[-1].split()


@contextmanager
def standalone(home: Path, folder: Path, beside: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a standalone master with two workers, on two addresses: copies of a task run on different hosts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = str(home / "bin" / "spark-class")
    deploy, place = "org.apache.spark.deploy", ["--webui-port", "0", "--host"]
    url = f"spark://127.0.0.1:{port}"
    master = [launcher, f"{deploy}.master.Master", *place, "127.0.0.1", "--port", str(port)]
    worker = [launcher, f"{deploy}.worker.Worker", url, "-c", "1", "-m", "1g", "-d", str(folder / "work"), *place]
    text = folder / "master"
    with (
        running(master, home, text, beside),
        running([*worker, "127.0.0.1"], home, folder / "w1.log", beside),
        running([*worker, "127.0.0.2"], home, folder / "w2.log", beside),
    ):
        eventually(lambda: text.read_text().count("Registering worker") == 2, 200)
        yield url

"""A pipeline with --every ends by Ctrl-C or SIGTERM: with one line, the report and its exit code, and without a JVM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from shardq.client import Queue
from shardq.spark.pipelines import jvm
from tests import processes
from tests.parts import JAVA
from tests.spark.programs import QUICK
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


STEPS = ("shardq: starting Spark", "shardq: archiving journal")


class Following(NamedTuple):
    """A process that archives a queue until it is told to end, alone in a group as in a terminal."""

    process: subprocess.Popen[str]
    run: str
    archive: Path
    stderr: Path

    def waits(self) -> bool:
        """Whether the first batch is over."""
        return (self.archive / "_checkpoints/journal/commits/0").exists()

    def works(self) -> bool:
        """Whether the first batch has begun."""
        return (self.archive / "_checkpoints/journal/offsets/0").exists()

    def starts(self) -> bool:
        """Whether Spark is being started."""
        return len(processes.left(self.run)) > 1

    def end(self, *numbers: signal.Signals) -> tuple[int, str, list[str]]:
        """Send signals to all of the group; the exit code, stdout and the lines on stderr that say more than a step."""
        for number in numbers:
            os.killpg(self.process.pid, number)
        out, _ = self.process.communicate(timeout=120)
        eventually(lambda: not processes.left(self.run), 60)  # a JVM that is just starting looks up when it has started
        told = self.stderr.read_text().splitlines()
        return self.process.returncode, out, [line for line in told if not line.startswith(STEPS)]


@pytest.fixture
def following(queue: Queue, url: str, tmp_path: Path) -> Iterator[Following]:
    """Of a queue with 21 events: 20 writes, after that its journal was switched on."""
    JAVA.need()
    queue.configure(journal=1000)
    for at in range(20):
        queue.write(b"x", shard_key=f"key-{at}")
    run, archive = uuid.uuid4().hex, tmp_path / "archive"
    command = [sys.executable, "-m", "shardq.cli", "--url", url, "pipeline", "archive", str(archive), queue.name]
    command += ["--only", "journal", "--every", "3600", "--master", "local[2]"]
    command += ["--conf", f"spark.driver.extraJavaOptions={QUICK}"]
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
            env=os.environ | {processes.RUN: run},
        )  # fmt: skip
    try:
        yield Following(process, run, archive, tmp_path / "stderr")
    finally:
        processes.end(run)
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_reports_when_it_is_ended_while_it_waits(following: Following, number: signal.Signals, code: int) -> None:
    eventually(following.waits, 120)
    ended, out, told = following.end(number)
    name = {130: "Ctrl-C", 143: "SIGTERM"}[code]
    assert (ended, out.split()) == (code, ["journal", "rows", "21"]), told
    assert told[-2] == f"shardq: ended by {name}; run it again, and it continues with the rest"
    assert told[-1].startswith("shardq: archive took ")
    assert len(told) <= 5, told  # with the batch, and where the archive is


@pytest.mark.parametrize("moment", [Following.starts, Following.works])
def test_it_ends_in_order_at_any_other_moment(following: Following, moment: Callable[[Following], bool]) -> None:
    eventually(lambda: moment(following), 120)
    code, _, told = following.end(signal.SIGINT)
    assert code == 130, told
    assert all(line.startswith("shardq: ") for line in told), told
    assert sum("ended by Ctrl-C" in line for line in told) == 1
    assert len(told) <= 6, told


def test_the_second_signal_ends_it_at_once(following: Following) -> None:
    """However long Spark would take to stop."""
    eventually(following.works, 120)
    code, out, told = following.end(signal.SIGINT, signal.SIGTERM)
    assert code in (130, 143), told
    assert all(line.startswith("shardq: ") for line in told), told
    assert out == ""


def test_a_jvm_that_is_killed_is_one_line(following: Following) -> None:
    """Py4J logged the call that got no answer, with two stacks."""
    eventually(following.waits, 120)
    for pid in processes.left(following.run):
        with contextlib.suppress(OSError):  # some end by themselves meanwhile
            if Path(f"/proc/{pid}/exe").resolve().name == "java":
                os.kill(pid, signal.SIGKILL)
    following.process.wait(120)
    code, out, told = following.end()
    assert (code, out) == (1, ""), told
    assert [line for line in told if not line.startswith("shardq: ")] == []
    assert told[-1].startswith("shardq: Spark's JVM has ended"), told


def test_a_jvm_is_killed_though_the_signal_comes_right_after_its_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is known to nobody yet. It lived on: the folder for its answer was gone by the time it gave one."""
    forked: list[subprocess.Popen[bytes]] = []

    def fork(command: list[str]) -> subprocess.Popen[bytes]:
        forked.append(subprocess.Popen(command))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.3)  # a fork that takes long
        return forked[0]

    def launch(conf: object, popen: dict[str, object]) -> None:
        proc = fork(["sleep", "600"])
        proc.wait()
        raise PySparkRuntimeError("it was killed")

    monkeypatch.setattr(jvm, "launch", launch)
    try:
        with pytest.raises(KeyboardInterrupt):
            jvm._launched(SparkConf(loadDefaults=False), print)
        assert forked[0].wait(30) == -signal.SIGKILL
    finally:
        forked[0].kill()
        forked[0].wait()

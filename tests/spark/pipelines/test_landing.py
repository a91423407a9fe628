"""`shardq pipeline load --follow`: each file of a landing folder is loaded once, whatever is killed or lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardq.client import Queue
from tests.spark.conftest import SETTINGS
from tests.spark.pipelines.conftest import Shardq
from tests.spark.pipelines.test_load import csv, loaded, said
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]


@contextmanager
def running(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process group of its own, which is killed at the end, the JVM with it."""
    settings = (word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}"))
    command = [sys.executable, "-m", "shardq.cli", *words, "--master", "local[2]", *settings]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_landing_folder_is_loaded_once_though_the_command_is_killed(
    shardq: Shardq, queue: Queue, url: str, tmp_path: Path
) -> None:
    """Killed in the midst of its batches, as it looks every second; the next run takes what is left, and what came."""
    folder, seen, log = tmp_path / "in", tmp_path / "seen", tmp_path / "log"
    for at in range(8):
        csv(folder / f"{at}.csv", at * 500, at * 500 + 500)
    words = ["load", str(folder), queue.name, "--format", "csv", "--key", "tenant", "--follow"]
    words += ["--checkpoint", str(seen), "--option", "maxFilesPerTrigger=1"]
    with running(["--url", url, "pipeline", *words, "--every", "0.1"], log) as process:
        eventually(lambda: queue.stats().written > 1000 or process.poll() is not None, 200)
        assert process.poll() is None, log.read_text()
    assert len(list((seen / "commits").glob("[0-9]*"))) < 8
    csv(folder / "late.csv", 4000, 4100)
    report = shardq.report(*words)
    assert 100 <= report["rows"] <= 3100
    assert loaded(queue) == list(range(4100))
    assert shardq.report(*words)["rows"] == 0
    shutil.rmtree(seen)  # all files come again, in one batch, and are known
    assert shardq.report(*words[:-2])["rows"] == 4100
    assert queue.len() == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--follow",), "--follow needs --checkpoint"),
        (("--checkpoint", "x"), "--checkpoint needs --follow"),
        (("--every", "5"), "--every needs --follow"),
        (("--follow", "--checkpoint", "x", "--format", "table"), "a table of the catalog cannot be followed"),
        (("--follow", "--checkpoint", "x", "--format", "csv"), "UNABLE_TO_INFER_SCHEMA"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    shardq: Shardq, queue: Queue, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    code, _, err = shardq("load", str(tmp_path), queue.name, "--key", "tenant", *words)
    assert (code, told in said(err)) == (2, True), err

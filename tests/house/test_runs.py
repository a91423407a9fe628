"""A test run: one seed for all its processes, all that they recorded told once, and nothing that outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processes import RUN, pytest_xdist_auto_num_workers
from tests.report import NEAR, growth
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
RECORDS = """
import pytest
from tests.report import SEED

@pytest.mark.parametrize("n", range(4))
def test_it(n, record_property, worker_id):
    if n == 3:
        pytest.skip("why not")
    record_property("server", "some server")
    record_property("note", f"seed {SEED}")
    record_property("note", f"by {worker_id}")
"""
LEAVES = """
import subprocess
import sys

def test_it():
    child = subprocess.Popen(["sleep", "600"])
    while sys.platform == "linux" and not open(f"/proc/{{child.pid}}/environ").read():
        pass  # a process that has just begun shows no environment yet, so nobody can tell whose it is
    with open(__file__ + ".pid", "w") as file:
        file.write(str(child.pid))
    {then}
    child.returncode = 0
"""


BACKGROUND = ("sh", "-c", "trap '' INT TERM; exec \"$@\"", "sh")
"""Starts a command with signals ignored, as a shell does what is put into the background, and some CI systems do."""


def run(file: Path, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """pytest on `file` with the settings of these tests, as a run of its own: with its own folder, too."""
    environment = {name: value for name, value in os.environ.items() if name not in (RUN, "SHARDQ_SEED")}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    environment["SHARDQ_TEST_GRACE"] = "0.5"
    command = [
        *before,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "pyproject.toml",
        "-p",
        "no:cacheprovider",
        f"--basetemp={file.parent / 'run'}",
        str(file),
        *words,
    ]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def there(pid: int) -> bool:
    """Whether it runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_processes_share_a_seed_and_what_they_recorded_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "test_records.py"
    file.write_text(RECORDS)
    with run(file, "-n", "2") as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 0, told
    seed = told.partition("random seed: SHARDQ_SEED=")[2].split()[0]
    notes = {line for line in told.splitlines() if line.startswith("note: ")}
    assert notes == {f"note: seed {seed}", "note: by gw0", "note: by gw1", "note: skipped (1): why not"}
    assert "servers tested: some server (3 tests)" in told
    assert told.splitlines()[-1].startswith("3 passed, 1 skipped in ")


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found through /proc")
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
def test_a_process_left_behind_fails_the_run_and_is_ended(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "test_leaves.py"
    file.write_text(LEAVES.format(then=""))
    with run(file, *words) as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 1, told
    assert "left behind" in told
    assert "sleep 600" in told
    eventually(lambda: not there(int(Path(f"{file}.pid").read_text())))


@pytest.mark.skipif(sys.platform != "linux", reason="strays are found through /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
@pytest.mark.parametrize(
    "before",
    [pytest.param((), id="foreground", marks=pytest.mark.soak), pytest.param(BACKGROUND, id="background")],
)
def test_nothing_outlives_a_run_that_is_cut_short(
    tmp_path: Path, before: tuple[str, ...], words: tuple[str, ...], number: int
) -> None:
    file = tmp_path / "test_hangs.py"
    file.write_text(LEAVES.format(then="import threading; threading.Event().wait(600)"))
    pid = Path(f"{file}.pid")
    with run(file, *words, before=before) as process:
        child = int(eventually(lambda: pid.exists() and pid.read_text(), 30))
        assert there(child)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)  # Ctrl-C is for all in the terminal
        process.communicate(timeout=150)
    eventually(lambda: not there(child), 20)


SIGNALLED = """
import os, signal, subprocess, sys

def test_a_child_heeds_what_a_test_sends():
    for number in (signal.SIGINT, signal.SIGTERM):
        child = subprocess.Popen(["sleep", "60"])
        child.send_signal(number)
        assert child.wait(20) == -number

def test_it_meddles():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
def test_what_a_run_inherits_does_not_reach_its_tests_nor_what_one_test_does_the_next(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "test_signalled.py"
    file.write_text(SIGNALLED)
    with run(file, *words, before=BACKGROUND) as process:
        told, _ = process.communicate(timeout=150)
    assert "test_it_meddles: the test has changed what SIGINT does" in told
    assert "2 passed, 1 error" in told, told


@pytest.mark.parametrize(
    ("args", "capture", "some"),
    [
        (["tests/house"], "fd", True),
        (["tests"], "no", False),
        (["tests/house/test_runs.py", "tests/house/test_docs.py::test_x"], "fd", False),
    ],
)
def test_what_is_named_runs_without_other_processes(
    args: list[str], capture: str, some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    config: Any = SimpleNamespace(args=args, option=SimpleNamespace(capture=capture))
    assert bool(pytest_xdist_auto_num_workers(config)) == some


def test_a_run_near_its_bound_names_its_slowest_tests() -> None:
    reports: list[Any] = [SimpleNamespace(nodeid=name, duration=took) for name, took in [("a", 1), ("b", 3), ("a", 4)]]
    assert growth(NEAR - 1, reports) == []
    first, *named = growth(NEAR, reports)
    assert f"{NEAR / 60:.1f} min" in first
    assert [line.split() for line in named] == [["5.0", "s", "a"], ["3.0", "s", "b"]]

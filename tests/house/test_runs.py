"""A test run: one seed for all its processes, all that they recorded told once, and nothing that outlives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.house.made_up import ROOT, inherited, run
from tests.parts import GCC, LINUX
from tests.processes import pytest_xdist_auto_num_workers
from tests.report import slowest
from tests.selection import REPEAT
from tests.waiting import eventually

RECORDS = """
import pytest
from tests.parts import GCC
from tests.report import SEED

why = {why}

@pytest.mark.parametrize("n", range(4))
def test_it(n, record_property, worker_id):
    if n == 3:
        pytest.skip(why)
    record_property("server", "some server")
    record_property("note", f"seed {{SEED}}")
    record_property("note", f"by {{worker_id}}")
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


def there(pid: int) -> bool:
    """Whether it runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.runs_in("test-all")
def test_processes_share_a_seed_and_what_they_recorded_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "test_records.py"
    file.write_text(RECORDS.format(why="str(GCC)"))
    with run(tmp_path, file.name, "-n", "2") as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 0, told
    seed = told.partition("random seed: SHARDQ_SEED=")[2].split()[0]
    notes = {line for line in told.splitlines() if line.startswith("note: ")}
    assert {f"note: seed {seed}"} < notes <= {f"note: seed {seed}", "note: by gw0", "note: by gw1"}
    assert f"left out: {GCC} (1 skipped)" in told
    assert "servers tested: some server (3 tests)" in told
    assert len(re.findall(r"^slowest: [\d.]+ s test_records\.py::test_it\[\d\]$", told, re.MULTILINE)) == 4
    assert told.splitlines()[-1].startswith("3 passed, 1 skipped in ")


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("why", "more", "told_so"),
    [
        ("'why not'", {}, "skipped, and tests/parts.py has no such part: why not"),
        ("str(GCC)", {"SHARDQ_PARTS": "all"}, "SHARDQ_PARTS=all, but left out: gcc is missing"),
    ],
    ids=["no reason", "all parts needed"],
)
def test_a_skipped_test_fails_the_run_unless_its_reason_is_on_the_list(
    tmp_path: Path, words: tuple[str, ...], why: str, more: dict[str, str], told_so: str
) -> None:
    file = tmp_path / "test_records.py"
    file.write_text(RECORDS.format(why=why))
    with run(tmp_path, file.name, *words, more=more) as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 1, told
    assert told_so in told


DESELECTS = """
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=items[1:])
    del items[1:]
"""


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("words", [(), ("-n", "1"), ("-k", "0")], ids=["alone", "workers", "by hand"])
def test_a_test_that_is_deselected_fails_the_run_unless_somebody_asked_for_it(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(DESELECTS)
    file = tmp_path / "test_records.py"
    file.write_text(RECORDS.format(why="str(GCC)"))
    with run(tmp_path, file.name, *words) as process:
        told, _ = process.communicate(timeout=150)
    assert (process.returncode == 0) == ("-k" in words), told
    assert ("deselected without a reason" in told) == ("-k" not in words), told


MARKED = """
import pytest
from tests.selection import SOAK

@pytest.fixture(params=["first", "second"])
def world(request):
    return request.param

def test_plain(world): pass

@pytest.mark.everywhere
def test_each(world): pass

@pytest.mark.parametrize("case", range(3))
def test_cases(world, case): pass

@pytest.mark.everywhere
@pytest.mark.parametrize("case", range(2))
def test_each_has_cases(world, case): pass

@pytest.mark.runs_in("test-all")
def test_long(): pass

@pytest.mark.runs_in("test-all", "soak")
def test_with_a_long_form(): print(f"soak: {{SOAK}}")
"""


@pytest.mark.runs_in("test-all")
def test_a_case_elsewhere_is_repeated_as_often_as_the_others(tmp_path: Path) -> None:
    file = tmp_path / "test_marked.py"
    file.write_text(MARKED.format())
    with run(tmp_path, file.name, "-k", "test_cases", more={"SHARDQ_TESTS": "test-all", REPEAT: "5"}) as process:
        told, _ = process.communicate(timeout=150)
    assert f"{5 * 4} passed" in told


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("command", "passed"),
    [("test", 3 + 3 + 2), ("test-all", 6 + 3 + 1 + 4), ("soak", 1 + 2)],
)
def test_a_command_runs_what_its_marks_say(tmp_path: Path, command: str, passed: int) -> None:
    file = tmp_path / "test_marked.py"
    file.write_text(MARKED.format())
    with run(tmp_path, file.name, "-s", more={"SHARDQ_TESTS": command}) as process:
        told, _ = process.communicate(timeout=150)
    assert f"{passed} passed" in told
    assert ("soak: True" in told) == (command == "soak")


@pytest.mark.runs_in("test-all")
@LINUX.needed
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
def test_a_process_left_behind_fails_the_run_and_is_ended(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "test_leaves.py"
    file.write_text(LEAVES.format(then=""))
    with run(tmp_path, file.name, *words) as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 1, told
    assert "left behind" in told
    assert "sleep 600" in told
    eventually(lambda: not there(int(Path(f"{file}.pid").read_text())))


SPAWNS = """
import multiprocessing

def test_it():
    multiprocessing.get_context("spawn").Semaphore()  # starts the tracker of what processes share
"""


@pytest.mark.runs_in("test-all")
@LINUX.needed
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
def test_what_multiprocessing_keeps_for_the_run_is_not_left_behind(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "test_spawns.py"
    file.write_text(SPAWNS)
    with run(tmp_path, file.name, *words) as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 0, told


@pytest.mark.runs_in("test-all")
@LINUX.needed
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param((), id="foreground", marks=pytest.mark.runs_in("test-all")),
        pytest.param(BACKGROUND, id="background"),
    ],
)
def test_nothing_outlives_a_run_that_is_cut_short(
    tmp_path: Path, before: tuple[str, ...], words: tuple[str, ...], number: int
) -> None:
    file = tmp_path / "test_hangs.py"
    file.write_text(LEAVES.format(then="import threading; threading.Event().wait(600)"))
    pid = Path(f"{file}.pid")
    with run(tmp_path, file.name, *words, before=before) as process:
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


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("words", [(), ("-n", "1")], ids=["alone", "workers"])
def test_what_a_run_inherits_does_not_reach_its_tests_nor_what_one_test_does_the_next(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "test_signalled.py"
    file.write_text(SIGNALLED)
    with run(tmp_path, file.name, *words, before=BACKGROUND) as process:
        told, _ = process.communicate(timeout=150)
    assert "test_it_meddles: the test has changed what SIGINT does" in told
    assert "2 passed, 1 error" in told, told


DIES = """
import os, signal
import pytest

@pytest.mark.parametrize("n", range(9))
def test_many(n):
    pass

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.runs_in("test-all")
@LINUX.needed
def test_a_process_that_dies_fails_one_test_and_the_others_run_to_their_end(tmp_path: Path) -> None:
    file = tmp_path / "test_dies.py"
    file.write_text(DIES + "".join(f"def test_{number}():\n    pass\n" for number in range(20)))
    with run(tmp_path, file.name, "-n", "2") as process:
        told, _ = process.communicate(timeout=150)
    assert process.returncode == 1, told
    assert "1 failed, 29 passed" in told


def reports(test: str, *seconds: float) -> list[pytest.TestReport]:
    """Of a test, which took so long to set up, to run, and to tear down."""
    phases: list[Any] = ["setup", "call", "teardown"]
    return [
        pytest.TestReport(test, ("", 0, ""), {}, "passed", None, when, duration=each)
        for when, each in zip(phases, seconds, strict=True)
    ]


def test_the_ten_slowest_tests_are_named_and_all_that_took_more_than_30_seconds() -> None:
    quick = [each for number in range(20) for each in reports(f"quick {number}", 0, number / 10, 0)]
    slow = reports("slow", 0.5, 1.5, 2)
    long = [each for number in range(12) for each in reports(f"long {number}", 10, 11, 9.1)]
    assert slowest([*quick, *slow])[:3] == ["slowest: 4.0 s slow", "slowest: 1.9 s quick 19", "slowest: 1.8 s quick 18"]
    assert len(slowest([*quick, *slow])) == 10
    assert len(slowest([*quick, *long])) == 12
    assert len(slowest(slow)) == 1


@pytest.mark.runs_in("test-all")
def test_a_test_has_the_same_id_whatever_is_named() -> None:
    """Else what failed among all tests could not be run again by itself."""
    tests = ROOT / "tests"
    nested = [path for path in tests.glob("*/**/conftest.py") if "def pytest_generate_tests(" in path.read_text()]
    folders = {path.parent for path in nested}
    others = [f"--ignore={each}" for each in tests.iterdir() if each.is_dir() and each not in folders]

    def ids(*words: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--collect-only", *words]
        told = subprocess.check_output(command, cwd=ROOT, env=inherited(), text=True, timeout=150)
        return {line for line in told.splitlines() if line.startswith("tests/")}

    whole = ids("tests", *others)
    assert len(whole) > 1000
    assert ids(*map(str, folders)) == whole


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

"""Which runs pass in CI: made-up suites through the program that .ci/run runs, and what that decides."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests import gate
from tests.flickers import FOLDER, Flicker, Record
from tests.gate import judge, objections, run_again, settle
from tests.house.made_up import ROOT, inherited, run
from tests.outcomes import Outcomes
from tests.parts import LINUX
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)  # a run is one process after the other, each of which takes seconds to start
processes = pytest.mark.runs_in("test-all")
RERUNS = "are run again, each by itself"
SEED = 7

SUITE = """
import os, signal, subprocess, sys, zlib
from pathlib import Path
import pytest
from tests.parts import GCC
from tests.report import SEED

def first(case=""):
    ran = Path(__file__).with_name(f"ran-{zlib.crc32(case.encode())}")
    is_first = not ran.exists()
    ran.touch()
    return is_first

def test_passes():
    assert "SHARDQ_GATE" not in os.environ

"""
FLICKERS = """
@pytest.mark.parametrize("case", %r)
def test_flickers(case):
    print(f"told by {os.getpid()}")
    assert not first(case), "only the first time \\u00e9\\u2192"
"""
STRANGE = ["[::1]:7[ '$HOME\"`\\ \x1b[31mé\n*", "-@3", "x" * 100_000]
"""Cases as strange as those of real tests; a shell would take some apart."""


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the record of whoever runs it."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "flickers"))


def ci(folder: Path, *words: str, **more: str) -> tuple[int, str]:
    """The exit status of a run, and what it printed."""
    program, environment = ("tests.gate", "-q"), {"SHARDQ_SEED": str(SEED), "SHARDQ_GATE": "this run", **more}
    with run(folder, "test_made_up.py", *words, program=program, more=environment) as process:
        told, _ = process.communicate(timeout=500)
    return process.returncode, told


def suite(folder: Path, text: str) -> None:
    (folder / "test_made_up.py").write_text(SUITE + text)


def recorded(folder: Path) -> list[Flicker]:
    return Record(folder / "flickers").flickers()


@processes
def test_a_test_that_flickers_passes_and_is_recorded_and_the_next_time_it_fails_the_run(tmp_path: Path) -> None:
    suite(tmp_path, FLICKERS % ["a b/c::d"])
    status, told = ci(tmp_path, "-n", "2")
    assert status == 0, told
    [flicker] = recorded(tmp_path)
    assert (flicker.test, flicker.seed) == ("test_made_up.py::test_flickers[a b/c::d]", SEED)
    assert re.search(r"^[0-9a-f]{40}|^unknown", flicker.commit)
    assert "only the first time" in flicker.failure
    assert "told by" in flicker.failure
    shown = told.partition("flickered: failed, then passed twice by itself")[2]
    assert flicker.test in shown
    assert all(line in shown for line in flicker.failure.splitlines())
    assert told.splitlines()[-1] == "2 passed, 0 failed"

    for ran in tmp_path.glob("ran-*"):
        ran.unlink()
    status, told = ci(tmp_path, SHARDQ_GATE="another run")
    assert status == 1, told
    assert f"{flicker.test} flickered before" in told
    assert told.splitlines()[-1] == "1 passed, 1 failed"


@processes
def test_three_that_flicker_fail_the_run_whatever_their_names_and_are_recorded(tmp_path: Path) -> None:
    suite(tmp_path, FLICKERS % STRANGE)
    status, told = ci(tmp_path, PYTHONIOENCODING="ascii")
    assert status == 1, told
    assert "3 tests flickered, and 2 may" in told
    assert len({flicker.test for flicker in recorded(tmp_path)}) == 3
    assert told.splitlines()[-1] == "1 passed, 3 failed"


@processes
@pytest.mark.parametrize("holds", ["False", f"SEED != {SEED}"], ids=["always", "with the same seed"])
def test_what_fails_again_fails_the_run(tmp_path: Path, holds: str) -> None:
    suite(tmp_path, f"def test_fails():\n    assert {holds}\n")
    status, told = ci(tmp_path)
    assert status == 1, told
    assert f"test_made_up.py::test_fails failed again with SHARDQ_SEED={SEED}" in told
    assert recorded(tmp_path) == []
    assert told.splitlines()[-1] == "1 passed, 1 failed"


LEAVES = """
def test_leaves():
    child = subprocess.Popen(["sleep", "600"])
    while sys.platform == "linux" and not open(f"/proc/{child.pid}/environ").read():
        pass  # a process that has just begun shows no environment yet
    child.returncode = 0
"""


@processes
@LINUX.needed
@pytest.mark.parametrize(
    ("text", "words", "status"),
    [
        ("", ("broken.py", "-n", "1"), 1),
        ("", ("-k", "nothing"), 5),
        ("", ("-x",), 1),
        (LEAVES, (), 1),
        ("def test_is_left_out(): pytest.skip(str(GCC))", (), 1),
        ("def test_that_ends_all(): os._exit(1)", (), 1),
    ],
    ids=["not collected", "no test", "cut short", "process left behind", "part missing", "crash"],
)
def test_what_is_not_one_tests_failure_fails_the_run_at_once(
    tmp_path: Path, text: str, words: tuple[str, ...], status: int
) -> None:
    (tmp_path / "broken.py").write_text("def test_(: pass")
    suite(tmp_path, FLICKERS % ["case"] + text)
    found, told = ci(tmp_path, *words, SHARDQ_PARTS="all" if "GCC" in text else "")
    assert found == status, told
    assert RERUNS not in told
    assert recorded(tmp_path) == []


@processes
@LINUX.needed
def test_a_process_that_dies_is_a_failure_of_the_test_in_which_it_died(tmp_path: Path) -> None:
    suite(tmp_path, "def test_dies():\n    if first():\n        os.kill(os.getpid(), signal.SIGKILL)\n")
    status, told = ci(tmp_path, "-n", "1")
    assert status == 0, told
    [flicker] = recorded(tmp_path)
    assert flicker.test == "test_made_up.py::test_dies"
    assert "crashed" in flicker.failure
    assert told.splitlines()[-1] == "2 passed, 0 failed"


@processes
@LINUX.needed
def test_a_signal_ends_the_run_also_while_a_test_is_run_again(tmp_path: Path) -> None:
    waits = 'Path(__file__).with_name("waits").touch(); import threading; threading.Event().wait(600)'
    suite(tmp_path, f"def test_waits():\n    assert not first()\n    {waits}\n")
    program, more = ("tests.gate", "-q"), {"SHARDQ_GATE": "this run"}
    with run(tmp_path, "test_made_up.py", program=program, more=more) as process:
        eventually((tmp_path / "waits").exists, 300)
        os.killpg(process.pid, signal.SIGINT)
        told, _ = process.communicate(timeout=150)
    assert process.returncode not in (0, None), told
    assert recorded(tmp_path) == []


def test_ci_runs_it_twice_as_one_run_and_begins_by_naming_the_record(tmp_path: Path) -> None:
    made = tmp_path / "make"  # tells what make would do
    made.write_text(f'#!/bin/sh\necho "run $SHARDQ_GATE"; exec {shutil.which("make")} -n "$@"\n')
    made.chmod(0o755)
    environment = inherited() | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = subprocess.check_output([ROOT / ".ci" / "run"], cwd=ROOT, env=environment, text=True)
    assert len(set(re.findall(r"^run (.+)$", told, re.MULTILINE))) == 1
    commands = re.findall(r"SHARDQ_TESTS=(\S+) \S+ -m (\S+)", told)
    assert commands == [("test", "tests.gate"), ("test-all", "tests.gate")]
    programs = re.findall(r"bin/python -m (\S+)", told)
    assert programs[0] == "tests.flickers"
    assert programs.count("tests.flickers") == 1


@pytest.mark.parametrize("command", ["test", "test-all"])
def test_a_person_is_told_of_the_first_failure(command: str) -> None:
    told = subprocess.check_output(["make", "-n", command], cwd=ROOT, env=inherited(), text=True)
    assert re.findall(r"SHARDQ_TESTS=(\S+) \S+ -m (\S+)", told) == [(command, "pytest")]


def test_a_test_is_run_again_with_each_seed_until_it_fails() -> None:
    passes = {("a", 1), ("a", 2), ("b", 1), ("c", 2)}
    asked: list[tuple[str, int]] = []

    def rerun(test: str, seed: int) -> str:
        asked.append((test, seed))
        return "" if (test, seed) in passes else f"failed with {seed}"

    assert run_again("abc", (1, 2), rerun) == {"b": "failed with 2", "c": "failed with 1"}
    assert asked == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]


def test_few_are_run_again_when_many_fail(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def rerun(test: str, seed: int) -> str:
        asked.append(test)
        return "failed again" if test == "0" else ""

    outcomes = Outcomes(passed={"a", "b"}, failed={str(number): "" for number in range(1000)})
    assert settle(outcomes, "now", SEED, rerun) == 1
    assert asked == ["0", *(test for test in ("1", "2", "3", "4") for _ in range(2))]
    told = capsys.readouterr().out
    assert "4 tests flickered, and 2 may\n0 failed again\n995 more failed, and were not run again\n" in told
    assert told.endswith("\n\n2 passed, 1000 failed\n")


def test_nothing_is_said_of_a_run_in_which_no_test_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert settle(Outcomes(passed={"a"}), "now", SEED, lambda test, seed: "failed") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("flickered", "earlier", "recorded", "objected"),
    [
        ("", "", "", 0),
        ("ab", "", "c", 0),
        ("abc", "", "", 1),
        ("b", "a", "a", 0),
        ("bc", "a", "a", 1),
        ("a", "", "a", 1),
        ("a", "a", "a", 1),
        ("abc", "", "ab", 3),
        ("", "ab", "abc", 0),
    ],
)
def test_two_may_flicker_in_a_run_of_ci_and_each_once(
    flickered: str, earlier: str, recorded: str, objected: int
) -> None:
    assert len(objections(flickered, earlier, recorded)) == objected


def test_what_flickered_in_the_same_run_of_ci_counts_and_is_shown_again() -> None:
    one, two, three, old = (
        Flicker(test, SEED, "commit", ci_run, "failure")
        for test, ci_run in [("1", "now"), ("2", "now"), ("3", "now"), ("old", "before")]
    )
    assert judge([old], "before") == ([old], [])
    assert judge([one, two], "now") == ([one, two], [])
    assert judge([], "now") == ([one, two], [])
    flickers, why = judge([three], "now")
    assert flickers == [one, two, three]
    assert why == ["3 tests flickered, and 2 may"]


def test_a_flicker_that_cannot_be_recorded_fails_the_run_and_a_run_without_one_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "flickers"))
    flicker = Flicker("a", SEED, "commit", "now", "failure")
    flickers, [why] = judge([flicker], "now")
    assert flickers == [flicker]
    assert re.search(r"could flicker for ever: .*Not a directory.*; SHARDQ_FLICKERS names another folder", why)
    assert judge([], "now") == ([], [])


def test_what_takes_longer_than_all_reruns_may_is_ended_and_did_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_SECONDS", 0.0)
    assert "it was ended after 0 s" in gate.rerunning(inherited())("test_made_up.py::test_waits", SEED)

"""The record of tests that flickered: what is in it, and how a test leaves it."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest

from tests import flicker, flickers
from tests.flicker import Tally, clear, count
from tests.flickers import ENOUGH, FOLDER, Flicker, Record
from tests.house.made_up import run
from tests.outcomes import Outcomes
from tests.selection import unrepeated

SOME = Flicker("tests/test_a.py::test_b[c]", 7, "commit", "run", "first line\nE  lÄst\x1b\x00")
HOSTILE = ["../../x", "/etc/passwd", "a\0b", "a\nb", "é" * 1000, "[" * 100_000, "", ".", "a.json", "-rf", "\ud800"]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setenv(FOLDER, str(tmp_path / "flickers"))
    return Record()


def named(test: str) -> Flicker:
    return Flicker(test, 7, "commit", "run", "failure")


@pytest.mark.parametrize("test", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_that_is_no_file_name_makes_a_file_in_the_folder(record: Record, test: str) -> None:
    record.add(named(test))
    assert [path.parent for path in record.folder.parent.rglob("*") if path.is_file()] == [record.folder]
    assert record.flickers() == [named(test)]


def test_a_flicker_comes_out_as_it_went_in_and_its_first_failure_stays(record: Record) -> None:
    assert record.flickers() == []
    record.add(SOME)
    record.add(named(SOME.test))
    assert record.flickers() == [SOME]


def test_only_the_named_test_is_removed(record: Record) -> None:
    tests = ["a", "A", "a[b]", "a[c]", "a[b]::c"]
    for test in tests:
        record.add(named(test))
    record.remove("a[b]")
    record.remove("not there")
    assert sorted(each.test for each in record.flickers()) == sorted({*tests} - {"a[b]"})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"test": 1}'])
def test_a_file_that_tells_of_no_flicker_is_named(
    record: Record, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record.folder.mkdir()
    (record.folder / "x.json").write_text(text)
    with pytest.raises(OSError, match=r"x\.json tells of no flicker: delete it"):
        record.flickers()
    assert flickers.main() == 0
    assert "delete it" in capsys.readouterr().err


def test_what_is_recorded_is_named_with_the_command_that_clears_it(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flickers.main() == 0
    assert capsys.readouterr().out == ""
    record.add(SOME)
    assert flickers.main() == 0
    told = capsys.readouterr().out
    assert SOME.test in told
    assert str(record.path(SOME.test)) in told
    assert "make flicker N=200 PYTEST_ARGS=tests/test_a.py::test_b\n" in told


def test_without_a_home_the_folder_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert flickers.main() == 0
    assert "SHARDQ_FLICKERS names another place" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("test", "repeated"),
    [
        ("t.py::test", "t.py::test[@0]"),
        ("t.py::test[a]", "t.py::test[a-@12]"),
        ("t.py::test[@3]", "t.py::test[@3-@12]"),
        ("t.py::test[a@b]", "t.py::test[a@b-@1]"),
        ("t.py::test[a-@3]", "t.py::test[a-@3-@1]"),
    ],
)
def test_repetitions_are_of_one_test(test: str, repeated: str) -> None:
    assert unrepeated(repeated) == test
    found = defaultdict[str, Tally](Tally)
    count(found, Outcomes({repeated}), 1, is_busy=False, is_repeated=True)
    count(found, Outcomes({test}), 1, is_busy=True, is_repeated=False)
    count(found, Outcomes(failed={repeated: ""}), 1, is_busy=True, is_repeated=True)
    assert found == {test: Tally(quiet=1, busy=1, failures=1, seeds=[1])}


@pytest.mark.parametrize(
    ("quiet", "busy", "failures", "leaves"),
    [
        (100, 100, 0, True),
        (150, 100, 0, True),
        (100, 99, 0, False),
        (200, 0, 0, False),
        (0, 200, 0, False),
        (500, 500, 1, False),
    ],
)
def test_a_test_leaves_the_record_that_passed_200_times_half_of_them_on_a_busy_machine(
    record: Record, quiet: int, busy: int, failures: int, leaves: bool
) -> None:
    assert ENOUGH == 200
    for test in ("a", "a[b]", "b"):
        record.add(named(test))
    lines = clear({"a": Tally(quiet, busy, failures), "c": Tally(quiet, busy, failures)})
    assert [line.split(":")[0] for line in lines] == ["a"]
    assert {each.test for each in record.flickers()} == ({"a[b]", "b"} if leaves else {"a", "a[b]", "b"})


def test_no_test_leaves_the_record_after_a_run_that_broke(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broke(words: list[str], repeat: int, log: Path, found: dict[str, Tally], *, is_busy: bool) -> Outcomes:
        found["tests/a"] = Tally(quiet=repeat, busy=repeat)
        return Outcomes(broken=["it crashed"])

    monkeypatch.setattr(flicker, "run", broke)
    monkeypatch.setattr(sys, "argv", ["flicker", "200", "tests/a"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    record.add(named("tests/a"))
    assert flicker.main() == 1
    assert "it crashed" in capsys.readouterr().out
    assert record.flickers() == [named("tests/a")]


MADE_UP = """
import pytest

@pytest.mark.parametrize("case", ["@3"])
def test_passes(case):
    pass

def test_fails(request):
    assert "@7" not in request.node.name
"""


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(600)
def test_make_flicker_takes_out_what_passes(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_made_up.py").write_text(MADE_UP)
    record = Record(tmp_path / "flickers")
    kept = [
        "tests/test_made_up.py::test_fails",
        "tests/test_made_up.py::test_passes",
        "tests/test_other.py::test_passes",
    ]
    for test in ["tests/test_made_up.py::test_passes[@3]", *kept]:
        record.add(named(test))
    program, more = ("tests.flicker", "200"), {"TMPDIR": str(tmp_path)}
    with run(tmp_path, "tests/test_made_up.py", "-n", "0", program=program, more=more) as process:
        told, _ = process.communicate(timeout=500)
    assert process.returncode == 1, told
    assert sorted(each.test for each in record.flickers()) == kept
    assert "test_passes[@3]: taken out of the record" in told
    assert "400 runs of a test" in told

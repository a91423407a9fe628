"""Each seeded bug is found by the test that it names, and without the bug that test passes."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mutants.seeded import MUTANTS, Mutant
from tests.processes import RUN
from tests.selection import REPEAT

pytestmark = pytest.mark.runs_in("test-all")

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("shardq", "lua", "tests", "benchmarks", "docs")
FAILED = re.compile(r"^[1-9]\d* failed\b", re.MULTILINE)
WHERE = """
from pathlib import Path

import shardq
from shardq.protocol import scripts

def test_where():
    here = Path({here!r})
    assert Path(shardq.__file__).is_relative_to(here)
    assert Path(str(scripts.root())).is_relative_to(here)
"""

_times = itertools.count(1_000_000_000)


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code and its tests, for this process alone: bugs are seeded there."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run(copy: Path, *tests: str, within: float = 120) -> tuple[int, str]:
    """These tests in a pytest of their own, in the copy; its exit status, and what it told."""
    ours = (RUN, REPEAT, "SHARDQ_SEED", "SHARDQ_TESTS", "SHARDQ_PARTS")
    environment = {
        name: value for name, value in os.environ.items() if name not in ours and not name.startswith("PYTEST_")
    }
    environment |= {"SHARDQ_TEST_GRACE": "0.5", "PYTHONPATH": str(copy)}  # before what is installed
    words = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-o", "timeout=60", f"--basetemp={copy}.run"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        timeout=within,
    )
    return ended.returncode, ended.stdout


@contextmanager
def seeded(copy: Path, mutant: Mutant) -> Iterator[None]:
    """The copy with this bug in it."""
    path = copy / mutant.file
    right = path.read_text()
    try:
        _write(path, right.replace(mutant.right, mutant.wrong))
        yield
    finally:
        _write(path, right)


def _write(path: Path, text: str) -> None:
    """Give the file a time that it never had: by that Python tells whether compiled code is still the file's."""
    path.write_text(text)
    now = next(_times)
    os.utime(path, (now, now))


@pytest.mark.timeout(150)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_a_seeded_bug_is_found(mutant: Mutant, copy: Path) -> None:
    """A test that fails is meant, not one that cannot even be collected: pytest exits with 1 for that alone."""
    with seeded(copy, mutant):
        status, told = run(copy, mutant.killer)
    assert status == pytest.ExitCode.TESTS_FAILED, told
    assert FAILED.search(told), told


@pytest.mark.timeout(300)
def test_without_a_bug_the_same_tests_pass(copy: Path) -> None:
    status, told = run(copy, *dict.fromkeys(each.killer for each in MUTANTS), within=280)
    assert status == pytest.ExitCode.OK, told


def test_the_copy_is_what_is_tested(copy: Path) -> None:
    """shardq is installed from the checkout, which must not hide the copy."""
    file = copy / "tests" / "test_where.py"
    file.write_text(WHERE.format(here=str(copy)))
    status, told = run(copy, str(file))
    assert status == pytest.ExitCode.OK, told


@pytest.mark.runs_in("test", "test-all")
def test_each_bug_has_its_place_and_its_test() -> None:
    for each in MUTANTS:
        assert (ROOT / each.file).read_text().count(each.right) == 1, f"{each.file} changed: {each.bug}"
        path, _, function = each.killer.partition("[")[0].partition("::")
        assert function in _functions(ROOT / path), each.killer


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_promise_can_be_seen_to_break() -> None:
    assert len({each.bug for each in MUTANTS}) == len(MUTANTS) >= 40
    assert [each.promise for each in MUTANTS] == sorted(each.promise for each in MUTANTS)
    broken = Counter(each.promise for each in MUTANTS)
    assert [promise for promise in range(1, 13) if broken[promise] < 2] == []

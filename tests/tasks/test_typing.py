"""What type checkers infer of the job application in examples/, and of wrong uses of tasks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import NODE, PYRIGHT

ROOT = Path(__file__).resolve().parents[2]
APPLICATION = ROOT / "examples" / "10_tasks.py"
Told = tuple[dict[int, str], set[int]]
"""By line the types that were revealed, and the lines with errors."""


def by_mypy(path: Path) -> Told:
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", path],
        cwd=ROOT, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    shown: dict[int, str] = {}
    wrong = set()
    for line, kind, text in re.findall(r":(\d+): (error|note): (.*)", ended.stdout):
        if kind == "error":
            wrong.add(int(line))
        elif found := re.fullmatch(r'Revealed type is "(.*)"', text):
            shown[int(line)] = found[1].replace("builtins.", "")
    return shown, wrong


def by_pyright(path: Path) -> Told:
    (path.parent / "pyrightconfig.json").write_text(json.dumps({"pythonVersion": "3.11", "extraPaths": [str(ROOT)]}))
    ended = subprocess.run(
        ["node", NODE / "pyright" / "index.js", "--outputjson", "--pythonpath", sys.executable, path],
        cwd=path.parent, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    shown: dict[int, str] = {}
    wrong = set()
    for each in json.loads(ended.stdout)["generalDiagnostics"]:
        line = each["range"]["start"]["line"] + 1
        if each["severity"] == "error":
            wrong.add(line)
        elif found := re.search(r' is "([^"]*)"$', each["message"]):
            shown[line] = found[1]
    return shown, wrong


@pytest.fixture(params=[by_mypy, pytest.param(by_pyright, marks=PYRIGHT.needed)], ids=lambda each: each.__name__)
def told(request: pytest.FixtureRequest) -> Callable[[Path], Told]:
    found: Callable[[Path], Told] = request.param
    return found


def test_the_job_application_has_few_lines_and_no_error_of_types(told: Callable[[Path], Told], tmp_path: Path) -> None:
    """Typed arguments, retries with backoff, a result, two queues, a test: 46 lines without types before."""
    code, _, _ = APPLICATION.read_text().partition("\n# Output:")
    lines = [line for line in code.splitlines()[1:] if line.strip()]
    assert len(lines) <= 22
    (tmp_path / "app.py").write_text(code)
    assert told(tmp_path / "app.py") == ({}, set())


def test_arguments_and_results_have_types(told: Callable[[Path], Told], tmp_path: Path) -> None:
    text = (Path(__file__).parent / "wrong.txt").read_text()
    (tmp_path / "wrong.py").write_text(text)
    lines = list(enumerate(text.splitlines(), 1))
    types = {number: line.partition("# reveals: ")[2] for number, line in lines if "  # reveals: " in line}
    wrong = {number for number, line in lines if line.endswith("  # wrong")}
    assert (len(types), len(wrong)) == (7, 9)
    assert told(tmp_path / "wrong.py") == (types, wrong)


def test_the_test_of_the_application_passes(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, APPLICATION],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "1 passed" in ended.stdout, ended.stdout

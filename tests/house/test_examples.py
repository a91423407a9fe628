"""Every example that ends in an `# Output:` block prints exactly that. `...` stands for anything, on a line of its own
for any number of lines. SHARDQ_URL is a fresh server's.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardq.embedded import EmbeddedServer

pytestmark = pytest.mark.runs_in("test-all")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OUTPUT = re.compile(r"^# Output:\n((?:#.*\n?)+)\Z", re.MULTILINE)
SHORT = 70  # lines, the output not counted


def promised(text: str) -> list[str] | None:
    """The lines of the trailing `# Output:` block, None if there is none."""
    found = OUTPUT.search(text)
    return [line.removeprefix("#").removeprefix(" ") for line in found[1].splitlines()] if found else None


def pattern(lines: list[str]) -> re.Pattern[str]:
    """What the output has to match."""
    parts = [
        r"(?:.*\n)*" if line.strip() == "..." else ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
        for line in lines
    ]
    return re.compile("".join(parts))


CHECKED = [path for path in EXAMPLES if promised(path.read_text()) is not None]


def test_there_are_examples_and_some_show_their_output() -> None:
    assert CHECKED


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_an_example_prints_what_it_says(path: Path) -> None:
    with EmbeddedServer() as server:
        told = subprocess.run(
            [sys.executable, "-W", "error", str(path)],
            cwd=ROOT, env=os.environ | {"SHARDQ_URL": server.url, "NO_COLOR": "1"},
            capture_output=True, text=True, timeout=280,
        )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert pattern(promised(path.read_text()) or []).fullmatch(told.stdout), told.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_compiles_and_says_what_it_shows(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(), str(path)))


@pytest.mark.parametrize("name", ["api_server.py", "worker.py", "autoscaler.py"])
def test_the_three_programs_are_short(name: str) -> None:
    text = (ROOT / "examples" / name).read_text()
    assert len(OUTPUT.sub("", text).splitlines()) < SHORT


def test_the_comparison_can_fail() -> None:
    lines = promised("print(1)\n\n# Output:\n# took ... ms\n# ...\n#\n# done\n")
    assert lines == ["took ... ms", "...", "", "done"]
    assert pattern(lines).fullmatch("took 3 ms\na\nb\n\ndone\n")
    assert not pattern(lines).fullmatch("took 3 ms\na\nb\n\ndone\nmore\n")
    assert promised("# Output: none\nprint(1)\n") is None

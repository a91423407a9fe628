"""The repository holds what it should, and nothing about the place where it was written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = re.compile(
    r"pyproject\.toml|shardq|lua|tests|examples|Makefile|README\.md|LICENSE|CHANGELOG\.md|CONTRIBUTING\.md|docs"
    r"|benchmarks|\..*"
)
# Put together from pieces, so that this file does not name them itself.
PLACES = [
    re.compile(r"(?<![\w.~$)}>-])/" + r"(?:wo" + r"rk|ro" + r"ot)/[\w.]"),  # folders of one machine
    re.compile("pypi" + "-more|/opt/" + "(?:pypi|wheels)|--extra-" + "index-url|--find-" + "links"),  # its packages
]


def files() -> list[Path]:
    """What git tracks or would track; in an unpacked sdist, whatever is there."""
    told = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if told.returncode:
        return sorted(path for path in ROOT.glob("[!.]*/**/*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(ROOT / name for name in told.stdout.split("\0") if (ROOT / name).is_file())


def places(text: str) -> list[str]:
    """Every mention of one machine in *text*."""
    return [found.group() for place in PLACES for found in place.finditer(text)]


def test_the_top_level_holds_only_what_the_design_allows() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in files()}
    assert sorted(top for top in tops if not TOP.fullmatch(top)) == []


def test_no_file_names_the_workplace() -> None:
    named = {path.relative_to(ROOT).as_posix(): places(path.read_text(errors="replace")) for path in files()}
    assert {name: found for name, found in named.items() if found} == {}


@pytest.mark.parametrize(
    "text", ["cd /wo{}rk/main", "'/ro{}ot/.cache'", "--extra{}-index-url", "open('/opt/{}wheels/x')"]
)
def test_that_rule_can_fail(text: str) -> None:
    assert places(text.replace("{}", ""))


@pytest.mark.parametrize("text", ["a/work/b", "unix:///run/x", "the network/root cause", "path / root / x"])
def test_that_rule_spares_ordinary_words(text: str) -> None:
    assert places(text) == []

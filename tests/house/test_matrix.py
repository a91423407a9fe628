"""What is tried with other versions: each bound of a package, or it is said why not. The page has a row of each."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.house.matrix import (
    HEAD,
    LEFT_OUT,
    NOT_YET,
    PAGE,
    ROW,
    TESTS,
    WITH,
    WITHOUT_GATEWAY,
    cells,
    clean_commit,
    older,
    requirements,
    row,
    told,
    written,
)
from tests.house.wheel.archives import ROOT, Failed
from tests.outcomes import Outcomes


def names() -> list[str]:
    return [each.name for each in cells()]


def test_each_package_is_tried_or_it_is_said_why_not() -> None:
    tried = {*TESTS, *(each for group in WITH.values() for each in group if each != "grpcio-tools")}
    assert tried & LEFT_OUT.keys() == set()
    assert {each.name for each in requirements()} == tried | LEFT_OUT.keys()
    assert WITHOUT_GATEWAY.keys() <= {*names()}


def test_the_oldest_version_and_the_newest_of_each_major_one_but_the_last() -> None:
    assert [*older(Requirement("a[b]>=6.4,<9,!=8.0.0"))] == ["==6.4.*", "==7.*"]
    assert [*older(Requirement("a>=5.29.5,<8"))] == ["==5.29.5", "==6.*"]
    assert [*older(Requirement("a>=1.30,<2"))] == ["==1.30.*"]
    assert [*older(Requirement("a>=0.19,<1"))] == ["==0.19.*"]


def test_what_a_cell_runs_is_there() -> None:
    tests = {each for cell in cells() for each in cell.tests if not each.startswith("--")}
    assert tests
    assert {each for each in tests if not (ROOT / each).exists()} == set()


def test_the_page_has_a_row_for_each_cell() -> None:
    page = PAGE.read_text()
    assert written(page, {}) == page
    table = page.partition(HEAD)[2].partition("\n\n")[0] + "\n"
    assert [found[1] for found in ROW.finditer(table)] == names()


def test_a_run_changes_its_own_rows_and_no_others() -> None:
    first, second, *_ = names()
    old = row(first, "tests/unit", "abc, 2026-01-01", "7 passed")
    new = row(second, "tests/unit", "def, 2026-01-02", told(Outcomes({"a"}, {"b": "why"}, [])))
    page = written(f"# A\n\n{HEAD}{old}| gone | a | b | c |\n\nAnd more.\n", {second: new})
    assert page.startswith(f"# A\n\n{HEAD}{old}{new}")
    assert page.endswith("|\n\nAnd more.\n")
    assert "| 1 passed, **1 failed** |" in page
    assert "gone" not in page
    assert page.count(NOT_YET) == len(names()) - 2


def test_each_row_names_a_commit_that_anybody_can_get() -> None:
    assert "-dirty" not in PAGE.read_text()


def test_a_tree_with_changes_is_refused_but_for_the_page(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True
        ).stdout

    page, other = tmp_path / "page.md", tmp_path / "other.md"
    git("init", "-q")
    for each in (page, other):
        each.write_text("a")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    page.write_text("b")
    assert git("rev-parse", "HEAD").startswith(clean_commit(tmp_path, page))
    other.write_text("b")
    with pytest.raises(Failed, match=r"^make matrix: 1 files differ from the commit \(M other.md\): commit first$"):
        clean_commit(tmp_path, page)

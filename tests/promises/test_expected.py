"""The list of expected failures names tests that there are."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.promises.expected import EXPECTED, matches

FOLDER = Path(__file__).parent


def test_each_expected_failure_names_a_test() -> None:
    named = {tuple(pattern.partition("[")[0].split("::")) for pattern in EXPECTED}
    missing = [
        (file, test)
        for file, test in named
        if test not in {node.name for node in ast.parse((FOLDER / file).read_text()).body if hasattr(node, "name")}
    ]
    assert missing == []


def test_a_pattern_names_all_cases_of_a_test_or_some() -> None:
    assert matches("test_a.py::test_b[sync-1]", "test_a.py::test_b")
    assert matches("test_a.py::test_b[sync-1]", "test_a.py::test_b[*-1]")
    assert matches("test_a.py::test_b[sync-1-@3]", "test_a.py::test_b[*-1]")
    assert not matches("test_a.py::test_b[sync-11]", "test_a.py::test_b[*-1]")
    assert not matches("test_a.py::test_bc[sync-1]", "test_a.py::test_b")

"""The tables of docs/operations.md have what the code has: every error, setting, number and role, and no others."""

from __future__ import annotations

import re

import pytest

import shardq
from shardq import errors
from shardq.model import QueueConfig, QueueStats
from shardq.protocol.roles import ROLES
from tests.house.doc_blocks import ROOT
from tests.house.test_paths import section
from tests.surface import error_classes

PAGE = (ROOT / "docs/operations.md").read_text()
ERRORS = error_classes()


def first_column(text: str) -> list[str]:
    """The names in backticks in the first column of the tables of *text*."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("## What does an error mean?", {*ERRORS} - {"ShardqError"}),
        ("## Which settings do I choose?", {*QueueConfig.__struct_fields__}),
        ("## Which numbers do I watch?", {*QueueStats.__struct_fields__}),
    ],
    ids=["errors", "settings", "numbers"],
)
def test_a_table_has_each_name_once(heading: str, known: set[str]) -> None:
    assert sorted(first_column(section(PAGE, heading))) == sorted(known)


def test_the_table_of_roles_has_each_once() -> None:
    rows = re.findall(r"^\| (\w+) \|", section(PAGE, "## Which rights does each role need?"), re.MULTILINE)
    assert rows == ["role", *ROLES]


def test_each_error_is_a_name_of_the_package() -> None:
    assert ERRORS.keys() - {*shardq.__all__} == set()


def test_the_tree_of_errors_has_each_below_its_base() -> None:
    path: list[str] = []
    told = {}
    for indent, name in re.findall(r"^    ([│ ├└─]*)(\w+)", errors.__doc__ or "", re.MULTILINE):
        path[len(indent) // 4 :] = [name]
        told[name] = path[-2:-1]
    bases = {name: each.__bases__[0].__name__ for name, each in ERRORS.items()}
    assert told == {name: [base] if base in ERRORS else [] for name, base in bases.items()}


def test_the_defaults_in_the_table_are_those_of_the_code() -> None:
    table = section(PAGE, "## Which settings do I choose?")
    told = dict(re.findall(r'^\| `(\w+)` \| ([\d,]+|none|"\w+")(?= )', table, re.MULTILINE))
    config = QueueConfig()
    defaults = {name: getattr(config, name) for name in QueueConfig.__struct_fields__}
    assert told == {name: shown(value) for name, value in defaults.items()}


def shown(value: float | str | None) -> str:
    """As the table has it."""
    if value is None:
        return "none"
    return f'"{value}"' if isinstance(value, str) else f"{int(value):,}"


def test_those_rules_can_fail() -> None:
    assert first_column("| error | x |\n|---|---|\n| `A`, `B` | no `C` |\n| none | `D` |\n") == ["A", "B"]

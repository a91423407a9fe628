"""The tables of reference have what the code has: every error, setting, number and role, and no others."""

from __future__ import annotations

import re

import pytest

import shardq
from shardq import errors
from shardq.model import QueueConfig, QueueStats
from shardq.protocol.roles import ROLES
from tests.house import settings_page
from tests.house.doc_blocks import ROOT
from tests.house.test_paths import section
from tests.surface import error_classes

ERRORS = error_classes()


def first_column(text: str) -> list[str]:
    """The names in backticks in the first column of the tables of *text*."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def table(page: str, heading: str) -> str:
    """What stands on a page of docs/ under a heading."""
    return section((ROOT / "docs" / page).read_text(), heading)


@pytest.mark.parametrize(
    ("page", "heading", "known"),
    [
        ("errors.md", "## What does an error mean?", {*ERRORS} - {"ShardqError"}),
        ("settings.md", "## Which settings do I choose?", {*QueueConfig.__struct_fields__}),
        ("numbers.md", "## Which numbers do I watch?", {*QueueStats.__struct_fields__}),
    ],
    ids=["errors", "settings", "numbers"],
)
def test_a_table_has_each_name_once(page: str, heading: str, known: set[str]) -> None:
    assert sorted(first_column(table(page, heading))) == sorted(known)


def test_the_table_of_roles_has_each_once() -> None:
    rows = re.findall(r"^\| (\w+) \|", table("acls.md", "## Which rights does each role need?"), re.MULTILINE)
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


def test_the_table_of_settings_is_that_of_the_code() -> None:
    page = settings_page.PAGE.read_text()
    assert settings_page.written(page) == page, "run `make twins`"
    assert f"| {settings_page.UNSAID} |" not in page, "say how to choose it"


def test_a_setting_has_its_default_and_its_bounds() -> None:
    assert settings_page.default("visibility_timeout") == "30 s"
    assert settings_page.default("max_dead") == "100,000"
    assert settings_page.default("fair") == '"time"'
    assert settings_page.default("dead_ttl") == "none"
    assert settings_page.allowed("visibility_timeout") == "0.05 s to 604,800 s"
    assert settings_page.allowed("streams") == "1 to 4,096"
    assert settings_page.allowed("fair") == '`"time"` or `"messages"`'
    assert settings_page.allowed("legacy_stream") == "a name"


def test_what_is_new_or_wrong_in_the_table_of_settings_is_written() -> None:
    page = settings_page.PAGE.read_text()
    wrong = re.sub(r"^\| `streams` .*\n", "", page, flags=re.MULTILINE).replace("| 100,000 |", "| 7 |")
    wanted = re.sub(r"^(\| `streams` .* \|) .* \|$", r"\1 ? |", page, flags=re.MULTILINE)
    assert settings_page.written(wrong) == wanted


def test_those_rules_can_fail() -> None:
    assert first_column("| error | x |\n|---|---|\n| `A`, `B` | no `C` |\n| none | `D` |\n") == ["A", "B"]

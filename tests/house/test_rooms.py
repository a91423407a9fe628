"""Who knows the room of a line knows the folder of its test, as CONTRIBUTING.md says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.house.doc_blocks import ROOT
from tests.house.test_paths import section

TESTS = ROOT / "tests"
KINDS = ("unit", "conformance", "fault")
BESIDES = {
    "conformance/walk",  # everything at random
    "fault/server",  # what a server does by itself: its clock, its memory, restarts, failovers, rights
    *("unit/spark", "conformance/spark"),  # what of shardq.spark needs no Spark: tests/spark is left out without it
}
"""Folders of a kind that are no room."""

HEADING = "## Where is the test of a line?"
ROW = re.compile(r"^\| (`.+`) \| `(\w+)` \|$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")


def packages(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/__init__.py")}


VERBS = packages(ROOT / "shardq" / "ops")
BESIDE_THE_QUEUE = {name for name in packages(ROOT / "shardq") if any((TESTS / name).glob("test_*.py"))}
ROOMS = {"shardq", *VERBS, *packages(ROOT / "shardq") - BESIDE_THE_QUEUE - {"ops"}}


def folders() -> set[str]:
    """The folders that have tests of a kind, each as `unit/write`."""
    return {path.parent.relative_to(TESTS).as_posix() for kind in KINDS for path in (TESTS / kind).rglob("test_*.py")}


def strangers(folders: Iterable[str]) -> list[str]:
    """Those that are no room; a kind by itself is none."""
    return sorted(each for each in {*folders} - BESIDES if each.partition("/")[2] not in ROOMS)


def rooms_of_lua() -> list[tuple[str, str]]:
    """Each module with its room."""
    rows = ROW.findall(section((ROOT / "CONTRIBUTING.md").read_text(), HEADING))
    return [(module, room) for modules, room in rows for module in NAME.findall(modules)]


def test_each_test_of_a_kind_lies_in_a_room() -> None:
    assert strangers(folders()) == []


@pytest.mark.parametrize("folder", ["unit", "fault/walk", "unit/worker", "conformance/read/deeper", "unit/ops"])
def test_that_rule_can_fail(folder: str) -> None:
    assert strangers([folder])


def test_each_room_has_tests() -> None:
    rooms = {each.partition("/")[2] for each in folders()}
    assert ROOMS - rooms == set()


def test_each_verb_is_tried_on_servers() -> None:
    """What all verbs stand on shows there, too."""
    assert {name for name in VERBS if f"conformance/{name}" not in folders()} == {"sharing"}


def test_each_module_of_lua_has_one_room() -> None:
    order = (ROOT / "lua" / "order.txt").read_text().splitlines()
    assert sorted(module for module, _ in rooms_of_lua()) == sorted(line for line in order if line[:1] != "#")
    assert {room for _, room in rooms_of_lua()} <= {each.partition("/")[2] for each in folders()}

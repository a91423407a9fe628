"""Instructions are counted: more work is more of them, and the same work is as many, whatever else the machine does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks import __main__ as program
from benchmarks.modes.cycles import VERBS, WITH_ACK
from benchmarks.modes.mode import PLAIN, SUM
from benchmarks.report import Table
from benchmarks.settings import ROOT
from tests.parts import VALGRIND

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.timeout(600)]
TINY = ("instructions", "--batch", "10", "--link", "unix", "--only", "unique_key")
NOISE = 0.05
"""Of 100 messages: Lua collects its garbage now and then."""


@pytest.fixture(scope="module")
def tables() -> list[Table]:
    VALGRIND.need()
    return program.run([*TINY, "--base", str(ROOT)])


def test_each_verb_has_its_count_beside_plain_use_and_beside_another_commit(tables: list[Table]) -> None:
    single, batches = tables
    assert [table.name for table in tables] == ["instructions-1", "instructions-10"]
    for table in tables:
        assert [row[0] for row in table.rows] == ["unique_key"]
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert all(cell for row in table.rows for cell in row)
    assert of(single, "unique_key")[SUM] > 2 * of(batches, "unique_key")[SUM], "a call costs more than a message"


def test_a_feature_costs_more_than_plain_use(tables: list[Table]) -> None:
    for table in tables:
        assert of(table, "unique_key")[SUM] > 1.01 * of(table, PLAIN)[SUM]


def test_the_same_program_takes_as_many_instructions_each_time(tables: list[Table]) -> None:
    for table in tables:
        base, present = table.data
        for verb in (*VERBS, WITH_ACK):
            ratio = table.data[base][PLAIN][verb] / table.data[present][PLAIN][verb]
            assert ratio == pytest.approx(1, abs=NOISE), verb


def of(table: Table, mode: str) -> Mapping[str, float]:
    """By verb, what a mode costs this checkout."""
    found: Mapping[str, float] = table.data["present"][mode]
    return found


def test_without_valgrind_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install valgrind"):
        program.run([*TINY])

"""The matrix of modes runs, tiny, and each of its modes works. Nothing here looks at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks.modes.cost import Cost
from benchmarks.modes.cycles import VERBS, WITH_ACK
from benchmarks.modes.matrix import MEMORY, MODES
from benchmarks.modes.mode import COMMANDS, EACH, SUM
from benchmarks.modes.ratios import Ratios, said
from benchmarks.modes.tables import FAILED
from benchmarks.report import Table
from benchmarks.settings import ROOT

pytestmark = pytest.mark.runs_in("test-all")

TINY = ("modes", "--rounds", "1", "--messages", "40", "--batch", "10", "--link", "unix")


def whole(tables: list[Table]) -> None:
    """Each row has all its columns, and no mode has failed."""
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert [row[0] for row in table.rows if FAILED in row] == []


def test_each_mode_works_and_keeps_its_numbers(tmp_path: Path) -> None:
    tables = program.run([*TINY, "--json", str(tmp_path)])
    whole(tables)
    assert [table.name for table in tables] == ["modes-present-1", "modes-present-10", "modes-memory"]
    single, batches, memory = (json.loads((tmp_path / f"{table.name}.json").read_text())["data"] for table in tables)
    assert set(single) | set(batches) | set(memory) == set(MODES)
    assert set(memory) == {mode.name for mode in MEMORY}
    for mode, found in {**single, **batches}.items():
        cpu = found[mode]["cpu"]
        assert len(cpu) == 1
        assert set(cpu[0]) in ({*VERBS, SUM, WITH_ACK}, {*VERBS, SUM}, {"read"})
        assert all(us > 0 for us in cpu[0].values())


def test_this_checkout_and_an_earlier_one_take_turns() -> None:
    only = ("--only", "headers,one in flight,memory: delayed")
    tables = program.run([*TINY, "--base", str(ROOT), *only])
    whole(tables)
    rows = {row[0] for table in tables for row in table.rows}
    assert rows == {"headers", "empty read, one in flight", "scripts: headers", "memory: delayed"}
    kinds = [re.sub(r"-of-\w+", "-of-earlier", table.name) for table in tables]
    assert kinds == [
        "modes-present-1", "modes-present-of-earlier-1", "modes-present-10", "modes-present-of-earlier-10",
        "modes-memory",
    ]  # fmt: skip
    assert (
        len(tables[-1].rows[0]) == 1 + 2 + 2
    )  # the mode, what a message takes in both, the bound and whether it holds


def cost(write: float, read: float, ack: float, commands: float = 4) -> Cost:
    """One of a round."""
    spent = {"write": write, "read": read, "ack": ack}
    return Cost.of({verb: {"cpu": cpu, "scripts": cpu / 2, "xadd": commands} for verb, cpu in spent.items()})


def test_a_mode_is_judged_by_the_median_of_the_rounds() -> None:
    reference = [cost(1, 2, 1)] * 3
    ratios = Ratios.of([cost(2, 4, 1), cost(1, 2, 1), cost(2, 8, 1, commands=5)], reference)
    assert (ratios.middle("write"), ratios.middle("read"), ratios.middle("ack")) == (2, 2, 1)
    assert (ratios.cell(SUM), ratios.cell(WITH_ACK)) == ("1.75", "")
    assert ratios.spread() == "1.00 to 2.75"
    assert ratios.missed({SUM: 1.7, EACH: 2.5}) == [SUM]
    assert ratios.missed({SUM: 1.8, EACH: 1.9, "read": 2.0}) == ["write"]
    assert ratios.missed({COMMANDS: 1.01, WITH_ACK: 0.1}) == []
    assert said({SUM: 1.4, EACH: 2.5}) == "sum 1.4, each 2.5"

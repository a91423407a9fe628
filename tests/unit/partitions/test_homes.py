"""Homes: the same everywhere, even, and few keys move when the number of partitions changes."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardq.errors import ConfigError
from shardq.partitions.homes import home

ROOT = Path(__file__).parents[3]
GOLDEN: list[dict[str, Any]] = json.loads((ROOT / "tests/golden/homes.json").read_text())
KEYS = [f"tenant-{number}" for number in range(20_000)]


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda each: f"{each['key'][:16]}-{each['written']}")
def test_golden_vectors(vector: dict[str, Any]) -> None:
    assert home(bytes.fromhex(vector["key"]), vector["written"]) == vector["home"]


def test_the_vectors_are_those_of_a_second_implementation() -> None:
    assert runpy.run_path(str(ROOT / "tests/golden/make_homes.py"))["vectors"]() == GOLDEN


def test_text_counts_as_its_bytes() -> None:
    assert [home("Zürich", n) for n in range(1, 20)] == [home("Zürich".encode(), n) for n in range(1, 20)]


@pytest.mark.parametrize("written", [2, 3, 8])
def test_each_partition_has_its_part(written: int) -> None:
    """Within five standard deviations of a fair die."""
    counts = Counter(home(key, written) for key in KEYS)
    fair = len(KEYS) / written
    assert set(counts) == set(range(written))
    assert all(abs(count - fair) < 5 * fair**0.5 for count in counts.values())


@pytest.mark.parametrize("written", [1, 2, 3, 8])
def test_one_partition_more_takes_its_part_and_no_key_moves_between_the_others(written: int) -> None:
    moved = [key for key in KEYS if home(key, written) != home(key, written + 1)]
    assert {home(key, written + 1) for key in moved} == {written}
    fair = len(KEYS) / (written + 1)
    assert abs(len(moved) - fair) < 5 * fair**0.5


@pytest.mark.parametrize("wrong", ["", b"", "x" * 1025, 7, "\ud800"])
def test_what_is_no_shard_key_has_no_home(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="shard key"):
        home(wrong, 3)

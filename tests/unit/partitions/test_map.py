"""The map of a queue: as text and back, and what is none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.errors import ConfigError
from shardq.model.partitions import MAX_PARTITIONS
from shardq.partitions.map import PartitionMap

salts = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=4)


@st.composite
def maps(draw: Any) -> PartitionMap:
    found = tuple(draw(st.lists(salts, max_size=MAX_PARTITIONS - 1)))
    others = draw(st.dictionaries(st.integers(1, MAX_PARTITIONS), st.integers(1, 10**15)))
    towards = draw(st.none() | st.tuples(st.integers(1, MAX_PARTITIONS), st.integers(1, 10**15)))
    return PartitionMap(draw(st.integers(1, 1 + len(found))), found, tuple(others.items()), towards)


@given(maps())
def test_a_map_is_what_its_text_says(found: PartitionMap) -> None:
    assert PartitionMap.parse(found.text) == found
    assert len({found.name_of("jobs", number) for number in range(found.read)}) == found.read


def test_the_texts_stay_as_they_are() -> None:
    """Clients of other versions read them."""
    assert PartitionMap.parse("3:4,a:2@1795897620221") == PartitionMap(3, ("4", "a"), ((2, 1795897620221),))
    assert PartitionMap.parse("3:4,a:2@5:8@6").others == ((2, 5), (8, 6))
    assert PartitionMap.parse("3:4,a:2@5:to8@6") == PartitionMap(3, ("4", "a"), ((2, 5),), (8, 6))
    assert PartitionMap.parse("1:4") == PartitionMap(1, ("4",))
    assert PartitionMap.parse("") == PartitionMap.parse("1:") == PartitionMap()
    assert PartitionMap().text == ""
    assert PartitionMap(3, ("4", "a")).text == "3:4,a"


def test_a_former_map_may_have_had_more() -> None:
    assert PartitionMap.parse("1::8@5").others == ((8, 5),)


def test_what_is_over_is_forgotten_when_another_number_is_remembered() -> None:
    found = PartitionMap(3, ("4", "a"), ((2, 50), (8, 99)))
    assert found.remembering(6, 120, 50).others == ((6, 120), (8, 99))
    assert found.remembering(8, 120, 49).others == ((2, 50), (8, 120))


@given(maps())
def test_redis_keeps_each_map(found: PartitionMap) -> None:
    """The text that the Lua code takes for one (`KIND`)."""
    assert re.fullmatch(r"\d+:[0-9A-Za-z,:@]*", found.text or "1:")
    assert len(found.text) <= 2048


@pytest.mark.parametrize(
    "text",
    ["3", "3:4", "0:", ":4", "2:A", "2:abcde", "2:4,", "2:4:3", "2:4:3@", "99:4", "2:4 ", "2:4\n", "x", "1::65@5"],
)
def test_what_is_no_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="map"):
        PartitionMap.parse(text)


def test_there_is_no_partition_behind_the_last() -> None:
    with pytest.raises(IndexError):
        PartitionMap(1, ("4",)).name_of("jobs", 2)

"""Placing: partitions lie on different masters while there are some, and those that are there stay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shardq.partitions.map import PartitionMap
from shardq.partitions.placing import HashSlots, placed

THIRDS = HashSlots([(10923, 16383, "c"), (0, 5460, "a"), (5461, 10922, "b")])
NAMES = [f"queue-{number}" for number in range(50)]


def loads(queue: str, salts: tuple[str, ...], slots: HashSlots) -> Counter[Any]:
    """How many partitions each master has."""
    found = PartitionMap(1, salts)
    return Counter(slots.master_of(found.name_of(queue, number)) for number in range(found.read))


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 6, 8, 64])
@pytest.mark.parametrize("queue", NAMES[:5])
def test_partitions_are_spread_over_the_masters(queue: str, wanted: int) -> None:
    found = loads(queue, placed(queue, wanted, THIRDS), THIRDS)
    assert found.total() == wanted
    assert max(found.values()) - min(found[name] for name in "abc") <= 1


def test_a_master_with_few_slots_has_its_share_too() -> None:
    uneven = HashSlots([(0, 16300, "a"), (16301, 16383, "b")])
    assert all(loads(name, placed(name, 2, uneven), uneven) == {"a": 1, "b": 1} for name in NAMES)


def test_what_is_there_stays_and_the_rest_fills_up() -> None:
    there = PartitionMap(1, placed("jobs", 2, HashSlots([])))
    salts = placed("jobs", 6, THIRDS, there)
    assert salts[:1] == there.salts
    assert set(loads("jobs", salts, THIRDS).values()) == {2}
    assert placed("jobs", 2, THIRDS, PartitionMap(1, salts)) == salts


def test_without_a_cluster_all_lie_on_one_server() -> None:
    assert placed("jobs", 4, HashSlots([])) == ("0", "0", "0")


def test_slots_that_nobody_serves_are_nobodys() -> None:
    part = HashSlots([(0, 5460, "a")])
    assert {part.master_of(name) for name in NAMES} == {"a", None}
    assert all(loads(name, placed(name, 3, part)[0:], part)["a"] >= 2 for name in NAMES)


@pytest.mark.parametrize("tell", [[b"127.0.0.1", 7000, b"id-a", []], [b"id-a", 7000, b"id-a"]])
def test_what_a_server_tells_of_its_slots_is_read(tell: list[Any]) -> None:
    slots = HashSlots.of_reply([[0, 8191, tell, [b"replica", 7001, b"id-r"]], [8192, 16383, [b"h", 7002]]])
    assert slots.masters == ["h:7002", "id-a"]
    assert loads("jobs", placed("jobs", 2, slots), slots) == {"id-a": 1, "h:7002": 1}

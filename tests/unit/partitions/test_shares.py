"""The parts of what a queue is given as a whole: together they are the whole, and what everybody reads is that."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.errors import ConfigError
from shardq.model import QueueConfig
from shardq.model.partitions import MAX_PARTITIONS, Partitions
from shardq.model.shares import SHARED_SETTINGS, check_shares, shared, whole_of
from shardq.partitions.map import PartitionMap
from tests.unit.model.test_model import again

counts = st.integers(1, MAX_PARTITIONS)
bounds = st.integers(0, 2**40)


def map_of(count: int) -> PartitionMap:
    """A map of so many partitions."""
    return PartitionMap(count, tuple(map(str, range(count - 1))))


def parts_of(config: QueueConfig, count: int) -> list[QueueConfig]:
    """The settings of each partition as the engine reads them."""
    return [shared(config, number, count) for number in range(count)]


@given(st.fixed_dictionaries({name: st.just(0) | bounds for name in ("max_len", "total_in_flight")}), counts)
def test_the_parts_of_a_bound_are_the_bound(given: dict[str, Any], count: int) -> None:
    config = QueueConfig(**given)
    for name in {*SHARED_SETTINGS} - {"total_rate", "total_burst"}:
        found = [getattr(each, name) for each in parts_of(config, count)]
        assert sum(found) == getattr(config, name)
        assert max(found) - min(found) <= 1


@given(st.integers(1, 10**9).map(lambda n: n / 1000), st.integers(0, 1_000_000), counts)
def test_the_parts_of_a_rate_deliver_no_more_than_the_rate(rate: float, burst: int, count: int) -> None:
    """Neither in a second nor at once: where no burst is given, it is what is delivered in a second, rounded up."""
    config = QueueConfig(total_rate=rate, total_burst=burst)
    try:
        check_shares(config, count)
    except ConfigError:
        assert (burst or ceil(rate)) < count or rate < count / 1000
        return
    parts = parts_of(config, count)
    assert sum(each.total_rate for each in parts) == pytest.approx(rate, abs=1e-6)
    assert sum(each.total_burst for each in parts) == (burst or ceil(rate))
    assert min(each.total_burst for each in parts) >= 1


@pytest.mark.parametrize("name", [*SHARED_SETTINGS])
def test_a_bound_without_a_part_for_each_is_refused(name: str) -> None:
    given: dict[str, Any] = {"total_rate": 5.0} if name == "total_burst" else {}
    with pytest.raises(ConfigError, match=rf"{name} is not for.* their number, 3: .*{name}=3 or more"):
        check_shares(QueueConfig(**{**given, name: 0.002 if name == "total_rate" else 2}), 3)
    check_shares(QueueConfig(**{**given, name: 3}), 3)


def test_a_rate_whose_burst_is_too_little_is_refused_too() -> None:
    with pytest.raises(ConfigError, match=r"total_burst .* 3 \(total_rate makes it 2\): .*total_burst=3 or more"):
        check_shares(QueueConfig(total_rate=1.5), 3)
    check_shares(QueueConfig(total_rate=1.5, total_burst=3), 3)


def test_no_limit_is_none_in_each_partition_and_nothing_else_is_shared_out() -> None:
    config = QueueConfig(max_in_flight=7, rate=3.0)
    for part in parts_of(config, 5):
        assert (part.max_len, part.total_in_flight, part.total_rate, part.total_burst, part.journal) == (0,) * 5
        assert (part.max_in_flight, part.rate) == (7, 3.0)


def test_a_legacy_stream_is_the_heads_alone() -> None:
    found = parts_of(QueueConfig(legacy_stream="old", legacy_group="workers"), 3)
    assert [each.legacy_stream for each in found] == ["old", None, None]
    assert [each.legacy_group for each in found] == ["workers", None, None]


@given(st.builds(QueueConfig, max_len=bounds, total_rate=st.integers(1000, 10**9).map(lambda n: n / 1000)), counts)
def test_the_head_has_its_part_and_says_what_the_whole_has(config: QueueConfig, count: int) -> None:
    found = map_of(count)
    whole = QueueConfig(
        max_len=config.max_len,
        total_rate=config.total_rate,
        partitions=Partitions.parse(found.text) if count > 1 else 1,
    )
    flat = whole.settings()
    stored = dict(zip(flat[::2], flat[1::2], strict=True))
    assert stored["max_len"] == shared(whole, 0, count).max_len
    assert again(whole) == whole
    assert ("whole" in stored) == (count > 1)


@pytest.mark.parametrize("text", ["max_len", "max_len 1 max_dead", "streams 7", "max_len  1"])
def test_what_nobody_wrote_of_the_whole_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the fields of a queue"):
        QueueConfig.from_settings({"whole": text}, 1)
    with pytest.raises(ValueError, match=r".*"):
        whole_of(text)

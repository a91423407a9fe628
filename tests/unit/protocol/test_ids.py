"""Ids of messages that say which partition has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardq.errors import ConfigError
from shardq.model.partitions import MAX_PARTITIONS
from shardq.model.written import Existing, Written
from shardq.protocol.bodies import message_id
from shardq.protocol.ids import split, with_partition


@given(
    st.integers(0, MAX_PARTITIONS - 1),
    st.sampled_from(["0", "17", "d", "o", "l"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
)
def test_what_is_added_comes_off_again_whatever_the_shard_key(number: int, origin: str, shard_key: str) -> None:
    inner = message_id("1795897620221-7", origin, shard_key)
    assert split(with_partition(inner, number)) == (inner, number)
    assert (with_partition(inner, number) == inner) == (number == 0)


def test_an_id_stays_what_its_write_was() -> None:
    assert type(with_partition(Written("1-1-0"), 2)) is Written
    existing = with_partition(Existing("1-1-0"), 2)
    assert (existing, existing.is_new) == ("1-1-0@2", False)


@pytest.mark.parametrize(
    "wrong", ["1-1-0@", "1-1-0@0", "1-1-0@02", "1-1-0@64", "1-1-0@x", "1-1-0@-1", "1-1-0@²", "1-1-0@99999999", "@1"]
)
def test_a_partition_that_cannot_be_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="names no partition"):
        split(wrong)

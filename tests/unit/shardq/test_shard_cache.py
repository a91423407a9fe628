"""The cache of shards: it answers what dealing answers, in a bounded space, also if keys in turn are more than that."""

from __future__ import annotations

import sys
from random import Random
from threading import Barrier, Thread

import pytest

from shardq import sharding
from shardq.shard_cache import MAX_SHARD_STREAMS, MAX_SLOTS, MIN_SLOTS, ShardCache
from shardq.sharding import shard

SLOT = 24  # bytes


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> ShardCache:
    """An empty one, in the place of the process's."""
    fresh = ShardCache()
    monkeypatch.setattr(sharding, "_dealt", fresh)
    return fresh


@pytest.fixture
def deals(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys that were dealt a shard and not found in the cache."""
    dealt, deal = [], sharding._deal

    def noted(key: bytes, streams: int, width: int) -> tuple[int, ...]:
        dealt.append(key)
        return deal(key, streams, width)

    monkeypatch.setattr(sharding, "_deal", noted)
    return dealt


@pytest.mark.usefixtures("cache")
def test_what_was_dealt_is_the_same_when_it_comes_from_the_cache(deals: list[bytes]) -> None:
    """Of keys in several queues, of other numbers of streams and widths, each has its own shard the second time too."""
    asked = [(f"tenant-{at % 300}", (7, 64, 4096)[at % 3], 1 + at % MAX_SHARD_STREAMS) for at in range(5000)]
    first = [shard(*each) for each in asked]
    fresh = [sharding._deal(key.encode(), streams, min(streams, width)) for key, streams, width in asked]
    deals.clear()
    again = [shard(*each) for each in asked]

    assert first == fresh == again
    assert len(deals) < len(asked) / 3


@pytest.mark.usefixtures("cache")
def test_keys_in_turn_are_found_also_when_they_are_more_than_there_is_room_for(
    deals: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that drops the oldest would find none of them."""
    monkeypatch.setattr("shardq.shard_cache.MAX_SLOTS", 4 * MIN_SLOTS)
    keys = [f"tenant-{at}" for at in range(5 * MIN_SLOTS)]
    for _ in range(3):
        deals.clear()
        for key in keys:
            shard(key, 64, 4)

    assert 0 < len(deals) < len(keys) * 0.8


def test_it_begins_small_and_has_a_bound(cache: ShardCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with few shard keys pays 24 kB, and one with any number of them no more than the bound."""
    monkeypatch.setattr("shardq.shard_cache.MAX_SLOTS", 16 * MIN_SLOTS)
    sizes = [len(cache._slots)]
    for at in range(64 * MIN_SLOTS):
        shard(f"tenant-{at}", 64, 4)
        if len(cache._slots) != sizes[-1]:
            sizes.append(len(cache._slots))

    assert sizes == [SLOT * MIN_SLOTS << doubled for doubled in range(5)]
    assert MAX_SLOTS * SLOT == 786_432


@pytest.mark.usefixtures("cache")
def test_wide_shards_are_dealt_each_time(deals: list[bytes]) -> None:
    """A slot has room for eight streams."""
    assert [
        len(shard("wide", 64, width))
        for width in (MAX_SHARD_STREAMS, MAX_SHARD_STREAMS, MAX_SHARD_STREAMS + 1, MAX_SHARD_STREAMS + 1)
    ] == [8, 8, 9, 9]
    assert len(deals) == 3


@pytest.mark.usefixtures("cache")
def test_text_is_found_as_its_bytes(deals: list[bytes]) -> None:
    """Both are one key."""
    assert shard("mix", 64, 4) == shard(b"mix", 64, 4)
    assert deals == [b"mix"]


@pytest.mark.usefixtures("cache")
def test_a_key_whose_hash_is_zero_gets_no_empty_slot_as_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty slot has zeros, also where its mark would be."""
    monkeypatch.setattr(sharding, "hash", lambda _: 0, raising=False)

    assert shard("tenant-42", 16, 2) == (12, 15)


@pytest.mark.usefixtures("cache")
def test_threads_that_ask_while_it_grows_get_right_shards() -> None:
    """Slots are read and written in one step each, and the cache is replaced by a larger one as a whole."""
    rng, before = Random(5), sys.getswitchinterval()
    keys = [f"tenant-{at}" for at in range(6000)]
    right = {key: sharding._deal(key.encode(), 64, 4) for key in keys}
    start = Barrier(4)
    wrong: list[str] = []

    def ask(order: list[str]) -> None:
        start.wait()
        wrong.extend(key for key in order if shard(key, 64, 4) != right[key])

    threads = [Thread(target=ask, args=(rng.sample(keys, len(keys)) * 3,)) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)

    assert not wrong

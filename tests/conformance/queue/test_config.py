"""Settings belong to the queue: stored when it is created, changed by configure, the same for every client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from shardq import ConfigError, Queue, QueueFull, QueueMissing
from shardq.model import QueueConfig
from tests.conformance.conftest import OpenQueue
from tests.conformance.world import World
from tests.surface import differences
from tests.unit.model.test_model import OTHER
from tests.waiting import eventually

LEGACY = ["legacy_stream", "legacy_group"]
"""They go together."""


def lifetimes(world: World) -> dict[str, int]:
    """What is left of the life of each of the queue's keys in ms; -1 for ever."""
    return {key: int(world.raw.pttl(key)) for key in world.stored() if "{" in key}  # but the list of queues


def test_the_settings_of_the_first_client_are_the_queues(
    open_queue: OpenQueue, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    open_queue(streams=6, max_len=100).write(1, shard_key="t")
    with caplog.at_level(logging.WARNING, logger="shardq"):
        other = open_queue(by=world.client(), streams=8, max_len=200, max_dead=7)
        other.write(1, shard_key="t")
    assert (other.state.config.max_len, other.state.config.max_dead, other.stats().wanted) == (100, 100_000, 6)
    said = " ".join(record.getMessage() for record in caplog.records)
    for words in ("streams=6, not the 8", "max_len=100, not the 200", "max_dead=100000, not the 7"):
        assert words in said
    assert ("resize()" in said, "configure()" in said) == (True, True)


def test_a_client_that_asks_for_nothing_is_not_warned(
    open_queue: OpenQueue, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    open_queue(streams=6, max_len=100).write(1, shard_key="t")
    with caplog.at_level(logging.WARNING, logger="shardq"):
        other = open_queue(by=world.client())
        assert other.read().payload == 1
        assert open_queue(by=world.client(), max_len=100).len() == 1
    assert [record.getMessage() for record in caplog.records if "requested here" in record.getMessage()] == []


@pytest.mark.everywhere
def test_configuring_changes_the_queue_for_every_client(open_queue: OpenQueue, world: World) -> None:
    queue, other = open_queue(streams=4), open_queue(by=world.client())
    queue.write(1, shard_key="t")
    other.write(2, shard_key="t")
    config = queue.configure(max_len=2, visibility_timeout=7.5)
    assert config == QueueConfig(streams=4, max_len=2, visibility_timeout=7.5)
    with pytest.raises(QueueFull):
        other.write(3, shard_key="t")
    assert other.read().remaining < 7.5
    assert other.settings() == config


@pytest.mark.once
def test_each_setting_is_changed_by_itself_and_told_to_other_clients(open_queue: OpenQueue, world: World) -> None:
    queue, expected = open_queue(streams=8), dict[str, Any](streams=8)
    queue.declare()
    assert differences(OTHER, QueueConfig.__struct_fields__) == []
    for names in [[name] for name in OTHER if name not in ("streams", "partitions", *LEGACY)] + [LEGACY]:
        change = {name: OTHER[name] for name in names}
        expected |= change
        assert queue.configure(**change) == QueueConfig(**expected)
    assert open_queue(by=world.client()).settings() == QueueConfig(**OTHER | {"partitions": 1})
    queue.write("read", shard_key="t")
    assert queue.read().payload == "read"


def test_configuring_one_setting_keeps_what_another_client_configured(open_queue: OpenQueue, world: World) -> None:
    queue, other = open_queue(streams=4), open_queue(by=world.client())
    queue.write(1, shard_key="t")
    assert other.len() == other.stats().backlog == 1
    queue.configure(max_len=50)
    config = other.configure(max_dead=60)
    assert (config.max_len, config.max_dead) == (50, 60)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_len": -1},
        {"ttl": 0.5},
        {"streams": 8},
        {"max_deliveries": 1},
        {"max_len": 5, "colour": "red"},
        {"ttl": "x"},
    ],
    ids=str,
)
def test_a_bad_change_is_refused_whole(queue: Queue, settings: dict[str, Any]) -> None:
    queue.write(1, shard_key="t")
    with pytest.raises(ConfigError):
        queue.configure(**settings)
    assert queue.settings() == QueueConfig(streams=4, streams_per_shard=4)


def test_what_does_not_exist_cannot_be_configured(queue: Queue, world: World) -> None:
    with pytest.raises(ConfigError, match="there is no queue"):
        queue.configure(max_len=5)
    assert world.stored() == set()


def test_a_backlog_does_not_expire_by_default(queue: Queue, world: World) -> None:
    queue.write(1, shard_key="t")
    queue.write(1, shard_key="t", delay=5)
    queue.read()
    assert set(lifetimes(world).values()) == {-1}


@pytest.mark.everywhere
def test_a_ttl_is_on_all_keys_together(open_queue: OpenQueue, world: World) -> None:
    """Defect 7: an expiry per stream, moved only by writes to that stream, deleted the backlog of the others."""
    queue = open_queue(streams=4, ttl=100)
    queue.write(1, shard_key="t")
    left = lifetimes(world)
    assert len(left) == len(queue.state.keys.fixed) + 4
    assert 0 < min(left.values()) <= max(left.values()) <= 100_000
    assert max(left.values()) - min(left.values()) < 2_000


@pytest.mark.parametrize("verb", ["write", "write_many", "read"])
def test_a_ttl_is_moved_by_writes_and_reads(open_queue: OpenQueue, world: World, verb: str) -> None:
    open_queue(streams=4, ttl=100).write(1, shard_key="t")
    for key in world.stored():
        world.raw.pexpire(key, 40_000)  # a minute went by
    queue = open_queue(by=world.client())
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: queue.write(2, shard_key="t"),
        "write_many": lambda: queue.write_many([(2, "t")]),
        "read": queue.read,
    }
    calls[verb]()
    assert min(lifetimes(world).values()) > 60_000


def test_a_ttl_can_be_set_changed_and_removed_later(queue: Queue, world: World) -> None:
    queue.write(1, shard_key="t")
    queue.configure(ttl=500)
    assert all(400_000 < left <= 500_000 for left in lifetimes(world).values())
    queue.configure(ttl=50)
    assert max(lifetimes(world).values()) <= 50_000
    queue.resize(8)
    assert all(0 < left <= 50_000 for left in lifetimes(world).values())
    assert queue.configure(ttl=None).ttl is None
    assert set(lifetimes(world).values()) == {-1}


def test_a_ttl_below_a_second_is_refused(open_queue: OpenQueue, world: World) -> None:
    """Defect 8: it became 0, and EXPIRE 0 deleted the stream at once."""
    for ttl in (0, 0.5, 0.999, -1):
        with pytest.raises(ConfigError, match="ttl"):
            open_queue(streams=4, ttl=ttl)
    queue = open_queue(streams=4, ttl=1)
    queue.write("kept", shard_key="t")
    assert queue.read().payload == "kept"


@pytest.mark.runs_in("test-all")
@pytest.mark.once
@pytest.mark.usefixtures("real")
def test_an_idle_queue_with_a_ttl_goes_whole_and_comes_back_new(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, ttl=1)
    queue.write("old", shard_key="t")
    held = queue.read()
    eventually(lambda: not lifetimes(world), every=0.05, what="all keys expired")
    assert (queue.len(), queue.stats().backlog) == (0, 0)
    with pytest.raises(ConfigError):
        queue.resize(8)
    message_id = queue.write("new", shard_key="t")
    assert held.message_id != message_id
    assert queue.read().message_id == message_id
    assert len(lifetimes(world)) == len(queue.state.keys.fixed) + 4


def test_configuring_nothing_only_looks_the_settings_up(open_queue: OpenQueue, world: World) -> None:
    queue = open_queue(streams=4, max_len=7)
    with pytest.raises(QueueMissing):
        queue.settings()
    queue.read_many(1)
    epoch = world.raw.hget(queue.state.keys.meta, "epoch")
    assert queue.settings().max_len == 7
    assert world.raw.hget(queue.state.keys.meta, "epoch") == epoch

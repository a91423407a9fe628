"""A read of many gets what may be delivered, up to what it asks for."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

from shardq import Client, Delivery, Limits, Queue
from tests.promises.conftest import OpenQueue, lone
from tests.servers import Server
from tests.waiting import eventually

SOON = 15.0
"""Seconds within which a reader that was woken has its message, also on a machine that stood still for two."""


def taken_back(queue: Queue, how: str, count: int = 10) -> None:
    """So many messages that lay in streams wait for a limit now, as a read has noticed."""
    queue.write_many([(number, "t") for number in range(count)])
    if how == "a pause":
        queue.pause("t")
    elif how == "a rate":
        queue.set_limits({"t": Limits(rate=0.001, burst=1)})
        queue.read().ack()
    else:
        queue.set_limits({"t": Limits(max_in_flight=1)})
        queue.read()
    assert queue.read_many(100) == []


def let_go(queue: Queue, how: str) -> None:
    """They may be delivered again."""
    if how == "a pause":
        queue.resume("t")
    else:
        queue.set_limits({"t": Limits()})


@pytest.mark.parametrize("how", ["a pause", "a rate", "a cap"])
@pytest.mark.parametrize("batch", [1, 2, 5, 100])
@pytest.mark.parametrize("window", [1, 50])
def test_a_read_finds_what_a_limit_had_taken_back(open_queue: OpenQueue, how: str, batch: int, window: int) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=window)
    taken_back(queue, how)
    left = 10 if how == "a pause" else 9
    let_go(queue, how)
    while left:
        found = queue.read_many(batch)
        assert len(found) == min(batch, left)
        left -= len(found)


@pytest.mark.parametrize("how", ["a pause", "a rate"])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("window", [1, 50])
@pytest.mark.runs_in("test-all")
def test_a_blocked_reader_of_many_gets_at_once_what_a_limit_had_taken_back(
    open_queue: OpenQueue, patient: Client, server: Server, how: str, batch: int, window: int
) -> None:
    """It does not look again by itself, so it must be woken, and must find what it was woken for."""
    queue = open_queue(by=patient, streams=4, streams_per_shard=2, window=window)
    taken_back(queue, how)
    found: list[Delivery] = []
    reader = threading.Thread(target=lambda: found.extend(queue.read_many(batch, block=2 * SOON)))
    reader.start()
    eventually(lambda: b"cmd=xreadgroup" in server.run("CLIENT", "LIST"), what="a blocked read")
    let_go(queue, how)
    started = time.monotonic()
    try:
        eventually(lambda: found, SOON, what="a delivery")
    finally:
        reader.join()
    assert time.monotonic() - started < SOON


def test_the_read_of_one_reader_leaves_the_wake_up_of_another(open_queue: OpenQueue) -> None:
    """Messages that came back, some for each of two readers: the second finds its own, too."""
    queue = open_queue(streams=4, streams_per_shard=2, window=50)
    taken_back(queue, "a pause")
    let_go(queue, "a pause")
    assert [len(queue.read_many(5, block=0.1)), len(queue.read_many(5, block=0.1))] == [5, 5]
    assert queue.read_many(5) == []


# --- beside quiet tenants


@pytest.mark.parametrize("quiet", [0, 1, 5])
@pytest.mark.parametrize("shape", [(64, 4), (16, 2)])
def test_a_batch_of_100_is_whole_beside_quiet_messages_between_reads(
    open_queue: OpenQueue, quiet: int, shape: tuple[int, int]
) -> None:
    """20 floods have enough for each of them; who writes and who reads are different clients' business."""
    streams, per_shard = shape
    queue = open_queue(streams=streams, streams_per_shard=per_shard, window=1)
    queue.write_many([(number, f"flood-{tenant}") for tenant in range(20) for number in range(60)])
    sizes = []
    for turn in range(10):
        for number in range(quiet):
            queue.write("quiet", shard_key=f"quiet-{turn}-{number}")
        found = queue.read_many(100)
        assert queue.ack_many(found) == []
        sizes.append(len(found))
    assert sizes == [100] * 10


def test_a_batch_takes_all_there_is_if_that_is_less(open_queue: OpenQueue, rng: random.Random, seed: int) -> None:
    """Whatever is there, of however many tenants."""
    queue = open_queue(streams=16, streams_per_shard=2, window=1)
    for _ in range(20):
        tenants = Counter({f"t{number}": rng.randint(1, 12) for number in range(rng.randint(1, 12))})
        queue.write_many([(0, tenant) for tenant, count in tenants.items() for _ in range(count)])
        found = queue.read_many(1000)
        assert Counter(each.shard_key for each in found) == tenants, seed
        assert queue.ack_many(found) == []


@lone
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("batch", [10, 64, 100, 500])
@pytest.mark.parametrize("tenants", [1, 20, 100])
def test_a_batch_is_whole_as_long_as_so_much_may_be_delivered(
    open_queue: OpenQueue, batch: int, tenants: int
) -> None:
    queue = open_queue(streams=64, streams_per_shard=4, window=1)
    count = 1500 // tenants
    queue.write_many([(number, f"t{tenant}") for number in range(count) for tenant in range(tenants)])
    left, sizes = count * tenants, []
    while left > 0 and (found := queue.read_many(batch)):
        assert queue.ack_many(found) == []
        left -= len(found)
        sizes.append(len(found))
    assert set(sizes[:-1]) <= {batch}
    assert left == 0

"""A flood gets its share and no more, however messages are read, and wherever those of the others come from."""

from __future__ import annotations

import hashlib
import math
import random
import threading
from collections import Counter
from itertools import count
from typing import Any

import pytest

from shardq import Delivery, Message, Queue
from shardq.model import DeliveryView
from tests.clients import CLIENT_KINDS, ClientKind
from tests.conformance.world import raw_client
from tests.promises.conftest import OpenQueue, lone
from tests.promises.ideal import Ideal, p99
from tests.promises.loads import (
    BESIDE,
    CHANCE,
    TIMES,
    check_share,
    newcomers,
    served_by,
    served_by_worker,
    served_ideally,
)
from tests.promises.served import waits_of
from tests.waiting import eventually
from tests.worker.running import RunningWorker

BATCHES = [1, 10, 32, 100]
TENANTS, EACH = 60, 5
QUIET = [f"tenant-{number}" for number in range(TENANTS)] * EACH
FLOOD = 600
FLOODED = 300
LEASE = 3.0
"""Seconds: no test may fail since a machine stood still for two of them."""
DELIVERIES = 2_000
LOAD = 0
"""The seed of when newcomers come: always the same, so that an engine keeps the bound in each run, or in none."""
BUCKETS = 2045


def flood(queue: Queue, tenant: str = "flood", count: int = FLOOD) -> None:
    queue.write_many([(number, tenant) for number in range(count)])


def written(queue: Queue) -> None:
    """The quiet ones' messages are as new as the flood's."""
    flood(queue)
    queue.write_many([("quiet", tenant) for tenant in QUIET])


def delayed(queue: Queue) -> None:
    """They come due while the flood waits."""
    queue.write_many([Message("quiet", tenant, delay=0.2) for tenant in QUIET])
    flood(queue)
    eventually(lambda: queue.stats().delayed == 0, what="all delays are over")


def nacked(queue: Queue) -> None:
    """They were given back."""
    queue.write_many([("quiet", tenant) for tenant in QUIET])
    assert queue.nack_many(everything(queue)) == []
    flood(queue)


def redriven(queue: Queue) -> None:
    """They were dead letters."""
    queue.write_many([("quiet", tenant) for tenant in QUIET])
    assert queue.reject_many(everything(queue), "no") == []
    flood(queue)
    assert queue.redrive(queue.dead(1000)) == len(QUIET)


def lost(queue: Queue) -> None:
    """Those who had them are gone, and their leases have ended. (What these cost in time is not the matter here.)"""
    queue.configure(fair="messages")
    queue.write_many([("quiet", tenant) for tenant in QUIET])
    everything(queue, visibility=LEASE)
    flood(queue)
    eventually(lambda: queue.stats().in_flight == 0, what="all leases are over")


def paused(queue: Queue) -> None:
    """They waited for the end of a pause that was noticed."""
    queue.write_many([("quiet", tenant) for tenant in QUIET])
    for tenant in set(QUIET):
        queue.pause(tenant)
    assert queue.read_many(100) == []
    flood(queue)
    for tenant in set(QUIET):
        queue.resume(tenant)


def everything(queue: Queue, count: int = len(QUIET), visibility: float = 60.0) -> list[Delivery]:
    """All that the queue has, in flight; it must be so many."""
    found = []
    while some := queue.read_many(1000, visibility_timeout=visibility):
        found += some
    assert len(found) == count
    return found


SOURCES = {each.__name__: each for each in (written, delayed, nacked, redriven, lost, paused)}


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    return open_queue(streams=16, streams_per_shard=2, window=1, visibility_timeout=60)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.runs_in("test-all")
def test_a_flood_gets_its_share_beside_what_was(queue: Queue, source: str, batch: int) -> None:
    SOURCES[source](queue)
    most = len(QUIET)
    ideal = served_ideally(["flood"] * FLOOD + QUIET, most)
    check_share(served_by(queue, batch, most), ideal)


@lone
def test_a_flood_gets_its_share_of_a_batch_beside_what_came_due(queue: Queue) -> None:
    delayed(queue)
    most = len(QUIET)
    check_share(served_by(queue, 100, most), served_ideally(["flood"] * FLOOD + QUIET, most))


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("concurrency", [16, 64])
def test_a_flood_gets_its_share_of_a_worker_beside_what_was(
    queue: Queue, server_url: str, client_kind: ClientKind, source: str, concurrency: int
) -> None:
    SOURCES[source](queue)
    most = len(QUIET)
    ideal = served_ideally(["flood"] * FLOOD + QUIET, most)
    check_share(served_by_worker(client_kind, server_url, queue.name, concurrency, most), ideal)


# --- beside messages of a flood that come the same way, and lie beside those of the quiet tenant


def neighbour(tenant: str) -> str:
    """A tenant whose key has the same remainder as that of *tenant*: an index by hash puts the two side by side."""

    def bucket(key: str) -> int:
        return int(hashlib.sha1(key.encode()).hexdigest()[:8], 16) % BUCKETS  # noqa: S324 (no secret)

    number = 0
    while bucket(f"quiet-{number}") != bucket(tenant):
        number += 1
    return f"quiet-{number}"


def delay_both(queue: Queue, quiet: str) -> None:
    """The flood's messages come due, and right after them that of the quiet tenant."""
    queue.write_many([Message(number, "flood", delay=0.2) for number in range(FLOODED)])
    queue.write("quiet", shard_key=quiet, delay=0.2)


def lose_both(queue: Queue, quiet: str) -> None:
    """The leases of the flood's messages end, and right after them that of the quiet tenant's."""
    flood(queue, count=FLOODED)
    everything(queue, FLOODED, LEASE)
    queue.write("quiet", shard_key=quiet)
    everything(queue, 1, LEASE)


def nack_both(queue: Queue, quiet: str) -> None:
    """The flood's messages are given back, and right after them that of the quiet tenant."""
    flood(queue, count=FLOODED)
    queue.write("quiet", shard_key=quiet)
    held = everything(queue, FLOODED + 1)
    assert queue.nack_many([each for each in held if each.shard_key == "flood"]) == []
    assert queue.nack_many([each for each in held if each.shard_key == quiet]) == []


def redrive_both(queue: Queue, quiet: str) -> None:
    """The flood's messages were dead letters, and so was that of the quiet tenant."""
    flood(queue, count=FLOODED)
    queue.write("quiet", shard_key=quiet)
    assert queue.reject_many(everything(queue, FLOODED + 1), "no") == []
    letters = queue.dead(1000)
    assert queue.redrive([each for each in letters if each.shard_key == "flood"]) == FLOODED
    assert queue.redrive(queue.dead(1)) == 1


def pause_both(queue: Queue, quiet: str) -> None:
    """The flood waited for the end of a pause, and so did the quiet tenant."""
    flood(queue, count=FLOODED)
    queue.write("quiet", shard_key=quiet)
    for tenant in ("flood", quiet):
        queue.pause(tenant)
    assert queue.read_many(100) == []
    for tenant in ("flood", quiet):
        queue.resume(tenant)


BOTH = {each.__name__: each for each in (delay_both, lose_both, nack_both, redrive_both, pause_both)}


@pytest.mark.parametrize("beside", ["in one stream", "by hash"])
@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.runs_in("test-all")
def test_who_has_one_message_does_not_wait_for_a_flood_of_the_same_kind(
    open_queue: OpenQueue, how: str, beside: str, batch: int
) -> None:
    streams = 1 if beside == "in one stream" else 16
    queue = open_queue(streams=streams, streams_per_shard=min(2, streams), window=1, visibility_timeout=60)
    BOTH[how](queue, neighbour("flood") if beside == "by hash" else "quiet")
    eventually(lambda: queue.stats().backlog == FLOODED + 1, what="all may be delivered")
    waits = served_by(queue, batch, FLOODED + 1).waits
    assert len(waits) == 1
    assert waits[0] <= TIMES * 1 + BESIDE, "in the ideal queue it waits for one message of the flood"


# --- newcomers


@lone
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("floods", [20, 100])
@pytest.mark.parametrize(("streams", "per_shard"), [(64, 4), (16, 2)])
@pytest.mark.runs_in("test-all")
def test_a_newcomer_waits_hardly_longer_than_in_the_ideal_queue(
    open_queue: OpenQueue, batch: int, floods: int, streams: int, per_shard: int
) -> None:
    """A message of a tenant that had none, beside floods whose messages wait all the time."""
    queue = open_queue(streams=streams, streams_per_shard=per_shard, window=1)
    reads = DELIVERIES // batch
    backlog = DELIVERIES // floods + 3
    ideal = Ideal()
    for tenant in range(floods):
        flood(queue, f"flood-{tenant}", backlog)
        for _ in range(backlog):
            ideal.write(f"flood-{tenant}")

    def write(tenant: str) -> None:
        queue.write("quiet", shard_key=tenant)

    def read(count: int) -> list[str]:
        found = queue.read_many(count)
        assert queue.ack_many(found) == []
        return [str(each.shard_key) for each in found]

    def read_ideally(count: int) -> list[str]:
        return [ideal.read() for _ in range(count)]

    real = newcomers(write, read, batch, reads, random.Random(LOAD))
    ideally = newcomers(ideal.write, read_ideally, batch, reads, random.Random(LOAD), together=False)
    assert p99(real) <= TIMES * p99(ideally) + BESIDE, p99(ideally)


WORKED = 1_200
"""Deliveries of a worker."""


@lone
@pytest.mark.parametrize("concurrency", [1, 16, 64, 128])
@pytest.mark.parametrize("floods", [20, 100])
@pytest.mark.runs_in("test-all")
def test_a_newcomer_waits_hardly_longer_for_a_worker_than_in_the_ideal_queue(
    open_queue: OpenQueue, server_url: str, floods: int, concurrency: int
) -> None:
    """Its handlers write the messages of tenants that had none. A wait is in deliveries, as the journal tells them."""
    queue = open_queue(streams=64, streams_per_shard=4, window=1, journal=10**6)
    backlog, rng, lock = 2 * WORKED // floods, random.Random(LOAD), threading.Lock()
    for tenant in range(floods):
        flood(queue, f"flood-{tenant}", backlog)
    quiet: set[str] = set()
    done = 0

    def handle(_: DeliveryView) -> None:
        nonlocal done
        with lock:
            done += 1
            is_next = done < 0.75 * WORKED and rng.random() < CHANCE
        if is_next:
            quiet.add(queue.write("quiet", shard_key=f"quiet-{done}-{threading.get_ident()}"))

    with RunningWorker("sync", server_url, queue.name, handle, concurrency=concurrency) as begun:
        eventually(lambda: done >= WORKED or begun.failure, 120, what="so many deliveries")
    assert begun.failure is None
    with raw_client(server_url) as raw:
        real = waits_of(raw, queue.state.keys, quiet, WORKED)
    assert len(real) > 50
    ideally = ideal_newcomers(floods, backlog, WORKED)
    assert p99(real) <= TIMES * p99(ideally) + BESIDE, p99(ideally)


def ideal_newcomers(floods: int, backlog: int, most: int) -> list[int]:
    """The waits of newcomers in the ideal queue, beside floods, one delivery after the other."""
    ideal = Ideal()
    for tenant in range(floods):
        for _ in range(backlog):
            ideal.write(f"flood-{tenant}")
    return newcomers(ideal.write, lambda _: [ideal.read()], 1, most, random.Random(LOAD), together=False)


# --- beside new shard keys without end

ROUNDS = 20
"""Turns of each flood, while new shard keys come. Which reads give one is drawn: only so much may depend on it."""
SHARE = 0.8
"""What part of its share a flood has in so many turns, at least."""
EIGHTH = 1 / 8
"""What part of all deliveries is for those who wait for their turn, whoever is new."""
JOB = 0.01
"""Seconds that each job of a worker is told to cost: how long it really takes depends on the machine."""
SLOW = pytest.mark.runs_in("test-all")


@lone
@pytest.mark.parametrize("batch", [2, *(pytest.param(each, marks=SLOW) for each in (1, 3, 4, 7, 8, 16, 64, 100))])
@pytest.mark.parametrize("prefers", [False, pytest.param(True, marks=SLOW)])
def test_a_flood_that_waits_has_one_delivery_of_eight_beside_new_shard_keys(
    queue: Queue, batch: int, prefers: bool
) -> None:
    flood(queue, count=3 * ROUNDS)
    order = beside_new_ones(queue, batch, math.ceil(ROUNDS / EIGHTH / batch), prefers=prefers)
    assert order.count("flood") >= SHARE * EIGHTH * len(order)


@lone
@pytest.mark.parametrize("batch", [1, 7, 100])
@pytest.mark.runs_in("test-all")
def test_each_flood_that_waits_has_its_share_beside_new_shard_keys(queue: Queue, batch: int) -> None:
    floods = [f"flood-{number}" for number in range(20)]
    for tenant in floods:
        flood(queue, tenant, 3 * ROUNDS)
    got = Counter(beside_new_ones(queue, batch, int(ROUNDS * len(floods) / EIGHTH) // batch))
    assert min(got[tenant] for tenant in floods) >= SHARE * ROUNDS


@pytest.mark.once
@pytest.mark.parametrize("client_kind", CLIENT_KINDS, indirect=True)
@pytest.mark.parametrize("concurrency", [1, 8, 64, 128])
@pytest.mark.parametrize("floods", [20, 100])
@pytest.mark.runs_in("test-all")
def test_each_flood_that_waits_has_its_share_of_a_worker(
    queue: Queue, server_url: str, client_kind: ClientKind, concurrency: int, floods: int
) -> None:
    check_shares(queue, client_kind, server_url, concurrency, floods, 1)


@pytest.mark.once
@pytest.mark.parametrize("client_kind", CLIENT_KINDS, indirect=True)
@pytest.mark.parametrize("concurrency", [1, 8, 64, 128])
@pytest.mark.parametrize("floods", [1, 20])
@pytest.mark.runs_in("test-all")
def test_each_flood_that_waits_has_its_share_of_a_worker_beside_new_shard_keys(
    queue: Queue, server_url: str, client_kind: ClientKind, concurrency: int, floods: int
) -> None:
    check_shares(queue, client_kind, server_url, concurrency, floods, EIGHTH)


def check_shares(queue: Queue, kind: ClientKind, url: str, concurrency: int, floods: int, part: float) -> None:
    """Each flood has its share of the *part* that they have of a worker's deliveries."""
    # What a worker has begun last may be counted, or not: that is as much as it does at once.
    rounds = math.ceil(max(ROUNDS, 8 * concurrency * part / floods))
    got = Counter(worked_on(queue, kind, url, concurrency, floods, rounds, part))
    assert min(got[flood_of(number)] for number in range(floods)) >= SHARE * rounds, got.most_common(floods)


def flood_of(number: int) -> str:
    return f"flood-{number}"


def worked_on(
    queue: Queue, kind: ClientKind, url: str, concurrency: int, floods: int, rounds: int, part: float
) -> list[str]:
    """Whose messages a worker's handlers get first, in *rounds* turns of each flood, whose *part* is of all deliveries.

    The rest is for new shard keys: each handler writes a message of another one, so that some wait at any time. What is
    in the streams is read before: from then on each flood waits for its turn.
    """
    most, is_beside_new = int(rounds * floods / part), part < 1
    for number in range(floods):
        flood(queue, flood_of(number), 3 * rounds)
    queue.ack_many(queue.read_many(sum(queue.stats().streams)))
    order: list[str] = []
    names = count()

    def write(number: int) -> None:
        queue.write_many([("new", f"new-{next(names)}") for _ in range(number)])

    def handle(delivery: Any) -> None:
        # No lock: one that many wait for goes to whom it likes, so that a job could last for seconds.
        delivery.cost = JOB
        order.append(str(delivery.shard_key))
        if is_beside_new and len(order) < most:
            write(1)

    if is_beside_new:
        write(4 * concurrency)
    with RunningWorker(kind, url, queue.name, handle, concurrency=concurrency) as begun:
        eventually(lambda: len(order) >= most or begun.failure, 120, what="so many deliveries")
    assert begun.failure is None
    return order[:most]


def beside_new_ones(queue: Queue, batch: int, reads: int, *, prefers: bool = False) -> list[str]:
    """Whose messages so many reads deliver, if there is one of a new shard key for each message that they take.

    What is in the streams is read before: from then on each flood waits for its turn.
    """
    queue.ack_many(queue.read_many(sum(queue.stats().streams)))
    queue.write_many([("new", f"first-{number}") for number in range(2 * batch)])
    order: list[str] = []
    for number in range(reads):
        queue.write_many([("new", f"new-{number}-{at}") for at in range(batch)])
        found = queue.read_many(batch, prefer_stream=number % 16 if prefers else None)
        assert queue.ack_many(found) == []
        order += [str(each.shard_key) for each in found]
    assert len(order) == reads * batch
    return order

"""A read of many gets what may be delivered, up to what it asks for."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from shardq import Client, Delivery, Limits, Queue
from tests.conformance.world import World, raw_client
from tests.promises.conftest import OpenQueue, Spread, lone
from tests.promises.watching import Command, watched
from tests.servers import Server
from tests.waiting import eventually

SOON = 10.0
"""Seconds within which a reader that was woken has its message, also on a machine that stood still for two."""

LASTS = 3.0
"""Seconds for which a limit blocks that ends by itself: a machine that stands still for two must not outlast it."""


def taken_back(queue: Queue, how: str, count: int) -> int:
    """Write so many messages, some of which lie in streams, and let a limit block them, as a read has noticed.

    Return how many may be delivered without the limit.
    """
    queue.write_many([(number, "t") for number in range(count)])
    limit(queue, how)
    first = queue.read_many(100)
    assert len(first) == (0 if "pause" in how else 1)
    if "rate" in how:
        assert queue.ack_many(first) == []
    assert queue.read_many(100) == []
    return 1 if how == "a rate's next token" else count - len(first)


def limit(queue: Queue, how: str) -> None:
    match how:
        case "a pause":
            queue.pause("t")
        case "a pause that ends":
            queue.pause("t", seconds=LASTS)
        case "a rate":
            queue.set_limits({"t": Limits(rate=0.001, burst=1)})
        case "a rate's next token":
            queue.set_limits({"t": Limits(rate=1 / LASTS, burst=1)})
        case _:
            queue.set_limits({"t": Limits(max_in_flight=1)})


def let_go(queue: Queue, how: str) -> None:
    """Lift the limit, or wait until it blocks nothing."""
    if how == "a pause":
        queue.resume("t")
    elif how in BY_ITSELF:
        now = queue.stats().time
        eventually(lambda: queue.stats().time > now + LASTS, what="so much time")
    else:
        queue.set_limits({"t": Limits()})


LIFTED = ["a pause", "a rate", "a cap"]
BY_ITSELF = ["a pause that ends", "a rate's next token"]


@pytest.mark.parametrize("how", LIFTED)
@pytest.mark.parametrize("batch", [1, 2, 5, 100])
@pytest.mark.parametrize("window", [1, 50])
@pytest.mark.runs_in("test-all")
def test_a_read_finds_what_a_limit_that_was_lifted_had_taken_back(
    open_queue: OpenQueue, how: str, batch: int, window: int
) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=window)
    left = taken_back(queue, how, 10)
    let_go(queue, how)
    while left:
        found = queue.read_many(batch)
        assert len(found) == min(batch, left)
        left -= len(found)


@pytest.mark.parametrize("how", BY_ITSELF)
@pytest.mark.parametrize("batch", [1, 5, 100])
@pytest.mark.parametrize("window", [1, 50])
@pytest.mark.runs_in("test-all")
def test_a_read_finds_what_a_limit_that_is_over_had_taken_back(
    client: Client, how: str, batch: int, window: int
) -> None:
    """In each of some queues: what a read finds may depend on the instant."""
    queues = several(client, window)
    ready = [taken_back(queue, how, 3) for queue in queues]
    let_go(queues[-1], how)
    found = [len(queue.read_many(batch)) for queue in queues]
    assert found == [min(batch, each) for each in ready]


def several(client: Client, window: int) -> list[Queue]:
    queues = [
        client.queue(f"queue-{number}", create=True, streams=4, streams_per_shard=2, window=window)
        for number in range(10)
    ]
    for queue in queues:
        queue.declare()
    return queues


def test_a_read_of_many_is_not_empty_after_a_pause_that_a_read_noticed(client: Client) -> None:
    """The short form. Where this machine stood still for as long as a pause, nothing was limited."""
    limited = []
    for queue in several(client, 1):
        queue.write_many([(number, "t") for number in range(3)])
        queue.pause("t", seconds=0.4)
        if not queue.read_many(100):
            limited.append(queue)
    now = limited[-1].stats().time
    eventually(lambda: limited[-1].stats().time > now + 0.4, what="so much time")
    assert [len(queue.read_many(5)) for queue in limited] == [3] * len(limited)


@pytest.mark.parametrize("how", LIFTED + BY_ITSELF)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.runs_in("test-all")
def test_a_blocked_reader_of_many_gets_at_once_what_a_limit_had_taken_back(
    open_queue: OpenQueue, patient: Client, server: Server, how: str, batch: int
) -> None:
    """It does not look again by itself unless it knows when, and must find what it was woken for."""
    queue = open_queue(by=patient, streams=4, streams_per_shard=2, window=1)
    taken_back(queue, how, 3)
    found: list[Delivery] = []
    reader = threading.Thread(target=lambda: found.extend(queue.read_many(batch, block=SOON + LASTS)))
    reader.start()
    try:
        eventually(lambda: found or b"cmd=xreadgroup" in server.run("CLIENT", "LIST"), what="a blocked read")
        let_go(queue, how)
        eventually(lambda: found, SOON - 2, what="a delivery")
    finally:
        reader.join()


def test_the_read_of_one_reader_leaves_the_wake_up_of_another(open_queue: OpenQueue) -> None:
    """Messages that came back, some for each of two readers: the second finds its own, too."""
    queue = open_queue(streams=4, streams_per_shard=2, window=50)
    taken_back(queue, "a pause", 10)
    let_go(queue, "a pause")
    assert [len(queue.read_many(5, block=0.1)), len(queue.read_many(5, block=0.1))] == [5, 5]
    assert queue.read_many(5) == []


# --- beside quiet tenants


@pytest.mark.parametrize("quiet", [0, 1, 5])
@pytest.mark.parametrize("shape", [(64, 4), (16, 2)], ids=str)
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


def of_a_block(command: Command) -> bool:
    """Whether it looks up a block of an overflow."""
    return command.name == "HGET" and command.words[1].endswith(":bodies") and command.words[2].startswith("m")


@lone
@pytest.mark.parametrize("quiet", [1, 5])
def test_a_batch_of_100_runs_one_command_more_for_each_quiet_message(
    open_queue: OpenQueue, spread: Spread, server: Server, quiet: int
) -> None:
    queue = open_queue(streams=64, streams_per_shard=4, window=1)
    queue.write_many([(number, f"flood-{tenant}") for tenant in range(20) for number in range(170)])

    def commands(quiet: int) -> int:
        """Those of ten batches, without look-ups of the next blocks of floods: not all batches have these."""
        inside = 0
        for turn in range(10):
            for number in range(quiet):
                queue.write("quiet", shard_key=f"quiet-{turn}-{number}")
            with watched(server) as seen:
                found = queue.read_many(100)
            assert len(found) == 100
            assert queue.ack_many(found) == []
            inside += sum(each.inside and not of_a_block(each) for each in seen)
        return inside

    commands(0)  # what is looked at once, when a queue is new, is in neither number
    assert commands(quiet) <= commands(0) + 10 * (quiet + 2) * spread.each


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
def test_a_batch_is_whole_as_long_as_so_much_may_be_delivered(open_queue: OpenQueue, batch: int, tenants: int) -> None:
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


@lone
@pytest.mark.parametrize("streams", [64, 200])
def test_what_was_given_back_of_many_tenants_comes_in_few_calls(
    open_queue: OpenQueue, spread: Spread, server: Server, streams: int
) -> None:
    """Their messages lie in all streams: a batch takes no call for each of these."""
    queue = open_queue(streams=streams, streams_per_shard=4, window=1)
    queue.write_many([(b"", f"t{number}") for number in range(1000)])
    with raw_client(server.url) as raw:
        while queue.read_many(100):
            pass
        World(server.url, raw).elapse(queue, 3000)
    assert len(queue.read_many(100)) == 100  # by then all leases have been taken back
    with watched(server) as seen:
        for _ in range(5):
            assert len(queue.read_many(100)) == 100
    assert sum(not each.inside for each in seen) <= 20 * spread.each


@pytest.mark.parametrize("tenants", [1, 50, 2000])
@lone
def test_leases_that_end_in_a_mass_hold_up_no_first_message(
    open_queue: OpenQueue, spread: Spread, server: Server, tenants: int
) -> None:
    """A call takes back a piece of them. A batch that has something does not wait for the others."""
    queue = open_queue(streams=16, streams_per_shard=2, window=1)
    queue.write_many([(b"", f"t{number % tenants}") for number in range(2000)])
    while queue.read_many(500):
        pass
    with raw_client(server.url) as raw:
        World(server.url, raw).elapse(queue, 3000)
    with watched(server) as seen:
        assert queue.read_many(100)
    assert sum(not each.inside and each.name != "CLIENT" for each in seen) <= 8 * spread.each

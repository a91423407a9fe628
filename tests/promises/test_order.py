"""With a window of 1 the messages of a shard key are delivered for the first time in the order of their writes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest

from shardq import Client, Delivery, Limits, Message, Queue
from tests.clients import ClientKind
from tests.conformance.world import World, raw_client
from tests.promises.conftest import OpenQueue, lone
from tests.waiting import eventually
from tests.worker.running import RunningWorker

SHAPES = [(4, 1), (4, 4)]
"""Numbers of streams, and how many of these each tenant has."""
Write = Callable[[Client, Queue, Sequence[Message]], object]


def singly(_: Client, queue: Queue, messages: Sequence[Message]) -> None:
    for each in messages:
        queue.write(each.payload, shard_key=each.shard_key, unique_key=each.unique_key, delay=each.delay)


def together(_: Client, queue: Queue, messages: Sequence[Message]) -> None:
    queue.write_many(messages)


def by_a_writer(client: Client, queue: Queue, messages: Sequence[Message]) -> None:
    with client.writer() as writer:
        for each in messages:
            writer.write(queue, each.payload, shard_key=each.shard_key, unique_key=each.unique_key, delay=each.delay)


WAYS: dict[str, Write] = {"write": singly, "write_many": together, "a writer": by_a_writer}


def first_deliveries(queue: Queue, batch: int, settle: Callable[[Queue, list[Delivery]], object]) -> list[Delivery]:
    """All that comes, each message's first delivery only, in order."""
    found = []
    while some := queue.read_many(batch):
        found += [each for each in some if each.count == 1]
        settle(queue, some)
    return found


def ack(queue: Queue, found: list[Delivery]) -> None:
    assert queue.ack_many(found) == []


def check_order(found: Sequence[Delivery], expected: Sequence[int]) -> None:
    """Each tenant's numbers came in this order."""
    came = defaultdict(list)
    for each in found:
        came[each.shard_key].append(each.payload)
    assert came
    for tenant, numbers in came.items():
        assert numbers == [*expected], tenant


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_unique_message_has_the_place_of_its_write(
    open_queue: OpenQueue, client: Client, way: str, shape: tuple[int, int]
) -> None:
    queue = open_queue(streams=shape[0], streams_per_shard=shape[1], window=1)
    messages = [Message(number, "t", unique_key=f"k{number}" if number % 2 else None) for number in range(20)]
    WAYS[way](client, queue, messages)
    check_order(first_deliveries(queue, 1, ack), range(20))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_replaced_message_has_the_place_of_the_first_write(open_queue: OpenQueue, shape: tuple[int, int]) -> None:
    queue = open_queue(streams=shape[0], streams_per_shard=shape[1], window=1)
    for number in range(20):
        queue.write(number, shard_key="t", unique_key="k" if number == 5 else None)
    queue.write(105, shard_key="t", unique_key="k", on_conflict="replace")
    check_order(first_deliveries(queue, 1, ack), [*range(5), 105, *range(6, 20)])


@pytest.mark.parametrize("tenants", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.runs_in("test-all")
def test_first_deliveries_come_in_order_however_few_tenants_are_active(
    open_queue: OpenQueue, tenants: int, batch: int, shape: tuple[int, int]
) -> None:
    queue = open_queue(streams=shape[0], streams_per_shard=shape[1], window=1)
    queue.write_many([(number, f"t{tenant}") for number in range(12) for tenant in range(tenants)])
    check_order(first_deliveries(queue, batch, ack), range(12))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_worker_with_one_handler_runs_it_in_order(
    open_queue: OpenQueue, server_url: str, client_kind: ClientKind, shape: tuple[int, int]
) -> None:
    queue = open_queue(streams=shape[0], streams_per_shard=shape[1], window=1)
    queue.write_many([(number, "t") for number in range(60)])
    came: list[int] = []
    with RunningWorker(
        client_kind, server_url, queue.name, lambda delivery: came.append(delivery.payload), concurrency=1
    ):
        eventually(lambda: len(came) == 60, what="all deliveries")
    assert came == [*range(60)]


def test_what_was_tried_goes_first_while_ended_leases_are_taken_back(open_queue: OpenQueue, server_url: str) -> None:
    """The tenant's lease ended last, so something else is delivered before it is taken back."""
    queue = open_queue(streams=4, streams_per_shard=1, window=1)
    queue.write("tried", shard_key="t")
    queue.write_many([("flood", "flood")] * 600)
    held = queue.read_many(1000, visibility_timeout=50)
    assert len(held) == 601
    [own] = [each for each in held if each.shard_key == "t"]
    own.extend(55)
    queue.write_many([(f"new {number}", "t") for number in range(2)])
    in_stream = queue.read(visibility_timeout=60)  # it was written to a stream, where nothing overtakes it
    assert in_stream.payload == "new 0"
    with raw_client(server_url) as raw:
        World(server_url, raw).elapse(queue, 58)
    came = [each.payload for each in first_and_again(queue) if each.shard_key == "t"]
    assert came.index("tried") < came.index("new 1")


def first_and_again(queue: Queue) -> list[Delivery]:
    """All that may be delivered, in its order."""
    found: list[Delivery] = []
    while some := queue.read_many(50, visibility_timeout=60):
        found += some
    return found


# --- beside what holds messages back


def lift(queue: Queue) -> None:
    queue.resume("t0")
    queue.set_limits({f"t{number}": Limits() for number in range(9)})


LIMITS: dict[str, Callable[[Queue], object]] = {
    "a pause": lambda queue: queue.pause("t0"),
    "a pause that ends": lambda queue: queue.pause("t0", seconds=0.2),
    "a rate": lambda queue: queue.set_limits({"t0": Limits(rate=50, burst=2)}),
    "a cap": lambda queue: queue.set_limits({"t0": Limits(max_in_flight=2)}),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("tenants", [1, 12])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.runs_in("test-all")
def test_a_limit_that_comes_and_goes_lets_none_overtake(
    open_queue: OpenQueue, limit: str, batch: int, tenants: int, shape: tuple[int, int]
) -> None:
    """It comes when the first messages lie in streams already, and is lifted when later ones were written."""
    queue = open_queue(streams=shape[0], streams_per_shard=shape[1], window=1)
    everybody = [f"t{number}" for number in range(tenants)]
    queue.write_many([(number, tenant) for number in range(15) for tenant in everybody])
    found = queue.read_many(batch)
    LIMITS[limit](queue)
    found += queue.read_many(batch)
    queue.write_many([(number, tenant) for number in range(15, 30) for tenant in everybody])
    found += queue.read_many(batch)
    assert queue.ack_many(found) == []
    lift(queue)

    def is_empty() -> bool:
        found.extend(first_deliveries(queue, batch, ack))
        return queue.len() == 0

    eventually(is_empty, what="all came")
    check_order([each for each in found if each.count == 1], range(30))


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.runs_in("test-all")
def test_delayed_messages_come_in_the_order_of_their_due_times(
    open_queue: OpenQueue, client: Client, server_url: str, way: str, batch: int
) -> None:
    queue = open_queue(streams=4, streams_per_shard=4, window=1)
    order = [7, 2, 9, 0, 4, 1, 8, 3, 6, 5]
    WAYS[way](client, queue, [Message(number, "t", delay=1000.0 + 100 * number) for number in order])
    with raw_client(server_url) as raw:
        World(server_url, raw).elapse(queue, 3000)
    assert queue.stats().delayed == 0
    check_order(first_deliveries(queue, batch, ack), range(10))


@lone
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("tenants", "per_shard"), [(1, 4), (3, 4), (1, 1), (8, 1), (30, 1)])
def test_what_is_given_back_at_random_lets_no_new_message_overtake_another(
    open_queue: OpenQueue, rng: random.Random, seed: int, tenants: int, per_shard: int
) -> None:
    queue = open_queue(streams=4, streams_per_shard=per_shard, window=1, max_deliveries=1000)
    queue.write_many([(number, f"t{tenant}") for number in range(40) for tenant in range(tenants)])
    found: list[Delivery] = []
    while some := queue.read_many(rng.choice([1, 2, 5, 20])):
        found += [each for each in some if each.count == 1]
        for each in some:
            if rng.random() < 0.3:
                each.nack()
            else:
                each.ack()
    check_order(found, range(40))

"""What is set for one tenant costs the others nothing: their calls run the same commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Limits, Queue
from tests.promises.conftest import OpenQueue, lone
from tests.promises.watching import Command, cost, names, watched
from tests.servers import Server

LOUD = "loud"


def on_a_plan(queue: Queue) -> None:
    queue.set_plan("gold", rate=5, max_in_flight=3)
    queue.set_limits({LOUD: "gold"})


SETTINGS: dict[str, Callable[[Queue], object]] = {
    "a rate": lambda queue: queue.set_limits({LOUD: Limits(rate=5)}),
    "a cap": lambda queue: queue.set_limits({LOUD: Limits(max_in_flight=3)}),
    "a pause": lambda queue: queue.pause(LOUD),
    "a pause with an end": lambda queue: queue.pause(LOUD, seconds=600),
    "a weight": lambda queue: queue.set_weights({LOUD: 3}),
    "a plan": on_a_plan,
    "a shard": lambda queue: queue.assign([LOUD]),
}


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    return open_queue(streams=4, streams_per_shard=4, window=1)


@lone
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_set_for_one_tenant_adds_no_command_to_the_calls_of_another(
    queue: Queue, server: Server, setting: str
) -> None:
    before = cost(server, queue)
    SETTINGS[setting](queue)
    assert cost(server, queue) == before


@lone
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_is_set_for_one_tenant_adds_no_command_to_batches_of_others(
    queue: Queue, server: Server, setting: str
) -> None:
    before = in_batches(server, queue)
    SETTINGS[setting](queue)
    assert names(in_batches(server, queue)) == names(before)


def in_batches(server: Server, queue: Queue) -> list[Command]:
    """The commands that write, read and ack 50 messages of ten tenants."""

    def calls() -> None:
        queue.write_many([(number, f"t{number % 10}") for number in range(50)])
        found = queue.read_many(50)
        assert len(found) == 50
        assert queue.ack_many(found) == []

    return last_of_three(server, calls)


def last_of_three(server: Server, calls: Callable[[], None]) -> list[Command]:
    """The commands of calls that were made twice before, so that what is learnt or tidied once is not among them."""
    calls()
    calls()
    with watched(server) as seen:
        calls()
    return seen


@lone
@pytest.mark.parametrize("setting", SETTINGS)
def test_what_was_set_for_one_tenant_and_is_lifted_costs_nobody(queue: Queue, server: Server, setting: str) -> None:
    before = cost(server, queue)
    SETTINGS[setting](queue)
    queue.resume(LOUD)
    queue.set_limits({LOUD: Limits()})
    queue.set_weights({LOUD: 1})
    queue.unassign([LOUD])
    assert cost(server, queue) == before


@lone
def test_an_empty_read_costs_the_same_while_something_is_in_flight(queue: Queue, server: Server) -> None:
    """Each idle worker makes it before it waits."""

    def empty_read() -> None:
        assert queue.read_many(1) == []

    queue.write("work", shard_key="t")
    queue.read().ack()
    before = last_of_three(server, empty_read)
    queue.write("work", shard_key="t")
    held = queue.read()
    assert sum(names(last_of_three(server, empty_read)).values()) <= sum(names(before).values())
    held.ack()

"""Each second for which a tenant has a handler is charged once, whatever ends the delivery.

Time is simulated, on a real server.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shardq import Queue
from shardq.testing import ManualClock
from tests.servers import Server
from tests.simulated import clocked_client

pytestmark = pytest.mark.once  # what a server computes does not depend on its kind

LEASE = 30.0
ONCE = 0.05
"""By what part of its time a delivery may be charged too much or too little."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(server: Server, clock: ManualClock) -> Queue:
    client, _ = clocked_client(server, clock)
    queue = client.queue("jobs", create=True, streams=4, streams_per_shard=2, visibility_timeout=LEASE)
    queue.declare()
    return queue


def others_wait(queue: Queue) -> None:
    queue.write_many([(number, "other") for number in range(9)])


def charged(queue: Queue) -> float:
    """How much more the holder has received than the others, who have received nothing."""
    return queue.tenant("holder").ahead


EXTENSIONS: dict[str, Sequence[tuple[float, float]]] = {
    "never": [],
    "by its length": [(10, LEASE), (10, LEASE), (10, LEASE)],
    "by less": [(20, 5)],
    "by more": [(20, 400), (350, 400)],
    "by ever more": [(1, LEASE), (10, 100), (10, 1000)],
}
"""After how many seconds a lease is extended, and to how many from then."""


@pytest.mark.parametrize("how", EXTENSIONS)
def test_a_lease_that_ends_is_charged_once_however_it_was_extended(queue: Queue, clock: ManualClock, how: str) -> None:
    queue.write("work", shard_key="holder")
    others_wait(queue)
    held = queue.read()
    assert held.shard_key == "holder"
    begin, end = clock.monotonic(), clock.monotonic() + LEASE
    for after, length in EXTENSIONS[how]:
        clock.advance(after)
        held.extend(length)
        end = clock.monotonic() + length
    clock.advance(end - clock.monotonic() + 1)
    queue.read().ack(cost=0)
    assert queue.tenant("holder").in_flight == 0
    assert charged(queue) == pytest.approx(end - begin, rel=ONCE)


@pytest.mark.parametrize("ends", ["is done", "is lost"])
def test_a_delivery_that_began_while_nobody_waited_is_charged_from_when_somebody_does(
    queue: Queue, clock: ManualClock, ends: str
) -> None:
    """Whether somebody does is seen when its lease is extended. What is left when it is done after that is free."""
    queue.write("work", shard_key="holder")
    held = queue.read()
    for _ in range(3):
        clock.advance(10)
        held.extend(LEASE)
    others_wait(queue)
    assert charged(queue) == 0
    for _ in range(3):
        clock.advance(10)
        held.extend(LEASE)
    if ends == "is done":
        clock.advance(9)
        held.ack()
    else:
        clock.advance(LEASE + 1)
    queue.read().ack(cost=0)
    assert queue.tenant("holder").in_flight == 0
    assert charged(queue) == pytest.approx(30 if ends == "is done" else 60, rel=ONCE)


def test_a_delivery_while_nobody_waits_costs_nothing(queue: Queue, clock: ManualClock) -> None:
    queue.write("work", shard_key="holder")
    held = queue.read()
    clock.advance(10)
    held.extend(LEASE)
    clock.advance(LEASE + 1)
    queue.read().ack()
    assert charged(queue) == 0


def test_what_one_received_while_alone_is_no_debt_when_another_comes(queue: Queue, clock: ManualClock) -> None:
    """More of its messages wait, so its time counts. Nobody reads meanwhile: the only handler is busy with its job."""
    for number in range(3):
        queue.write(number, shard_key="holder")
    held = queue.read()
    for _ in range(10):
        clock.advance(10)
        held.extend(LEASE)
    others_wait(queue)
    assert charged(queue) == 0

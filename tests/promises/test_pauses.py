"""A pause that has ended is over: it costs nobody anything, and takes no room that others need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardq import Queue, ShardqError
from tests.promises.conftest import OpenQueue, lone
from tests.promises.watching import cost, one_of_each
from tests.servers import Server
from tests.waiting import eventually

MANY = 10_000
"""As many as had other limits at once in the first engine, which could not forget them."""


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    return open_queue(streams=4, streams_per_shard=4, window=1)


def pause_is_over(queue: Queue, seconds: float = 0.05) -> None:
    """A pause that ends by itself, and the end of it."""
    queue.pause("paused", seconds=seconds)
    eventually(lambda: queue.paused() == {}, what="the end of a pause")


def paused_alone(queue: Queue) -> None:
    """Nobody wrote or read meanwhile."""
    pause_is_over(queue)


def paused_beside_a_message(queue: Queue) -> None:
    """A message waited for the end of it, and was delivered then."""
    queue.pause("paused", seconds=0.3)
    queue.write("work", shard_key="paused")
    eventually(lambda: queue.paused() == {}, what="the end of a pause")
    queue.read(block=30).ack()


def paused_as_a_queue(queue: Queue) -> None:
    """The whole queue was paused."""
    queue.pause(seconds=0.05)
    eventually(lambda: queue.paused() == {}, what="the end of a pause")


PAUSES: dict[str, Callable[[Queue], object]] = {
    each.__name__: each for each in (paused_alone, paused_beside_a_message, paused_as_a_queue)
}


@lone
@pytest.mark.parametrize("pause", PAUSES)
def test_a_pause_that_ended_by_itself_adds_no_command_to_anybodys_calls(
    queue: Queue, server: Server, pause: str
) -> None:
    before = cost(server, queue)
    PAUSES[pause](queue)
    for _ in range(50):  # whatever sweeps, does it while others work
        one_of_each(queue)
    assert cost(server, queue) == before


@lone
@pytest.mark.runs_in("test-all")
def test_after_ten_thousand_pauses_that_ended_somebody_can_still_be_paused(queue: Queue, server: Server) -> None:
    before = cost(server, queue)
    for number in range(MANY):
        queue.pause(f"t{number}", seconds=0.001)
    eventually(lambda: queue.paused() == {}, what="the end of all pauses")
    try:
        queue.pause("one more")
    except ShardqError as error:
        raise AssertionError("nobody is paused, and nobody can be") from error
    assert [*queue.paused()] == ["one more"]
    queue.resume("one more")
    for _ in range(2_000):
        one_of_each(queue)
    assert cost(server, queue) == before


@pytest.mark.runs_in("test-all")
def test_a_pause_blocks_as_long_as_it_lasts_and_no_longer(queue: Queue) -> None:
    queue.pause("t", seconds=3)
    queue.write("work", shard_key="t")
    start = queue.stats().time
    assert queue.read_many(9) == []
    assert queue.read(block=30).payload == "work"
    assert queue.stats().time >= start + 2.9

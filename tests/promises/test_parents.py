"""Limits of shard keys when the queue counts by parents: none stays that nobody can see or take away."""

from __future__ import annotations

import pytest

from shardq import ConfigError, Limits, Queue
from tests.promises.conftest import OpenQueue

CHILD = "acct/a"


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A child was limited, and from then on its parent is what counts."""
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.set_limits({CHILD: Limits(max_in_flight=1)})
    queue.configure(parents=1)
    return queue


def test_a_childs_limit_can_be_taken_away_when_parents_count(queue: Queue) -> None:
    if CHILD in queue.limits():
        try:
            queue.set_limits({CHILD: Limits()})
        except ConfigError as error:
            raise AssertionError(f"{CHILD} has a limit that cannot be taken away") from error
    assert CHILD not in queue.limits()


def test_a_childs_limit_does_not_hold_when_parents_count(queue: Queue) -> None:
    queue.write_many([(number, CHILD) for number in range(5)])
    assert len(queue.read_many(9)) == 5


def test_a_childs_pause_can_be_ended_when_parents_count(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.pause(CHILD)
    queue.configure(parents=1)
    if CHILD in queue.paused():
        try:
            queue.resume(CHILD)
        except ConfigError as error:
            raise AssertionError(f"{CHILD} has a pause that cannot be ended") from error
    assert queue.paused() == {}
    queue.write("work", shard_key=CHILD)
    assert len(queue.read_many(9)) == 1


def test_a_childs_weight_can_be_taken_away_when_parents_count(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, window=1)
    queue.set_weights({CHILD: 3})
    queue.configure(parents=1)
    if CHILD in queue.weights():
        try:
            queue.set_weights({CHILD: 1})
        except ConfigError as error:
            raise AssertionError(f"{CHILD} has a weight that cannot be taken away") from error
    assert queue.weights() == {}

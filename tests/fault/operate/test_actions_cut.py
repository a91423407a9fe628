"""Calls of an action and of a purge of one tenant, of which the request or reply is lost: each message counts once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client, Message, Purged, Queue, Where
from tests.fault.conftest import Cutter, Open
from tests.proxy import Proxy
from tests.servers import Server

LETTERS = 250


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str) -> Queue:
    """A queue behind the proxy."""
    queue = open_client(proxy.url).queue(queue_name, streams=4, streams_per_shard=2, visibility_timeout=120)
    queue.declare()
    return queue


@pytest.fixture
def other(server: Server, queue: Queue) -> Iterator[Queue]:
    """The same by a good connection."""
    with Client.from_url(server.url) as client:
        yield client.queue(queue.name, create=True)


def bury(queue: Queue, count: int = LETTERS) -> None:
    queue.write_many([Message(number, f"t{number % 3}") for number in range(count)])
    while held := queue.read_many(100):
        queue.reject_many(held, "poison")


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_each_piece_of_a_redrive_counts_once(queue: Queue, other: Queue, lose: Cutter, skip: int) -> None:
    bury(other)
    action = queue.redrive(Where(state="dead"))
    cut = lose("act", skip=skip)
    status = action.wait()
    assert cut.struck.is_set()
    assert (status.state, status.done, status.passed) == ("done", LETTERS, 0)
    assert (other.stats().dead, other.stats().backlog) == (0, LETTERS)


def test_an_action_begins_once(queue: Queue, other: Queue, lose: Cutter) -> None:
    bury(other, 3)
    cut = lose("steer")
    action = queue.delete_dead(Where(state="dead"))
    assert cut.struck.is_set()
    assert [each.id for each in other.actions()] == [action.id]
    assert action.wait().done == 3


@pytest.mark.parametrize("skip", [0, 1, 3, 5])
def test_each_piece_of_a_purge_of_one_counts_once(queue: Queue, other: Queue, lose: Cutter, skip: int) -> None:
    bury(other, 9)
    other.write_many([Message(number, f"t{number % 3}") for number in range(600)])
    other.write_many([Message(number, f"t{number % 3}", delay=600) for number in range(90)])
    cut = lose("purge_of", skip=skip)
    told = queue.purge(shard_key="t1")
    assert cut.struck.is_set()
    assert told == Purged(200, 30, 3, 0)
    stats = other.stats()
    assert (stats.backlog, stats.delayed, stats.dead, stats.purged, stats.dead_deleted) == (400, 60, 6, 230, 3)

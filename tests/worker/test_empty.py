"""A worker that ends when its queue is empty, next to many delayed messages that do not keep it."""

from __future__ import annotations

import pytest

from shardq import Client, Message, Nack, Queue
from shardq.model import DeliveryView
from shardq.worker.empty import is_empty
from tests.servers import Server
from tests.worker.conftest import Begin

MANY = 20_000


@pytest.fixture
def delayed(jobs: Queue) -> Queue:
    """The queue with MANY messages that are due in an hour."""
    for _ in range(MANY // 5000):
        jobs.write_many([Message(b"", f"tenant-{number % 100}", delay=3600) for number in range(5000)])
    return jobs


def calls_of(server: Server) -> int:
    """How many calls of the library the server has had."""
    stats = server.info("commandstats")
    return sum(found["calls"] for name, found in stats.items() if name.startswith(("cmdstat_fcall", "cmdstat_evalsha")))


@pytest.mark.runs_in("test-all")
def test_one_call_says_whether_a_try_is_left(client: Client, delayed: Queue, default_server: Server) -> None:
    before = calls_of(default_server)
    assert is_empty(delayed)
    assert calls_of(default_server) - before == 1
    delayed.write("fails", shard_key="t")
    delayed.read().nack(delay=3000)
    before = calls_of(default_server)
    assert not is_empty(delayed)
    assert calls_of(default_server) - before == 1


@pytest.mark.runs_in("test-all")
def test_a_worker_waits_for_a_try_and_for_nothing_else(begin: Begin, delayed: Queue, default_server: Server) -> None:
    """It looks some ten times a second, and each look is one call: as many as if it paged through all are 40."""
    counts: list[int] = []

    def fails_once(delivery: DeliveryView) -> None:
        counts.append(delivery.count)
        if delivery.count == 1:
            raise Nack(0.5)

    delayed.write("fails", shard_key="t")
    before = calls_of(default_server)
    begin(fails_once, until="empty").join()
    assert counts == [1, 2]
    assert delayed.stats().delayed == MANY
    assert calls_of(default_server) - before < 100

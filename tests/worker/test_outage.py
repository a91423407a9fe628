"""Redis away, and back: the worker waits, says so once, and goes on."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.backoff import Exponential
from shardq.model import DeliveryView
from shardq.worker import jobs as settling
from shardq.worker import traffic, trouble
from tests.clients import ClientKind
from tests.servers import Replicated, Server, ServerKind
from tests.waiting import eventually
from tests.worker.running import RunningWorker

QUICK = {"timeout": 0.5, "wait_slice": 0.1}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "CALL_TIMEOUT", 0.3)
    monkeypatch.setattr(traffic, "CALL_TIMEOUT", 0.3)
    monkeypatch.setattr(traffic, "BLOCK", 0.3)
    monkeypatch.setattr(trouble, "PAUSE", Exponential(base=0.05, cap=0.2))


@pytest.fixture
def durable(kind: ServerKind | None, tmp_path: Path) -> Iterator[Server]:
    """A server whose data survives SIGKILL."""
    with Server(kind, directory=tmp_path) as server:
        yield server


class Numbers:
    """Which payloads were handled."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, delivery: DeliveryView) -> None:
        self.seen.append(delivery.payload)


def jobs_of(client: Client) -> Queue:
    return client.queue("jobs", streams=4, visibility_timeout=10.0)


def told(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    """Whether the worker said that it "cannot" or "can" do it: `what` is "read" or "settled", in order.

    A machine that stands still for longer than a call's timeout is an outage, too: there may be more of them than the
    test makes, but each begins and ends with one line.
    """
    lines = (re.search(f"(can|cannot) be {what}", record.getMessage()) for record in caplog.records)
    return [found[1] for found in lines if found]


def fails(caplog: pytest.LogCaptureFixture, what: str) -> bool:
    """Whether the last that was told is that it fails."""
    return told(caplog, what)[-1:] == ["cannot"]


def once_per_change(news: list[str]) -> bool:
    """Whether it began with an outage that ended, and nothing was told twice."""
    return news[:2] == ["cannot", "can"] and all(before != after for before, after in pairwise(news))


@pytest.mark.runs_in("test-all")
def test_a_crash_and_a_restart_with_its_data(
    client_kind: ClientKind, durable: Server, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = Numbers()
    with Client.from_url(durable.url) as client:
        jobs = jobs_of(client)
        jobs.write(0, shard_key="t")
        with RunningWorker(client_kind, durable.url, "jobs", numbers, client=QUICK) as begun:
            eventually(lambda: jobs.stats().acked == 1)
            jobs.write(1, shard_key="t", delay=1)
            durable.kill9()
            eventually(lambda: fails(caplog, "read"))
            assert begun.worker
            reads = begun.worker._engine.lanes[0]._traffic._reads
            eventually(lambda: reads.failures > 3, what="more tries than one")
            durable.start()
            eventually(lambda: jobs.stats().acked == 2)
            jobs.write(2, shard_key="t")
            eventually(lambda: jobs.stats().acked == 3)
            eventually(lambda: not fails(caplog, "read"))
            begun.stop()
            assert begun.failure is None
            assert once_per_change(told(caplog, "read"))
    assert numbers.seen == [0, 1, 2]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("client_kind", ["async", "sync"])
def test_a_server_that_hangs(client_kind: ClientKind, durable: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing answers: connections stay open until they time out."""
    numbers = Numbers()
    with Client.from_url(durable.url) as client:
        jobs = jobs_of(client)
        jobs.read_many(1)
        with RunningWorker(client_kind, durable.url, "jobs", numbers, client=QUICK) as begun:
            jobs.write(0, shard_key="t")
            eventually(lambda: jobs.stats().acked == 1)
            durable.pause()
            try:
                eventually(lambda: fails(caplog, "read"))
            finally:
                durable.resume()
            # A read that the server finds in its buffers when it goes on may take the message first, for nobody.
            jobs.write(1, shard_key="t")
            eventually(lambda: jobs.stats().acked == 2)
            eventually(lambda: not fails(caplog, "read"))
            begun.stop()
            assert once_per_change(told(caplog, "read"))
    assert numbers.seen == [0, 1]


def test_a_lease_that_nobody_can_extend_is_lost_at_its_end(client_kind: ClientKind, durable: Server) -> None:
    """The handler learns it by the local clock, while the server still hangs."""
    inside, told_lost = threading.Event(), threading.Event()

    def handle(delivery: DeliveryView) -> None:
        inside.set()
        eventually(lambda: delivery.lost)
        told_lost.set()

    with Client.from_url(durable.url) as client:
        jobs = client.queue("jobs", streams=4, visibility_timeout=0.6)
        jobs.write("a", shard_key="t")
        with RunningWorker(client_kind, durable.url, "jobs", handle, functions="plain", client=QUICK) as begun:
            assert inside.wait(30)
            durable.pause()
            try:
                assert told_lost.wait(30)
            finally:
                durable.resume()
            assert jobs.stats().acked == 0
            begun.stop()


@pytest.mark.runs_in("test-all")
def test_a_failover_and_a_flushed_script_cache(
    client_kind: ClientKind, kind: ServerKind | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The old primary turns read-only under the worker, then is a primary again; scripts are gone twice."""
    numbers = Numbers()
    with Replicated(kind) as pair, Client.from_url(pair.primary.url) as client:
        first, second = pair.primary, pair.replicas[0]
        jobs = jobs_of(client)
        jobs.write(0, shard_key="t")
        with RunningWorker(client_kind, first.url, "jobs", numbers, client=QUICK) as begun:
            eventually(lambda: jobs.stats().acked == 1)
            first.run("SCRIPT", "FLUSH")
            jobs.write(1, shard_key="t")
            eventually(lambda: jobs.stats().acked == 2)
            pair.wait_in_sync()  # a replica that lacks the ack would rightly deliver the message again
            pair.promote(second)
            eventually(lambda: fails(caplog, "read"))
            pair.promote(first)
            jobs.write(2, shard_key="t")
            eventually(lambda: jobs.stats().acked == 3)
            eventually(lambda: not fails(caplog, "read"))
            begun.stop()
            assert once_per_change(told(caplog, "read"))
    assert numbers.seen == [0, 1, 2]


@pytest.mark.parametrize("concurrency", [1, 64])
def test_acks_wait_for_redis(
    client_kind: ClientKind, concurrency: int, durable: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What was done while Redis was away is acked when it is back, not done again.

    Whose only handler is done tries to take the ack along with a read first.
    """
    inside, go = threading.Event(), threading.Event()
    numbers = Numbers()

    async def handle_async(delivery: DeliveryView) -> None:
        await asyncio.to_thread(handle, delivery)

    def handle(delivery: DeliveryView) -> None:
        inside.set()
        go.wait(40)
        numbers(delivery)

    with Client.from_url(durable.url) as client:
        jobs = client.queue("jobs", streams=4, visibility_timeout=30.0)
        jobs.write(0, shard_key="t")
        chosen = handle if client_kind == "sync" else handle_async
        with RunningWorker(client_kind, durable.url, "jobs", chosen, client=QUICK, concurrency=concurrency) as begun:
            assert inside.wait(30)
            durable.kill9()
            go.set()
            eventually(lambda: fails(caplog, "settled"))
            durable.start()
            eventually(lambda: jobs.stats().acked == 1)
            begun.stop()  # it says that it can settle again once it has the answer, which is later than the server
            assert once_per_change(told(caplog, "settled"))
    assert numbers.seen == [0]

"""Redis away, and back: the worker waits, says so once, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.backoff import Exponential
from shardq.delivery import DeliveryView
from shardq.worker import aio, threads, trouble
from tests.faces import Face
from tests.servers import Replicated, Server, ServerKind
from tests.waiting import eventually
from tests.worker.shift import Shift

QUICK = {"timeout": 0.5, "wait_slice": 0.1}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (aio, threads):
        monkeypatch.setattr(module, "CALL_PATIENCE", 0.3)
        monkeypatch.setattr(module, "BLOCK", 0.3)
    monkeypatch.setattr(trouble, "PAUSE", Exponential(base=0.05, cap=0.2))


@pytest.fixture
def durable(kind: ServerKind | None, tmp_path: Path) -> Iterator[Server]:
    """A server whose data survives SIGKILL."""
    with Server(kind, directory=tmp_path, options={"appendfsync": "always"}) as server:
        yield server


class Numbers:
    """Which payloads were handled."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, delivery: DeliveryView) -> None:
        self.seen.append(delivery.payload)


def jobs_of(client: Client) -> Queue:
    return client.queue("jobs", streams=4, visibility_timeout=2.0)


def told(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def test_a_crash_and_a_restart_with_its_data(face: Face, durable: Server, caplog: pytest.LogCaptureFixture) -> None:
    numbers = Numbers()
    with Client.from_url(durable.url) as client:
        jobs = jobs_of(client)
        jobs.write(0, shard_key="t")
        with Shift(face, durable.url, "jobs", numbers, client=QUICK) as shift:
            eventually(lambda: jobs.stats().acked == 1)
            jobs.write(1, shard_key="t", delay=1)
            durable.kill9()
            eventually(lambda: told(caplog, "reading fails") == 1)
            threading.Event().wait(1.0)  # more tries than one
            durable.start()
            eventually(lambda: jobs.stats().acked == 2)
            jobs.write(2, shard_key="t")
            eventually(lambda: jobs.stats().acked == 3)
            assert (told(caplog, "reading fails"), told(caplog, "reading works again")) == (1, 1)
            shift.stop()
            assert shift.failure is None
    assert numbers.seen == [0, 1, 2]


@pytest.mark.parametrize("face", ["async", "sync"])
def test_a_server_that_hangs(face: Face, durable: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing answers: connections stay open until they time out."""
    counts: list[int] = []

    def handle(delivery: DeliveryView) -> None:
        counts.append(delivery.count)

    with Client.from_url(durable.url) as client:
        jobs = jobs_of(client)
        jobs.read_many(1)
        with Shift(face, durable.url, "jobs", handle, client=QUICK):
            jobs.write("a", shard_key="t")
            eventually(lambda: jobs.stats().acked == 1)
            durable.pause()
            try:
                eventually(lambda: told(caplog, "reading fails") == 1, 20)
            finally:
                durable.resume()
            jobs.write("b", shard_key="t")
            eventually(lambda: jobs.stats().acked == 2)
            assert told(caplog, "reading works again") == 1
    # A read that the server found in its buffers when it went on may have taken the message first, for nobody.
    assert counts in ([1, 1], [1, 2])


def test_a_lease_that_nobody_can_extend_is_lost_at_its_end(durable: Server) -> None:
    """The handler learns it by the local clock, while the server still hangs."""
    inside, told_lost = threading.Event(), threading.Event()

    def handle(delivery: DeliveryView) -> None:
        inside.set()
        eventually(lambda: delivery.lost, 20)
        told_lost.set()

    with Client.from_url(durable.url) as client:
        jobs = client.queue("jobs", streams=4, visibility_timeout=0.6)
        jobs.write("a", shard_key="t")
        with Shift("sync", durable.url, "jobs", handle, client=QUICK) as shift:
            assert inside.wait(10)
            durable.pause()
            try:
                assert told_lost.wait(10)
            finally:
                durable.resume()
            assert jobs.stats().acked == 0
            shift.stop()


def test_a_failover_and_a_flushed_script_cache(
    face: Face, kind: ServerKind | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The old primary turns read-only under the worker, then is a primary again; scripts are gone twice."""
    numbers = Numbers()
    with Replicated(kind) as pair, Client.from_url(pair.primary.url) as client:
        first, second = pair.primary, pair.replicas[0]
        jobs = jobs_of(client)
        jobs.write(0, shard_key="t")
        with Shift(face, first.url, "jobs", numbers, client=QUICK) as shift:
            eventually(lambda: jobs.stats().acked == 1)
            first.run("SCRIPT", "FLUSH")
            jobs.write(1, shard_key="t")
            eventually(lambda: jobs.stats().acked == 2)
            pair.promote(second)
            eventually(lambda: told(caplog, "reading fails") == 1, 20)
            pair.promote(first)
            jobs.write(2, shard_key="t")
            eventually(lambda: jobs.stats().acked == 3, 20)
            assert told(caplog, "reading works again") == 1
            shift.stop()
    assert numbers.seen == [0, 1, 2]


def test_acks_wait_for_redis(durable: Server, caplog: pytest.LogCaptureFixture) -> None:
    """What was done while Redis was away is acked when it is back, not done again."""
    inside, go = threading.Event(), threading.Event()
    numbers = Numbers()

    def handle(delivery: DeliveryView) -> None:
        inside.set()
        go.wait(20)
        numbers(delivery)

    with Client.from_url(durable.url) as client:
        jobs = client.queue("jobs", streams=4, visibility_timeout=30.0)
        jobs.write(0, shard_key="t")
        with Shift("sync", durable.url, "jobs", handle, client=QUICK):
            assert inside.wait(10)
            durable.kill9()
            go.set()
            eventually(lambda: told(caplog, "settling fails") == 1)
            durable.start()
            eventually(lambda: jobs.stats().acked == 1)
            assert told(caplog, "settling works again") == 1
    assert numbers.seen == [0]

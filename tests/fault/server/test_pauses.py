"""A server that stops answering for a while, and what callers may believe of it."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardq import BackendTimeout, Client, Empty, OutcomeUnknown, Queue
from tests.fault.conftest import Open
from tests.proxy import Proxy, on_the_wire
from tests.servers import Server, ServerKind
from tests.waiting import answered, eventually

SOON = 15.0


@pytest.fixture
def queue(proxy: Proxy, open_client: Open, queue_name: str) -> Queue:
    """A queue that exists, through a proxy."""
    queue = open_client(proxy.url).queue(queue_name, streams=4)
    queue.write("-", shard_key="-")
    queue.read().ack()
    return queue


def test_no_server_means_a_timeout_and_nothing_changed(open_client: Open, tmp_path: Path) -> None:
    queue = open_client(f"unix://{tmp_path}/nobody", timeout=0.3).queue("jobs", create=True)
    for call in (lambda: queue.write("work", shard_key="tenant"), queue.read, queue.len):
        with pytest.raises(BackendTimeout, match="nothing was changed"):
            call()


def test_a_server_that_never_answers_leaves_the_outcome_of_a_write_unknown(
    proxy: Proxy, open_client: Open, queue_name: str
) -> None:
    """And says so after the timeout, not after the 5 s that one try may take at most."""
    queue = open_client(proxy.url, timeout=0.5).queue(queue_name, streams=4)
    answered(lambda: queue.read_many(1))  # it knows the queue from now on
    proxy.blackhole()
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="may have happened"):
        queue.write("work", shard_key="tenant")
    assert time.monotonic() - started < 4


def test_connections_that_break_before_the_request_leaves_mean_nothing_changed(
    server: Server, open_client: Open, kind: ServerKind | None
) -> None:
    with Server(kind) as own:
        queue = open_client(own.url).queue("jobs", create=True)
        queue.write("-", shard_key="-")
        own.kill9()
        started = time.monotonic()
        with pytest.raises((BackendTimeout, OutcomeUnknown)) as first:  # its old connection may have taken the request
            queue.write("work", shard_key="tenant", timeout=0.5)
        with pytest.raises(BackendTimeout):
            queue.write("work", shard_key="tenant", timeout=0.5)
        assert time.monotonic() - started < SOON, first


def test_requests_that_keep_being_lost_leave_the_outcome_unknown(queue: Queue, proxy: Proxy) -> None:
    """The client cannot tell a lost request from a lost reply, and does not pretend to."""
    for _ in range(200):
        proxy.cut_before_request(on_the_wire("write"))
    with pytest.raises(OutcomeUnknown):
        queue.write("work", shard_key="tenant", timeout=1)
    proxy.heal()
    assert queue.len() == 0


@pytest.mark.runs_in("test-all")
@pytest.mark.once
def test_a_server_that_is_stopped_for_three_seconds_doubles_nothing(
    kind: ServerKind | None, open_client: Open, seed: int
) -> None:
    rng = random.Random(seed)
    with Server(kind, port=0) as own:
        queue = open_client(own.url, timeout=30).queue("jobs", streams=8, visibility_timeout=60)
        ids: list[str] = []
        seen: list[str] = []
        stop = threading.Event()

        def write(part: int) -> None:
            while not stop.is_set():
                ids.append(queue.write(f"{part}", shard_key=f"tenant-{rng.randrange(9)}"))

        def read() -> None:
            while not (stop.is_set() and len(seen) >= len(ids)):
                for delivery in queue.read_many(20, block=0.2):
                    delivery.ack()
                    seen.append(delivery.message_id)

        with ThreadPoolExecutor(5) as pool:
            work = [pool.submit(write, part) for part in range(3)] + [pool.submit(read) for _ in range(2)]
            eventually(lambda: len(seen) > 50)
            own.pause()
            time.sleep(3)  # the fault itself, not a wait for something
            own.resume()
            count = len(seen)
            eventually(lambda: len(seen) > count + 50)
            stop.set()
            for each in work:
                each.result(30)
        assert sorted(seen) == sorted(ids)
        assert len(set(ids)) == len(ids)
        assert queue.stats().written == queue.stats().acked == len(ids)


def test_a_slow_network_delays_and_no_more(queue: Queue, proxy: Proxy) -> None:
    proxy.delay(0.1)
    message_id = queue.write("work", shard_key="tenant")
    delivery = queue.read()
    assert (delivery.message_id, delivery.count) == (message_id, 1)
    delivery.ack()
    with pytest.raises(Empty):
        queue.read(block=0.3)


@pytest.mark.everywhere
def test_a_broken_connection_is_not_used_again(queue: Queue, proxy: Proxy) -> None:
    before = proxy.accepted
    for _ in range(5):
        proxy.drop()
        queue.len()
    assert proxy.accepted - before == 5


def test_process_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load(
    kind: ServerKind | None, tmp_path: Path, seed: int
) -> None:
    """Durability "process": an append-only file survives kill -9."""
    rng = random.Random(seed)
    with (
        Server(kind, directory=tmp_path / "data") as own,
        Client.from_url(own.url, timeout=30, durability="process") as client,
    ):
        queue = client.queue("jobs", streams=8, visibility_timeout=60)
        written: list[str] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                written.append(queue.write("x" * 100, shard_key=f"tenant-{rng.randrange(9)}"))

        acked: list[str] = []

        def read() -> None:
            while not stop.is_set():
                for delivery in queue.read_many(5, block=0.1):
                    delivery.ack()
                    acked.append(delivery.message_id)

        with ThreadPoolExecutor(4) as pool:
            work = [pool.submit(write) for _ in range(3)] + [pool.submit(read)]
            for _ in range(5):
                count = len(written)
                eventually(lambda count=count: len(written) > count + rng.randint(50, 300))  # type: ignore[misc]
                own.restart()
            stop.set()
            for each in work:
                each.result(30)
        left = []
        while deliveries := queue.read_many(100):
            left += [delivery.message_id for delivery in deliveries]
        assert len(set(written)) == len(written)
        assert not set(acked) & set(left)
        assert sorted(acked + left) == sorted(written)

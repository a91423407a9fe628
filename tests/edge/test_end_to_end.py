"""Producer, gateway and Redis as they are run, with everything failing that may fail: each message is stored once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import Any

import pytest

from benchmarks.edge.link import Link, Quality
from shardq import Client, Queue
from shardq.edge import Edge, EdgeMessage
from tests.gateway.conftest import GatewayProcess, run_gateway
from tests.servers import Server
from tests.waiting import eventually

__all__ = ["run_gateway"]  # pytest finds the fixture here

pytestmark = [pytest.mark.timeout(180), pytest.mark.runs_in("test-all"), pytest.mark.once]
Run = Callable[..., GatewayProcess]


@contextmanager
def linked(target: str, quality: Quality, *, lose: bool = False) -> Iterator[tuple[str, Callable[[], object]]]:
    """A link to *target*, in a thread of its own: its address, and how to cut all connections, or to *lose* them."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def serve() -> None:
        async with Link(target, quality) as link:
            found.append(link)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        spoils = found[0].lose if lose else found[0].cut
        yield f"127.0.0.1:{found[0].port}", lambda: loop.call_soon_threadsafe(spoils)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@pytest.fixture
def queue(server: Server, queue_name: str) -> Iterator[Queue]:
    with Client.from_url(server.url, timeout=30) as client:
        queue = client.queue(queue_name, streams=4)
        queue.read_many(1)
        yield queue


@pytest.fixture
def server_url(server: Server) -> str:
    return server.url


def drained(queue: Queue) -> Counter[bytes]:
    """All payloads in the queue, which is empty then."""
    found: Counter[bytes] = Counter()
    while some := queue.read_many(1000):
        queue.ack_many(some)
        found.update(each.body for each in some)
    return found


@pytest.mark.runs_in("test-all")
def test_a_link_that_is_cut_fifty_times_loses_and_doubles_nothing(
    queue: Queue, run_gateway: Run, tmp_path: Path, rng: Random
) -> None:
    gateway = run_gateway("--insecure")
    link = linked(gateway.address, Quality(bandwidth=20e6, round_trip=0.01))
    with link as (address, cut), Edge(address, spool=tmp_path / "s.db") as edge:
        sent, cuts = 0, 0
        while cuts < 50:
            edge.send_many(
                EdgeMessage(b"%d" % number, f"t-{number % 7}", queue=queue.name) for number in range(sent, sent + 40)
            )
            sent += 40
            acked = edge.status().spool.acked
            eventually(lambda acked=acked: edge.status().spool.acked > acked, 60)  # type: ignore[misc]
            if rng.random() < 0.8:
                cut()
                cuts += 1
        edge.flush(60)
        assert edge.status().delivery.connections > 20
    found = drained(queue)
    assert found == Counter({b"%d" % number: 1 for number in range(sent)})


@pytest.mark.runs_in("test-all")
def test_a_gateway_that_is_killed_again_and_again_loses_and_doubles_nothing(
    queue: Queue, run_gateway: Run, tmp_path: Path, rng: Random
) -> None:
    listen = f"unix:{tmp_path}/gateway"
    gateway, sent = run_gateway("--insecure", listen=listen), 0
    with Edge(listen, spool=tmp_path / "s.db") as edge:
        for _ in range(4):
            edge.send_many(
                EdgeMessage(b"%d" % number, f"t-{number % 7}", queue=queue.name) for number in range(sent, sent + 500)
            )
            sent += 500
            acked = edge.status().spool.acked
            eventually(lambda acked=acked: edge.status().spool.acked > acked + rng.randrange(1, 300), 60)  # type: ignore[misc]
            gateway.signal(SIGKILL)
            gateway.end()
            (tmp_path / "gateway").unlink(missing_ok=True)
            gateway = run_gateway("--insecure", listen=listen)
        edge.flush(90)
    assert drained(queue) == Counter({b"%d" % number: 1 for number in range(sent)})


@pytest.mark.runs_in("test-all")
def test_while_redis_is_away_nothing_is_acked_and_after_that_each_is_stored_once(
    queue: Queue, run_gateway: Run, tmp_path: Path, server: Server
) -> None:
    gateway = run_gateway("--insecure", "--timeout", "1")
    with Edge(gateway.address, spool=tmp_path / "s.db") as edge:
        edge.send(b"first", queue=queue.name, shard_key="t")
        edge.flush(30)
        server.pause()
        try:
            edge.send_many(EdgeMessage(b"%d" % number, "t", queue=queue.name) for number in range(300))
            eventually(lambda: edge.status().delivery.again > 0, 60)
            assert edge.status().spool.acked == 1
        finally:
            server.resume()
        edge.flush(90)
        assert edge.status().spool.refused == 0
    assert drained(queue) == Counter({b"first": 1} | {b"%d" % number: 1 for number in range(300)})


@pytest.mark.runs_in("test-all")
def test_what_the_gateway_does_not_take_is_told_and_the_rest_is_stored(
    queue: Queue, run_gateway: Run, tmp_path: Path
) -> None:
    gateway = run_gateway("--insecure")
    with Edge(gateway.address, spool=tmp_path / "s.db") as edge:
        for number in range(20):
            edge.send(number, queue="nowhere" if number % 4 == 0 else queue.name, shard_key="t", headers={"n": "x"})
        eventually(lambda: waiting_and_held(edge) == (5, 5))
        (held,) = edge.status().held
        assert (held.reason, held.messages, edge.status().spool.refused) == ("NO_QUEUE", 5, 0)
    found = queue.read_many(100)
    assert sorted(each.payload for each in found) == [number for number in range(20) if number % 4]
    assert {tuple(each.headers.items()) for each in found} == {(("n", "x"),)}


@pytest.mark.runs_in("test-all")
def test_a_message_that_this_gateway_cannot_take_stops_nobody(queue: Queue, run_gateway: Run, tmp_path: Path) -> None:
    """It would end the call as soon as it came, and so it would with each call after that."""
    gateway = run_gateway("--insecure", "--max-message", "10000")
    with Edge(gateway.address, spool=tmp_path / "s.db", compress=False) as edge:
        for size in (10, 10_000, 10_001, 500_000, 20):
            edge.send(b"x" * size, queue=queue.name, shard_key="t")
        eventually(lambda: waiting_and_held(edge) == (2, 2))
        assert {each.reason for each in edge.status().held} == {"TOO_LARGE"}
        assert edge.status().delivery.connections == 1
    assert sorted(map(len, drained(queue))) == [10, 20, 10_000]


@pytest.mark.runs_in("test-all")
def test_a_dictionary_survives_both_ends(queue: Queue, run_gateway: Run, tmp_path: Path, rng: Random) -> None:
    """It is trained on the way, known to the gateway, and offered anew to the next one."""
    words = [b"%x" % rng.getrandbits(64) for _ in range(2000)]
    payloads = [b" ".join(rng.choices(words, k=250)) for _ in range(1200)]
    listen = f"unix:{tmp_path}/gateway"
    gateway = run_gateway("--insecure", listen=listen)
    with Edge(listen, spool=tmp_path / "s.db") as edge:
        edge.send_many(EdgeMessage(each, "t", queue=queue.name) for each in payloads)
        edge.flush(60)
        eventually(lambda: edge._delivering._compressor.using is not None, 30)
    gateway.signal(SIGKILL)
    gateway.end()
    (tmp_path / "gateway").unlink(missing_ok=True)
    run_gateway("--insecure", listen=listen)
    with Edge(listen, spool=tmp_path / "s.db") as edge:
        eventually(lambda: edge._delivering._compressor.using is not None, 30)
        edge.send_many(EdgeMessage(each + b"!", "t", queue=queue.name) for each in payloads[:200])
        edge.flush(60)
    assert drained(queue) == Counter(payloads) + Counter(each + b"!" for each in payloads[:200])


PROGRAM = """
import sys, threading
from shardq.edge import Edge

def send(number):
    for turn in range(10):
        with Edge(sys.argv[1], spool=f"{sys.argv[2]}/{number}") as edge:
            for _ in range(100):
                edge.send(b"payload", shard_key="tenant", queue=sys.argv[3])
            edge.flush(60)

threads = [threading.Thread(target=send, args=[number]) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_producers_that_come_and_go_in_one_process_leave_no_tracebacks(
    queue: Queue, run_gateway: Run, tmp_path: Path
) -> None:
    """gRPC has one thread for all loops of a process, which told those that were closed by then."""
    words = [run_gateway("--insecure").address, str(tmp_path), queue.name]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert queue.len() == 3 * 10 * 100


def waiting_and_held(edge: Edge) -> tuple[int, int]:
    """How many messages are neither stored nor refused, and how many of them the gateway does not take for now."""
    counts = edge.status().spool
    return counts.waiting, counts.held

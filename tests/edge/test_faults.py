"""Producer, gateway and Redis while machine, network or operator do their worst: each message is stored once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from benchmarks.edge.link import Quality
from shardq import Queue
from shardq.clock import SystemClock
from shardq.edge import Edge, EdgeMessage
from shardq.edge import connection as edge_connection
from tests.edge.test_end_to_end import Run, drained, linked, queue, server_url
from tests.gateway.conftest import run_gateway
from tests.servers import Server
from tests.waiting import eventually

__all__ = ["queue", "run_gateway", "server_url"]  # pytest finds the fixtures here

pytestmark = [pytest.mark.timeout(180), pytest.mark.runs_in("test-all"), pytest.mark.once]
DAY = 86_400.0

SENDS = """
import sys
from shardq.edge import Edge
edge = Edge(sys.argv[1], spool=sys.argv[2])
for number in range(int(sys.argv[5])):
    edge.send(f"{sys.argv[4]}.{number}".encode().ljust(2000, b"."), queue=sys.argv[3], shard_key="t")
    print(number, flush=True)
edge.flush(120)
"""


def sends(address: str, spool: Path, queue: Queue, name: str, count: int) -> subprocess.Popen[str]:
    """A producer that tells what it has put; its messages are *name*, a number, and padding."""
    words = (address, str(spool), queue.name, name, str(count))
    return subprocess.Popen([sys.executable, "-c", SENDS, *words], stdout=subprocess.PIPE, text=True)


def of(found: Counter[bytes]) -> Counter[str]:
    """The messages without their padding."""
    return Counter({payload.decode().rstrip("."): count for payload, count in found.items()})


@pytest.mark.runs_in("test-all")
def test_producers_and_gateways_that_are_killed_lose_and_double_nothing(
    queue: Queue, run_gateway: Run, tmp_path: Path, rng: Random
) -> None:
    """The producer is killed while it spools and sends, and the gateway while it stores, again and again."""
    listen, spool = f"unix:{tmp_path}/gateway", tmp_path / "s.db"
    gateway, told = run_gateway("--insecure", listen=listen), set[str]()
    for life in range(6):
        with sends(listen, spool, queue, f"life-{life}", 100_000) as producer:
            assert producer.stdout is not None
            for _ in range(rng.randrange(20, 300)):
                told.add(f"life-{life}.{producer.stdout.readline().strip()}")
            if rng.random() < 0.7:
                gateway.signal(signal.SIGKILL)
                gateway.end()
            producer.kill()
            lines = producer.stdout.read().split("\n")
            told.update(f"life-{life}.{line}" for line in lines[:-1])
        if gateway.process.poll() is not None or rng.random() < 0.5:
            gateway.close()
            (tmp_path / "gateway").unlink(missing_ok=True)
            gateway = run_gateway("--insecure", listen=listen)
    with Edge(listen, spool=spool) as edge:
        edge.flush(90)
    found = of(drained(queue))
    assert max(found.values()) == 1
    assert told <= found.keys()
    assert len(found) - len(told) <= 6, "a life that ends may have put one more than it could tell"


@pytest.mark.runs_in("test-all")
def test_a_producer_that_stops_reading_holds_up_nobody(queue: Queue, run_gateway: Run, tmp_path: Path) -> None:
    gateway = run_gateway("--insecure")
    with sends(gateway.address, tmp_path / "slow.db", queue, "slow", 3000) as slow:
        eventually(lambda: queue.len() > 300)
        slow.send_signal(signal.SIGSTOP)
        try:
            with Edge(gateway.address, spool=tmp_path / "other.db") as edge:
                edge.send_many(EdgeMessage(b"other.%d" % number, "t", queue=queue.name) for number in range(500))
                edge.flush(30)
        finally:
            slow.send_signal(signal.SIGCONT)
        assert slow.stdout is not None
        slow.stdout.read()
        assert slow.wait(120) == 0
    wanted = {f"slow.{number}" for number in range(3000)} | {f"other.{number}" for number in range(500)}
    assert of(drained(queue)) == Counter(wanted)


class Jumping(SystemClock):
    """A clock whose wall time is set, as an operator or NTP does, and whose machine is suspended for a while."""

    def __init__(self) -> None:
        self.set, self.suspended = 0.0, 0.0

    def wall(self) -> float:
        return super().wall() + self.set

    def monotonic(self) -> float:
        return super().monotonic() + self.suspended


@pytest.mark.runs_in("test-all")
def test_clocks_that_jump_change_nothing(queue: Queue, run_gateway: Run, tmp_path: Path, rng: Random) -> None:
    gateway, clock, sent = run_gateway("--insecure"), Jumping(), 0
    link = linked(gateway.address, Quality(bandwidth=5e6, round_trip=0.02))
    with link as (address, _), Edge(address, spool=tmp_path / "s.db", clock=clock, compress=False) as edge:
        ids = list[str]()
        for _ in range(12):
            clock.set = rng.choice([0.0, -DAY, DAY, -3600.0])
            ids += edge.send_many(
                EdgeMessage(b"%d" % number + bytes(1500), "t", queue=queue.name) for number in range(sent, sent + 50)
            )
            sent += 50
            acked = edge.status().spool.acked
            eventually(lambda acked=acked: edge.status().spool.acked > acked)  # type: ignore[misc]
            clock.suspended += rng.choice([0.0, 3600.0])
        edge.flush(60)
        assert len(set(ids)) == sent
    assert drained(queue) == Counter({b"%d" % number + bytes(1500): 1 for number in range(sent)})


@pytest.mark.runs_in("test-all")
def test_a_connection_that_both_ends_take_for_open_is_given_up(
    queue: Queue, run_gateway: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes through it any more, and nobody says so. Keepalives notice."""
    sooner = {"grpc.keepalive_time_ms": 6000, "grpc.keepalive_timeout_ms": 2000}
    options = tuple((name, sooner.get(name, value)) for name, value in edge_connection.OPTIONS)
    monkeypatch.setattr(edge_connection, "OPTIONS", options)
    gateway = run_gateway("--insecure")
    link = linked(gateway.address, Quality(round_trip=0.002), lose=True)
    with link as (address, lose), Edge(address, spool=tmp_path / "s.db") as edge:
        edge.send(b"first", queue=queue.name, shard_key="t")
        edge.flush(30)
        lose()
        edge.send(b"second", queue=queue.name, shard_key="t")
        edge.flush(60)
        assert edge.status().delivery.connections == 2
    assert drained(queue) == Counter([b"first", b"second"])


@pytest.mark.runs_in("test-all")
def test_redis_may_be_away_for_twenty_seconds(queue: Queue, run_gateway: Run, tmp_path: Path, server: Server) -> None:
    """Several producers go on spooling; the gateway waits; then each message is stored once."""
    gateway = run_gateway("--insecure", "--timeout", "2")
    names = ("a", "b", "c")
    producers = [sends(gateway.address, tmp_path / f"{name}.db", queue, name, 2000) for name in names]
    try:
        eventually(lambda: queue.len() > 200)
        server.pause()
        begun = time.monotonic()
        try:
            eventually(lambda: time.monotonic() - begun > 20, 30)
        finally:
            server.resume()
        for each in producers:
            assert each.stdout is not None
            each.stdout.read()
            assert each.wait(120) == 0
    finally:
        for each in producers:
            each.kill()
            each.communicate()
    wanted = {f"{name}.{number}" for name in names for number in range(2000)}
    assert of(drained(queue)) == Counter(wanted)

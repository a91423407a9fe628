"""An operator's slips, as they happen: what producers sent meanwhile is stored when they are mended."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.edge import Edge, EdgeMessage
from tests.edge.test_end_to_end import Run, drained, queue, server_url
from tests.gateway.conftest import GatewayProcess, TokenFile, run_gateway, tokens
from tests.gateway.producer import Producer
from tests.servers import Server
from tests.waiting import eventually

__all__ = ["queue", "run_gateway", "server_url", "tokens"]  # pytest finds the fixtures here

pytestmark = [pytest.mark.timeout(180), pytest.mark.runs_in("test-all"), pytest.mark.once]
COUNT = 5000
WANTED = Counter({b"%d" % number + bytes(300): 1 for number in range(COUNT)})


def send_all(edge: Edge, queue_name: str) -> None:
    """Send so many messages that some are on their way when others are held already."""
    for start in range(0, COUNT, 100):
        edge.send_many(
            EdgeMessage(b"%d" % number + bytes(300), f"site-7/{number % 5}", queue_name)
            for number in range(start, start + 100)
        )
    eventually(lambda: edge.status().spool.held > 1000, 60)


def mended(edge: Edge, gateway: GatewayProcess, tokens: TokenFile, before: str) -> None:
    """The file of tokens is as it was before; wait until all is stored, and none was refused."""
    tokens.path.write_text(before)
    gateway.signal(signal.SIGHUP)
    edge.flush(120)
    assert edge.status().spool.refused == 0


def test_a_queue_that_is_missing_for_three_seconds(
    server: Server, queue_name: str, run_gateway: Run, tmp_path: Path
) -> None:
    gateway = run_gateway("--insecure")
    with Client.from_url(server.url, timeout=30) as client:
        with Edge(gateway.address, spool=tmp_path / "s.db") as edge:
            send_all(edge, queue_name)
            first = edge.status().held[0].since
            eventually(lambda: client.clock.wall() - first > 3, 30)
            queue = client.queue(queue_name, streams=4)
            queue.declare()
            edge.flush(120)
            assert edge.status().spool.refused == 0
        assert drained(queue) == WANTED


def test_a_queue_that_is_mistyped_in_the_tokens(
    queue: Queue, run_gateway: Run, tokens: TokenFile, tmp_path: Path
) -> None:
    secret = tokens.add("site-7", queues=[queue.name], shard_keys=["site-7/*"])
    before = tokens.path.read_text()
    gateway = run_gateway("--tokens", str(tokens.path))
    with Edge(gateway.address, spool=tmp_path / "s.db", token=secret) as edge:
        edge.send(b"first", queue=queue.name, shard_key="site-7/a")
        edge.flush(60)
        tokens.path.write_text(before.replace("site-7/*", "sit-7/*"))
        gateway.signal(signal.SIGHUP)
        edge.send(b"second", queue=queue.name, shard_key="site-7/a")
        eventually(lambda: edge.status().spool.held or edge.status().spool.acked == 2, 60)
        send_all(edge, queue.name)
        mended(edge, gateway, tokens, before)
    assert drained(queue) == WANTED + Counter([b"first", b"second"])


def test_a_bound_that_is_lowered(queue: Queue, run_gateway: Run, tokens: TokenFile, tmp_path: Path) -> None:
    """The connection stays open: the gateway says what its bound is now, both times."""
    secret = tokens.add("site-7", queues=[queue.name], shard_keys=["site-7/*"])
    before = tokens.path.read_text()
    gateway = run_gateway("--tokens", str(tokens.path))
    with Edge(gateway.address, spool=tmp_path / "s.db", token=secret) as edge:
        edge.send(b"first", queue=queue.name, shard_key="site-7/a")
        edge.flush(60)
        tokens.path.write_text(before + "\nmax_message = 100\n")
        gateway.signal(signal.SIGHUP)
        send_all(edge, queue.name)
        mended(edge, gateway, tokens, before)
        assert edge.status().delivery.connections == 1
    assert drained(queue) == WANTED + Counter([b"first"])


async def test_open_connections_are_told_a_bound_that_changes(run_gateway: Run, tokens: TokenFile) -> None:
    secret = tokens.add("site-7")
    gateway = run_gateway("--tokens", str(tokens.path))
    async with Producer(gateway.address, secret) as producer:
        await producer.until(lambda: producer.news)
        tokens.path.write_text(tokens.path.read_text() + "\nmax_message = 100\ncapacity = 7\n")
        gateway.signal(signal.SIGHUP)
        await producer.until(lambda: (producer.news.max_message, producer.news.capacity) == (100, 7))

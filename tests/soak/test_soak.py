"""The big proof: processes of their own write and read, consumers are killed, the queue is resized, and every message
is acked exactly once.

4,000 messages, and 200,000 in `make soak`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.protocol.keys import QueueKeys
from tests.conftest import Record
from tests.selection import SOAK
from tests.servers import Server, ServerKind
from tests.soak.history import History, load, verdict
from tests.soak.load import Habits
from tests.soak.processes import Processes, drained
from tests.waiting import eventually

MESSAGES = 200_000 if SOAK else 4_000
PROCESSES = 8 if SOAK else 4  # that write, and as many that read
LIMIT = 120 + MESSAGES / 300  # seconds; a bound for a machine that is busy with other things, not a measurement

Act = Callable[[], object]


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(LIMIT * 2)
def test_every_message_is_acked_once_while_consumers_die_and_the_queue_is_resized(
    kind: ServerKind | None, tmp_path: Path, queue_name: str, seed: int, record_property: Record
) -> None:
    started = time.monotonic()
    with Server(kind) as server, Client.from_url(server.url) as client:
        queue = client.queue(queue_name, streams=16, streams_per_shard=3, max_deliveries=1000)
        with Processes(server.url, queue_name, tmp_path, seed) as processes:
            resizes = _run(processes, server, queue, random.Random(seed))
            processes.dismiss()
        found = load(tmp_path)
        record_property("note", _summary(found, processes.killed, resizes, time.monotonic() - started))
        assert verdict(found) == {}
        assert len(found.ids) == MESSAGES
        _check_books(queue, server)


def _run(processes: Processes, server: Server, queue: Queue, rng: random.Random) -> int:
    """Let them work until all is written and drained, and disturb them meanwhile; how often the queue was resized."""
    queue.len()
    queue.write("the first", shard_key="-")  # the queue exists before anybody resizes it
    queue.read().ack()
    resizes = 0
    for _ in range(PROCESSES):
        processes.produce(Habits(messages=MESSAGES // PROCESSES, pause=0.1))
        processes.consume(Habits())
    deadline = time.monotonic() + LIMIT

    def resize() -> None:
        nonlocal resizes
        queue.resize(rng.choice((1, 2, 5, 16, 33, 64)))
        resizes += 1

    def run() -> bool:
        act: Act = rng.choice((resize, processes.kill_one, processes.kill_one, lambda: server.run("SCRIPT", "FLUSH")))
        act()
        return processes.written() and drained(queue)

    eventually(run, deadline - time.monotonic(), every=0.25, what=f"drained; at last {queue.stats()}")
    return resizes


def _summary(found: History, killed: int, resizes: int, seconds: float) -> str:
    again = sum(1 for lease in found.leases if lease.count > 1)
    unknown = sum(1 for lease in found.leases if lease.settling is not None and lease.ok is None)
    refused = sum(1 for lease in found.leases if lease.ok is False)
    return (
        f"soak: {len(found.ids):,} messages, {len(found.leases):,} deliveries ({again:,} again), {killed} consumers "
        f"killed, {resizes} resizes, {refused:,} late acks refused, {unknown} outcomes unknown, {seconds:.0f} s"
    )


def _check_books(queue: Queue, server: Server) -> None:
    """The server's own counters agree, and nothing is left behind but sentinels."""
    stats = queue.stats()
    assert (stats.written, stats.acked) == (MESSAGES + 1, MESSAGES + 1)
    assert (stats.vanished, stats.expired, stats.dead, stats.dead_lettered) == (0, 0, 0, 0)
    queue.resize(4)
    eventually(lambda: not queue.read_many(1) and len(queue.stats().streams) == 4, what="higher streams dropped")
    keys = QueueKeys(queue.name)
    with server.client() as plain:
        assert [plain.xlen(keys.stream(number)) for number in range(4)] == [0] * 4
        sizes = {
            "leases": plain.zcard(keys.leases), "returned": plain.zcard(keys.returned),
            "delayed": plain.zcard(keys.delayed), "turns": plain.zcard(keys.turns), "bodies": plain.hlen(keys.bodies),
            "errors": plain.hlen(keys.errors), "moved": plain.hlen(keys.moved),
            "cancelled": plain.scard(keys.cancelled),
        }  # fmt: skip
        assert set(sizes.values()) == {1}, sizes
        assert {key.decode() for key in plain.keys("shardq:{*")} == {*keys.fixed, *map(keys.stream, range(4))}

"""The queue's slot moves between the nodes of a cluster while processes with both kinds of client write and read.

Five times, with a process of each kind, and in `make soak` twenty times, with two.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.protocol.keys import QueueKeys
from tests.clients import CLIENT_KINDS
from tests.conftest import Record
from tests.selection import SOAK
from tests.servers import Cluster
from tests.soak.history import load, verdict
from tests.soak.load import Habits
from tests.soak.processes import Processes, drained
from tests.waiting import eventually

MOVES = 20 if SOAK else 5
WORKING = CLIENT_KINDS * (2 if SOAK else 1)  # that write, and as many that read


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_stuck_while_the_slot_moves_again_and_again(
    cluster: Cluster, tmp_path: Path, queue_name: str, seed: int, record_property: Record
) -> None:
    started, rng = time.monotonic(), random.Random(seed)
    with Client.from_url(cluster.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=12, streams_per_shard=3, max_deliveries=1000)
        queue.write("the first", shard_key="-")
        queue.read().ack()
        with Processes(cluster.url, queue_name, tmp_path, seed) as processes:
            for client_kind in WORKING:
                processes.produce(Habits(client_kind=client_kind, messages=10**9, batch=20, pause=0.05))
                processes.consume(Habits(client_kind=client_kind, batch=20))
            keys = _move_about(cluster, queue, tmp_path, rng)
            processes.dismiss_producers()
            eventually(lambda: drained(queue), 60, every=0.1, what=f"drained; now {queue.stats()}")
            processes.dismiss()
        found = load(tmp_path)
        stats = queue.stats()
    record_property(
        "note",
        f"slot moves: {MOVES} moves of {keys} keys, {len(found.ids):,} messages, {len(found.leases):,} deliveries, "
        f"{time.monotonic() - started:.0f} s",
    )
    assert verdict(found) == {}
    assert stats.written == stats.acked == len(found.ids) + 1
    assert stats.vanished == 0


def _move_about(cluster: Cluster, queue: Queue, folder: Path, rng: random.Random) -> int:
    """Move the slot, a few keys at a time, while work goes on; how many keys it has."""
    slot, keys = cluster.slot_of(QueueKeys(queue.name).meta), 0
    for _ in range(MOVES):
        _wait_for_work(folder)
        to = rng.choice([node for node in range(len(cluster.nodes)) if node != cluster.owner(slot)])
        keys = cluster.move_slot(slot, to, batch=rng.choice((1, 5, 50)))
    _wait_for_work(folder)
    return keys


def _wait_for_work(folder: Path) -> None:
    """Until every process has got something done since now: none of them is stuck."""
    eventually(lambda: len(list(folder.glob("*.jsonl"))) == 2 * len(WORKING), 60, what="all processes have begun")
    sizes = {path: path.stat().st_size for path in folder.glob("*.jsonl")}
    eventually(
        lambda: all(path.stat().st_size > size for path, size in sizes.items()), 60, every=0.02,
        what="every process goes on",
    )  # fmt: skip

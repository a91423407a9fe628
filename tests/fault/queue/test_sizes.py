"""Whatever the settings and numbers are, no script fails, and so none leaves its work half done."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Queue
from shardq.protocol.keys import QueueKeys
from tests.conformance.census import take
from tests.fault.conftest import Open
from tests.servers import Server

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("client_kind", ["sync"], indirect=True),
]  # neither matters to scripts
WIDEST = 1_000_000
LIMIT = 120  # seconds for a write of tens of thousands of messages, on a machine that is busy with other things
RULES: tuple[dict[str, Any], ...] = (
    {"window": 0}, {"window": 1, "max_in_flight": 1}, {"max_in_flight": 0, "window": WIDEST}, {"max_in_flight": WIDEST},
    {"max_in_flight": 0, "window": 1}, {"window": 5}, {"window": 0},
)  # fmt: skip


def worked(queue: Queue, batch: int) -> int:
    """Read a batch, ack most of it and give the rest back; how many were acked."""
    some = queue.read_many(batch)
    kept = some[: len(some) // 10]
    assert queue.nack_many(kept) == []
    assert queue.ack_many(some[len(kept) :]) == []
    return len(some) - len(kept)


def remembered(raw: Any, keys: QueueKeys) -> set[bytes]:
    """The shard keys, parents and children of which something is known."""
    return {name for name in raw.hkeys(keys.meta) if name[:2] in (b"t:", b"c:")}


def drained(queue: Queue, server: Server) -> int:
    """Work until nothing is left, and nothing is counted any more; how many were acked."""
    done = 0
    while queue.len():
        done += worked(queue, 1000)
    keys = queue.state.keys
    with server.client() as raw:
        assert take(raw, keys).problems() == []
        kept = remembered(raw, keys)
        while kept:  # who was ahead of the others: each read that finds nothing forgets some of them
            assert queue.read_many(1) == []
            before, kept = kept, remembered(raw, keys)
            assert len(kept) < len(before)
    assert queue.stats().held_back == 0
    return done


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("streams", "per_shard", "keys", "each"),
    [pytest.param(4096, 2, 6000, 3, marks=pytest.mark.runs_in("test-all")), (4096, 48, 400, 10), (8, 2, 1, 40_000)],
)
def test_rules_may_change_while_anything_is_held(
    server: Server, open_client: Open, queue_name: str, streams: int, per_shard: int, keys: int, each: int
) -> None:
    """Up to 40,000 of one, hundreds or thousands of shard keys, on as many streams as there can be, in big batches."""
    queue = open_client(server.url, timeout=60).queue(
        queue_name, streams=streams, streams_per_shard=per_shard, window=1, max_deliveries=1000
    )
    queue.write_many([(number, f"tenant-{key}") for number in range(each) for key in range(keys)], timeout=LIMIT)
    done, heavy = 0, [f"tenant-{key}" for key in range(0, min(keys, 2000), 2)]
    for rules in RULES:
        queue.configure(**rules)
        done += worked(queue, 1000) + worked(queue, 1)
        queue.set_weights(dict.fromkeys(heavy, 100 if rules.get("window") == 5 else 1))
        done += worked(queue, 1000)
        stats = queue.stats()
        assert (stats.backlog, stats.in_flight) == (keys * each - done, 0)
    assert done + drained(queue, server) == keys * each


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("parents", "children"), [(300, 40), (1, 10_000)])
def test_parents_may_have_any_number_of_children(
    server: Server, open_client: Open, queue_name: str, parents: int, children: int
) -> None:
    """Of many parents with many children more accounts change in a call than Lua hands on at once."""
    queue = open_client(server.url, timeout=60).queue(
        queue_name, streams=1024, streams_per_shard=4, window=1, parents=1
    )
    keys = [f"acct-{parent}/{child}" for child in range(children) for parent in range(parents)]
    queue.write_many([(0, key) for key in keys], timeout=LIMIT)
    done = worked(queue, 1000)
    for window, cap in ((WIDEST, 0), (1, WIDEST), (WIDEST, WIDEST), (0, 0)):
        queue.configure(window=window, max_in_flight=cap)
        done += worked(queue, 1000) + worked(queue, 1) + worked(queue, 1000)
    assert done + drained(queue, server) == len(keys)

"""A checker that never failed proves nothing: scripts with one seeded bug each, and the checker finds every one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq import Client, Queue
from tests.conftest import Mutate
from tests.servers import Server, available
from tests.soak.history import load, verdict
from tests.soak.load import Habits, Log, consume, produce
from tests.soak.processes import drained
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")
HABITS = Habits(messages=120, batch=40, tenants=12, lease=0.2, delay=0.03, late=0.15, nack=0.1, extend=0.2)

# what the bug is: the script, the right line, the wrong one, and what of it must be seen (any of these)
MUTANTS: dict[str, tuple[str, str, str, set[str]]] = {
    "ack accepts any token that was ever given out": (
        "ack", "for i = 1, count do all_live = all_live and is_live(q, scores[i]) end", "",
        {"acked twice", "late ack accepted"},
    ),
    "ack of one message looks at the index, not at the deadline": (
        "ack", "if score and score % SPAN > now then", "if score then", {"late ack accepted"},
    ),
    "ack looks at the index, not at the deadline": (
        "modules/leases",
        "return ends > q.now or jump and ends < jump.to and ends + jump.by > q.now",
        "return ends > 0",
        {"late ack accepted"},
    ),
    "read does not take back ended leases": (
        "modules/due", "reap_leases(q, take_all_due(q, q.leases, ended, share, q.ended_until))", "{}", {"lost"},
    ),
    "read takes leases back before their end": (
        "read", "q.ended_until = update_jump(q, clock, jump or ''), end_of_leases(q, clock)",
        "q.ended_until = update_jump(q, clock, jump or ''), q.now + 150",
        {"two leases at one time"},
    ),
    "a lease that ended is forgotten": (
        "modules/due", "    arrange_messages(items)\n    enqueue_messages(q, items)\n", "", {"lost"},
    ),
    "read hands out without moving the cursor": (
        "modules/deliveries", "q.cursors[number] = last[1]", "q.cursors[number] = q.cursors[number]",
        {"two leases at one time", "acked twice"},
    ),
    "read hands out the newest first": (
        "modules/deliveries", "  for _, entry in ipairs(entries) do\n    local id, fields",
        "  for nth = #entries, 1, -1 do\n    local entry = entries[nth]\n    local id, fields",
        {"out of order"},
    ),
    "extend accepts any token": (
        "extend", "if not is_live(q, scores[i]) then", "scores[i] = scores[i] or q.now\n  if false then",
        {"two leases at one time"},
    ),
    "shrinking does not look whether the stream is empty": (
        "shrink", "if not is_empty(q, top, key) then break end", "", {"lost"},
    ),
    "write of one message keeps a stream at 20 entries": (
        "write", "redis.call('XADD', KEYS[first_stream + to], prefix .. n,",
        "redis.call('XADD', KEYS[first_stream + to], 'MAXLEN', 20, prefix .. n,",
        {"lost"},
    ),
    "write of a batch keeps a stream at 20 entries": (
        "write", "redis.call('XADD', keys[first_stream + to], prefix .. before + i,",
        "redis.call('XADD', keys[first_stream + to], 'MAXLEN', 20, prefix .. before + i,",
        {"lost"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    with Server(next(iter(available()), None)) as server:
        yield server


def rehearse(url: str, name: str, folder: Path, seed: int, patience: float) -> dict[str, list[str]]:
    """A short load in threads, one of which reads and dies; what the checker says when it is drained or time is up."""
    logs = folder / f"logs {patience}"
    logs.mkdir()
    with Client.from_url(url, timeout=20) as client:
        queue = client.queue(name, streams=6, streams_per_shard=2, max_deliveries=1000, window=0)
        stop = threading.Event()
        habits = [(produce, "p0"), (produce, "p1"), (consume, "c0"), (consume, "c1"), (consume, "c2")]
        threads = [
            threading.Thread(target=role, args=(queue, Log(logs, who), HABITS, stop), daemon=True)
            for role, who in habits
        ]
        queue.len()
        threads[0].start()
        eventually(lambda: queue.len() > 30)
        queue.read_many(8, visibility_timeout=0.4)  # and dies
        _oversleep(queue, Log(logs, "sleeper"))
        for thread in threads[1:]:
            thread.start()
        _disturb(queue, threads[:2], random.Random(seed), patience)
        stop.set()
        for thread in threads:
            thread.join()
    return verdict(load(logs))


def _oversleep(queue: Queue, log: Log) -> None:
    """Ack only when the leases have ended, while nobody else is there to take them."""
    deliveries = queue.read_many(3, visibility_timeout=0.1)
    for n, delivery in enumerate(deliveries):
        now = time.monotonic()
        log.add(
            "got", by="sleeper", n=n, id=delivery.message_id, value=delivery.payload, count=1, asked=now, at=now,
            until=now + delivery.remaining, ends=now + 0.1, batch=n,
        )  # fmt: skip
    eventually(lambda: all(delivery.remaining < -0.05 for delivery in deliveries))
    for n, delivery in enumerate(deliveries):
        log.add("settling", by="sleeper", n=n, verb="ack", at=time.monotonic())
        log.add("settled", by="sleeper", n=n, ok=not queue.ack_many([delivery]), at=time.monotonic())


def _disturb(queue: Queue, producers: list[threading.Thread], rng: random.Random, patience: float) -> None:
    def run() -> bool:
        queue.resize(rng.choice((1, 6, 12)))
        return not any(each.is_alive() for each in producers) and drained(queue)

    try:
        eventually(run, patience, every=0.05)
    except AssertionError:
        if patience > 5:
            raise


def test_the_right_scripts_pass(own_server: Server, tmp_path: Path, queue_name: str, seed: int) -> None:
    assert rehearse(own_server.url, queue_name, tmp_path, seed, patience=30) == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("script", "right", "wrong", "seen"), MUTANTS.values(), ids=MUTANTS)
def test_a_seeded_bug_is_found(
    script: str, right: str, wrong: str, seen: set[str], own_server: Server, tmp_path: Path, queue_name: str, seed: int,
    mutate: Mutate,
) -> None:  # fmt: skip
    mutate(script, right, wrong)
    for patience in (1.2, 2.4, 4.8):  # a busy machine may not get to it in the first
        if seen & rehearse(own_server.url, f"{queue_name}.{patience}", tmp_path, seed, patience).keys():
            return
    pytest.fail(f"none of {seen} was seen")

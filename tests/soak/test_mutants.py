"""A checker that never failed proves nothing: libraries with one seeded bug each, and the checker finds every one."""

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

# what the bug is: the module, the right text, the wrong one, and what of it must be seen (any of these)
MUTANTS: dict[str, tuple[str, str, str, set[str]]] = {
    "a settle accepts any token that was ever given out": (
        "settle", "live[at] = score and (none_ended or Clock.is_live(q, score))", "live[at] = true",
        {"acked twice", "late ack accepted"},
    ),
    "a lease lives until somebody takes it back": (
        "clock", "return ends > q.now", "return ends > 0", {"late ack accepted"},
    ),
    "a read does not take back ended leases": (
        "read", "local has_ended = till and q.lease_at <= till", "local has_ended = false", {"lost"},
    ),
    "a read takes leases back before their end": (
        "clock", "local till = q.now <= view.latest and q.now or view.latest - view.slack",
        "local till = q.now + 150",
        {"two leases at one time"},
    ),
    "a lease that ended is forgotten": (
        "leases", "Waiting.give_back(q, a, key, place, id, attempt .. flags, ceil(score))", "", {"lost"},
    ),
    "a message that is given back leaves its body behind": (
        "settle", "if p.place ~= 'd' then Messages.write_body(q, id, body, payload) end", "", {"lost"},
    ),
    "a read hands out without moving the cursor": (
        "streams", "q.cursors[number] = entries[size][1]", "q.cursors[number] = q.cursors[number]",
        {"two leases at one time", "acked twice"},
    ),
    "a read hands out the newest first": (
        "streams", "call('XRANGE', key, from, '+', 'COUNT', spelled[most] or spell(most))",
        "call('XREVRANGE', key, '+', from, 'COUNT', spell(most))",
        {"out of order"},
    ),
    "extend accepts any token": (
        "settling", "letters[at] = 'l'", "letters[at] = 'o'", {"two leases at one time"},
    ),
    "shrinking does not look whether the stream is empty": (
        "queue", "if call('XLEN', key) > 0 or tonumber(call('HGET', meta, key) or 0) > 0 then break end", "", {"lost"},
    ),
    "a write keeps a stream at 20 entries": (
        "streams", "call('XADD', stream, unpack(e, at + 1, at + 5))",
        "call('XADD', stream, 'MAXLEN', 20, unpack(e, at + 1, at + 5))",
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


def test_the_right_library_passes(own_server: Server, tmp_path: Path, queue_name: str, seed: int) -> None:
    assert rehearse(own_server.url, queue_name, tmp_path, seed, patience=30) == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("module", "right", "wrong", "seen"), MUTANTS.values(), ids=MUTANTS)
def test_a_seeded_bug_is_found(
    module: str, right: str, wrong: str, seen: set[str], own_server: Server, tmp_path: Path, queue_name: str, seed: int,
    mutate: Mutate,
) -> None:  # fmt: skip
    mutate(module, right, wrong)
    for patience in (1.2, 2.4, 4.8):  # a busy machine may not get to it in the first
        if seen & rehearse(own_server.url, f"{queue_name}.{patience}", tmp_path, seed, patience).keys():
            return
    pytest.fail(f"none of {seen} was seen")

"""outlook and verdict: what they say of a real queue, and at what cost."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from shardq import Client, ConfigError, Limits, Outlook, OutOfMemory, Queue, QueueMissing, Worker
from shardq.model.outlook import WAIT_REASONS
from shardq.ops.queue.steps import Sleep, Step
from shardq.testing import ManualClock
from tests.conformance.conftest import OpenQueue
from tests.conformance.inspect.test_beats import beat
from tests.conformance.read.test_fairness import flood
from tests.conformance.world import World
from tests.servers import Server
from tests.simulated import clocked_client
from tests.waiting import eventually

HOUR = 3600.0
MOST_CALLS = 8


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sentences tell the time of the process's zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue with a window."""
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.declare()
    return queue


def clock(at: float) -> str:
    """The time of a day, as sentences tell it."""
    return time.strftime("%H:%M", time.gmtime(at))


def tell(
    queue: Queue, *, slots: int = 8, busy: int = 8, done: int = 480, tenants: str = "", began: float = HOUR,
    has_ended: bool = False,
) -> None:  # fmt: skip
    """Let a worker tell of itself that has done that many jobs of 1 s in its last minute."""
    started = round(1000 * (queue.stats().time - began))
    tasks = f"mail.send={done},0,1000;" if done else ""
    row = f"{int(has_ended)}|{slots}|{busy}.00|{started}|7|1048576||0.1.0|host||||{done}|0|{tasks}|{tenants}|"
    beat(queue, "w", row)


def fall_silent(queue: Queue, world: World, seconds: float) -> float:
    """Make the worker's last beat so many seconds older, and return when that was."""
    heard, _, rest = world.raw.hget(queue.state.keys.workers, "w").partition(b"|")
    world.raw.hset(queue.state.keys.workers, "w", b"%d|%b" % (int(heard) - 1000 * seconds, rest))
    return int(heard) / 1000 - seconds


def block(queue: Queue, world: World) -> None:
    """Read until Redis has noted that a reader is blocked: on a slow machine a short block is over before it begins."""

    def is_noted() -> bool:
        assert queue.read_many(1, block=0.01) == []
        return int(world.raw.hget(queue.state.keys.meta, "line").split(b" ")[5]) > 0

    eventually(is_noted, what="that a reader is noted")


def check(queue: Queue) -> Outlook:
    """Return the outlook of a queue that nobody changes: its reasons add up, of all and of each tenant."""
    found, stats = queue.outlook(), queue.stats()
    assert sum(found.reasons.values()) == found.waits == stats.backlog + stats.delayed
    assert not found.tenants_are_some
    for each in found.tenants:
        tenant = queue.tenant(each.shard_key)
        assert sum(each.reasons.values()) == each.waits == tenant.backlog + tenant.delayed
        assert each.weight == tenant.weight
    return found


def reason_of(queue: Queue, message_id: str) -> str:
    """For what one message waits, as its status says."""
    status = queue.status(message_id)
    if status.state == "delayed":
        return "retry" if status.deliveries else "delay"
    if status.state not in ("waiting", "held_back"):
        return ""
    return {"paused": "pause", "max_in_flight": "limit", "rate": "limit"}.get(status.reason, "turn")


def do_something(queue: Queue, rng: random.Random, name: str, ids: dict[str, str]) -> None:
    """Something by chance, of one tenant; what is written is noted in *ids*."""
    match rng.choice(("write", "write", "write", "later", "read", "limit", "pause", "resume")):
        case "write":
            ids |= dict.fromkeys(queue.write_many([("x", name)] * rng.choice((1, 5))), name)
        case "later":
            ids[queue.write("x", shard_key=name, delay=HOUR)] = name
        case "read":
            for each in queue.read_many(rng.choice((1, 3))):
                if rng.random() < 0.5:
                    each.nack(delay=rng.choice((0, HOUR)))
        case "limit":
            queue.set_limits({name: rng.choice(("slow", Limits(max_in_flight=1), Limits()))})
        case "pause":
            queue.pause(name, seconds=rng.choice((None, HOUR)))
        case "resume":
            queue.resume(name)


@pytest.mark.everywhere
def test_each_message_counts_for_what_it_waits(open_queue: OpenQueue, seed: int) -> None:
    """Of random traffic: the reasons of all, and of each tenant, are those of its messages."""
    rng = random.Random(seed)
    queue = open_queue(streams=8, streams_per_shard=2, window=1)  # with others a status is an estimate
    queue.declare()
    queue.set_plan("slow", rate=0.001, burst=2)
    names = [f"tenant-{number}" for number in range(6)]
    ids: dict[str, str] = {}
    for _ in range(40):
        do_something(queue, rng, rng.choice(names), ids)
    queue.read_many(1)  # somebody reads
    found = check(queue)
    expected: Counter[tuple[str, str]] = Counter()
    for message_id, name in ids.items():
        if reason := reason_of(queue, message_id):
            expected[name, reason] += 1
    told = {(str(each.shard_key), reason): each.reasons[reason] for each in found.tenants for reason in WAIT_REASONS}
    assert {key: count for key, count in told.items() if count} == dict(expected)
    totals = {reason: sum(count for (_, each), count in expected.items() if each == reason) for reason in WAIT_REASONS}
    assert found.reasons == totals


def test_a_paused_queue_and_its_limits_hold_back_all(queue: Queue) -> None:
    flood(queue, "acme", 9)
    queue.read_many(2)
    queue.pause()
    assert check(queue).reasons == dict.fromkeys(WAIT_REASONS, 0) | {"pause": 7}
    queue.resume()
    queue.configure(total_in_flight=3)
    assert check(queue).reasons == dict.fromkeys(WAIT_REASONS, 0) | {"limit": 6, "turn": 1}


@pytest.mark.parametrize("settings", [{"window": 0}, {"parents": 1}, {"max_in_flight": 1}], ids=str)
def test_queues_of_each_kind_have_an_outlook(open_queue: OpenQueue, settings: dict[str, int]) -> None:
    queue = open_queue(streams=4, streams_per_shard=2, **settings)
    queue.write_many([("x", f"acme/{number}") for number in range(5)] * 3)
    held = queue.read_many(2)
    tell(queue)
    found = queue.outlook()
    assert sum(found.reasons.values()) == found.waits == 13
    assert found.drains == "drains"
    assert found.drain_seconds is not None
    assert len(found.tenants) == (0 if "window" in settings else 1 if "parents" in settings else 5)
    assert queue.verdict().kind == "flows"
    assert queue.ack_many(held) == []


def test_a_queue_that_is_not_there(client: Client) -> None:
    for look in (client.queue("missing").outlook, client.queue("missing").verdict):
        with pytest.raises(QueueMissing):
            look()
    soon = client.queue("soon", create=True)
    assert soon.outlook().drains == "empty"
    assert soon.verdict().kind == "idle"


@pytest.mark.everywhere
def test_all_workers_dead(queue: Queue, world: World) -> None:
    flood(queue, "acme", 420)
    tell(queue)
    assert queue.verdict().kind != "no_worker"
    assert fall_silent(queue, world, 29)
    assert queue.verdict().kind != "no_worker"
    died_at = fall_silent(queue, world, 5)
    verdict = queue.verdict()
    name = queue.name if len(queue.name) <= 40 else f"{queue.name[:39]}…"
    assert verdict.sentence == f"{name} has no worker since {clock(died_at)}: 420 messages wait."
    found = queue.outlook()
    assert (found.drains, found.reasons["worker"], found.workers) == ("stands", 420, 0)
    assert found.helps[0].what == "a worker"
    assert found.helps[0].text.startswith("8 slots would serve all in about 5")


@pytest.mark.everywhere
def test_who_reads_and_tells_nothing_is_a_reader(queue: Queue, world: World) -> None:
    """A reader that was blocked, and one that holds a lease; half a minute later nobody was."""
    flood(queue, "acme", 9)
    assert queue.verdict().kind == "no_worker"
    queue.read(visibility_timeout=30)
    assert queue.verdict().kind != "no_worker"
    world.elapse(queue, 20)
    assert queue.verdict().kind != "no_worker"
    world.elapse(queue, 11)
    assert queue.verdict().kind == "no_worker"


def note_blocked(queue: Queue, world: World, until: float) -> None:
    """Note until when a reader may be blocked."""
    words = world.raw.hget(queue.state.keys.meta, "line").split(b" ")
    words[5] = b"%d" % (1000 * until)
    world.raw.hset(queue.state.keys.meta, "line", b" ".join(words))


@pytest.mark.once
def test_a_reader_that_was_blocked_before_the_clock_was_set_back_is_none(queue: Queue, world: World) -> None:
    """Its time is to come, and who is blocked by now has written an earlier one."""
    queue.write_many([(number, "t") for number in range(3)])
    note_blocked(queue, world, queue.stats().time + HOUR)
    assert queue.verdict().kind == "no_worker"


@pytest.mark.once
def test_a_reader_that_died_right_after_it_was_blocked_was_not_there_any_longer(queue: Queue, world: World) -> None:
    """A slice of 5 s was noted twice as long; all that is certain is that it was there when that was noted."""
    queue.write_many([(number, "t") for number in range(3)])
    for ago, kind in ((20.0, "flows"), (30.5, "no_worker")):
        note_blocked(queue, world, queue.stats().time - ago + 10.0)
        assert queue.verdict().kind == kind


def test_a_reader_that_was_blocked_is_one(queue: Queue, world: World) -> None:
    block(queue, world)
    flood(queue, "acme", 9)
    assert queue.verdict().kind != "no_worker"


@pytest.mark.everywhere
def test_paused_and_forgotten(queue: Queue) -> None:
    flood(queue, "acme", 26)
    tell(queue)
    queue.pause(by="jonas", note="until the VAT fix is out")
    verdict = queue.verdict()
    assert verdict.sentence == f"26 wait because jonas paused it at {clock(verdict.time)}, without an end."
    assert verdict.second == "“until the VAT fix is out”, says the pause."
    assert queue.outlook().helps[0].what == "the end of the pause"


@pytest.mark.everywhere
def test_one_kind_fails(queue: Queue, real: None) -> None:
    for number in range(3):
        flood(queue, f"tenant-{number}", 10)
    tell(queue, done=0)
    deliveries = queue.read_many(30)
    for each in deliveries[:25]:
        each.nack(delay=60, error=TimeoutError("no answer"))
    verdict = queue.verdict()
    since = clock(queue.failures()[0].first)
    assert verdict.sentence == f"Messages fail since {since}: TimeoutError, 25 in 10 min, of 3 tenants."
    assert verdict.second == "25 messages wait for a next try."
    assert queue.outlook().reasons["retry"] == 25


@pytest.mark.everywhere
def test_one_tenant_floods(queue: Queue) -> None:
    flood(queue, "lumen-labs", 2000)
    for number in range(38):
        flood(queue, f"tenant-{number}", 1)
    tell(queue, tenants="lumen-labs=440,1000,90000;tenant-1=40,1000,500;")
    assert queue.verdict().sentence == (
        "lumen-labs holds 98 % of what waits. It drains in 5 min; the other 38 tenants wait 0.5 s."
    )
    found = queue.outlook()
    # 440 of the 480 jobs of the last minute were its own: the others go on to have theirs.
    assert found.tenants[0].served_in == pytest.approx(2000 / (440 / 60), rel=0.05)
    assert found.drain_seconds == pytest.approx(2037 / 8, rel=0.05)
    assert found.why == "if no more is written"
    helps = {each.what: (each.helps, each.text) for each in found.helps}
    assert helps["two more workers"] == (True, "84 s")
    assert helps["pausing lumen-labs"] == (False, "no use to the others")


def test_what_no_read_has_seen_counts_as_what_it_is(queue: Queue, world: World) -> None:
    """A message came due, and a lease ended."""
    queue.write("late", shard_key="acme", delay=50)
    queue.write("held", shard_key="other")
    queue.read(visibility_timeout=30)
    assert check(queue).reasons == dict.fromkeys(WAIT_REASONS, 0) | {"delay": 1}
    world.elapse(queue, 100)
    assert check(queue).reasons == dict.fromkeys(WAIT_REASONS, 0) | {"worker": 2}


@pytest.mark.once
def test_redis_is_full(server: Server, server_client: Client) -> None:
    queue = server_client.queue("jobs", create=True, window=1, streams=4)
    queue.write_many([("x" * 1000, "acme")] * 50)
    raw = server.client()
    # Far below what is used: within 0.1 s the server gives back some of the buffers of its clients.
    raw.config_set("maxmemory", raw.info("memory")["used_memory"] // 2)
    for _ in range(3):
        with pytest.raises(OutOfMemory):
            queue.write("x" * 1000, shard_key="acme", timeout=5)
    verdict = queue.verdict()
    assert verdict.kind == "redis_full"
    refused = int(verdict.facts["refused"] or 0)
    assert refused >= 3
    assert (
        f"writes fail since {clock(verdict.since or 0)}, {refused:,} so far; reads and acks go on." in verdict.sentence
    )
    assert verdict.sentence.startswith("Redis is full (")
    queue.read().ack()
    raw.config_set("maxmemory", 0)
    assert queue.verdict().kind != "redis_full"
    raw.close()


@pytest.mark.once
def test_few_calls_however_much_waits(server: Server) -> None:
    """5,000 tenants, of which one is large: it is found, and the calls are as many as for none."""
    client, driver = clocked_client(server, ManualClock())
    queue = client.queue("jobs", create=True, streams=16, streams_per_shard=2, window=1)
    queue.declare()
    steps: list[Step] = []
    driver.hook = lambda step, is_done: steps.append(step) if not is_done and not isinstance(step, Sleep) else None
    queue.verdict()
    few = len(steps)
    steps.clear()
    driver.hook = None
    queue.write_many([(at, f"tenant-{number}") for number in range(5000) for at in range(2)])
    queue.write_many([(at, "lumen-labs") for at in range(5000)])
    tell(queue)
    driver.hook = lambda step, is_done: steps.append(step) if not is_done and not isinstance(step, Sleep) else None
    found = queue.verdict()
    assert len(steps) <= max(few, MOST_CALLS) <= MOST_CALLS
    driver.hook = None
    found_outlook = queue.outlook()
    assert found_outlook.tenants_are_some
    first = found_outlook.tenants[0]
    assert (first.shard_key, first.waits) == ("lumen-labs", 5000)
    assert math.isclose(found_outlook.tenants_waiting, 5001, rel_tol=0.3)
    assert math.isclose(found_outlook.drain_seconds or 0, 15_000 / 8, rel_tol=0.05)
    assert found.kind == "flows"
    queue.delete(expected=None)
    driver._connection.close()


@pytest.mark.everywhere
def test_a_worker_that_ended_in_order_is_no_reader_that_was_blocked(queue: Queue, world: World) -> None:
    """The read in which it was blocked last is noted for some seconds more: that is not somebody who reads."""
    tell(queue)
    block(queue, world)
    tell(queue, has_ended=True)
    flood(queue, "acme", 9)
    assert queue.verdict().kind == "idle", "another may be starting"
    assert queue.outlook().drains == "stands"


def test_another_reader_is_seen_after_a_worker_ended_in_order(queue: Queue, world: World) -> None:
    tell(queue, has_ended=True)
    fall_silent(queue, world, 15)
    block(queue, world)
    flood(queue, "acme", 9)
    assert queue.verdict().kind == "flows"
    tell(queue, has_ended=True)
    queue.read(visibility_timeout=30)
    assert queue.verdict().kind == "flows", "it holds a lease"


@pytest.mark.once
def test_all_workers_end_in_order_and_messages_wait(queue: Queue) -> None:
    """A real worker, which is blocked when it is stopped."""
    worker = Worker(queue, lambda delivery: None)
    runs = threading.Thread(target=worker.run)
    runs.start()
    try:
        eventually(queue.workers, what="that the worker tells of itself")
    finally:
        worker.stop()
        runs.join()
    assert [each.state for each in queue.workers()] == ["ended"]
    flood(queue, "acme", 9)
    assert queue.verdict().kind == "idle"


def test_one_of_many_that_is_asked_for_is_among_the_tenants(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=8, streams_per_shard=2, window=1)
    queue.write_many([(b"x", f"tenant-{at}") for at in range(600) for _ in range(3)])
    queue.write(b"x", shard_key="few")
    queue.write(b"x", shard_key=b"\xff", delay=100)
    for key, reasons in (("few", {"worker": 1}), (b"\xff", {"delay": 1})):
        [row] = [each for each in queue.outlook(key).tenants if each.shard_key == key]
        assert {reason: count for reason, count in row.reasons.items() if count} == reasons
    assert "nobody" not in {each.shard_key for each in queue.outlook("nobody").tenants}
    with pytest.raises(ConfigError, match="shard key"):
        queue.outlook("")

"""What workers tell of themselves: while they work, whatever they do; and it costs no trip and fails nothing."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardq import Client, Queue, WorkerStatus
from shardq.backoff import Constant
from shardq.tasks import Tasks
from shardq.worker.beats import LOG_INTERVAL, PATIENCE, PERIOD, Beats, Pulse
from shardq.worker.state import Read
from shardq.worker.traffic import Traffic
from tests.clients import ClientKind
from tests.servers import Cluster, Server
from tests.waiting import eventually
from tests.worker.conftest import Begin
from tests.worker.forward import Forward
from tests.worker.running import Gate, RunningWorker
from tests.worker.test_ledger import job

STEP = PERIOD + PATIENCE + 0.1
"""After so many seconds a beat does not wait for a read any more."""
Says = Callable[[WorkerStatus], bool]


def told(queue: Queue, says: Says = lambda each: True, *, clock: Forward | None = None) -> WorkerStatus:
    """The only worker, when it says that. With a *clock* the next beat is due when one was heard."""
    heard: list[float] = [-1.0]

    def look() -> bool:
        for each in queue.workers():
            if says(each):
                return True
            if clock is not None and each.heard != heard[0]:
                heard[0] = each.heard
                clock.by += STEP
        return False

    eventually(look, what="the worker says so")
    (found,) = queue.workers()
    return found


def test_a_worker_tells_of_itself_and_of_its_end(begin: Begin, jobs: Queue, clock: Forward, client: Client) -> None:
    def work(delivery: Any) -> None:
        if delivery.payload == "bad":
            raise ValueError(delivery.payload)

    begun = begin(work, concurrency=4, backoff=Constant(3600))
    first = told(jobs)
    assert (first.state, first.slots, first.pid, first.queue, first.longest_since) == (
        "working",
        4,
        os.getpid(),
        "jobs",
        None,
    )
    jobs.write_many([*((number, f"t{number % 3}") for number in range(30)), ("bad", "t0")])
    found = told(jobs, lambda each: each.done + each.failed >= 31, clock=clock)
    assert (found.done, found.failed) == (30, 1)
    assert [(each.task, each.done, each.failed) for each in found.tasks] == [("", 30, 1)]
    assert {each.shard_key: each.done for each in found.tenants} == {"t0": 11, "t1": 10, "t2": 10}
    assert all(each.pickup_p99 is not None for each in found.tenants)
    assert found.id == first.id
    assert abs(found.started - first.started) < 60
    assert found.memory > 1 << 20
    begun.stop()
    (ended,) = client.workers()
    assert (ended.state, ended.id) == ("ended", first.id)


def test_a_worker_whose_slots_are_all_taken_is_heard_all_the_same(begin: Begin, jobs: Queue, clock: Forward) -> None:
    """Then it reads nothing: the beat goes with the look for cancels."""
    gate = Gate()
    message = jobs.write("long", shard_key="t")
    begin(gate, concurrency=1)
    eventually(lambda: gate.inside)
    found = told(jobs, lambda each: each.busy > 0.9, clock=clock)
    assert (found.longest_message, found.state) == (message, "working")
    assert found.longest_since is not None
    heard = found.heard
    told(jobs, lambda each: each.heard > heard and each.busy == 1.0, clock=clock)
    assert jobs.cancel(message)
    clock.by += STEP
    eventually(lambda: gate.told, what="the cancel is seen, though beats bring the looks")
    gate.open.set()


def test_tasks_are_told_by_their_names(client_kind: ClientKind, client: Client, url: str, clock: Forward) -> None:
    tasks = Tasks("jobs", max_deliveries=3)

    @tasks.task(name="mail.send")
    def send(number: int) -> None:
        if number == 3:
            raise ValueError

    jobs = client.queue(tasks)
    jobs.write_many([(["mail.send", {"number": number}], "t") for number in range(5)])
    jobs.write(["no.such", {}], shard_key="t")
    with RunningWorker(client_kind, url, tasks, tasks, client={"clock": clock}):
        found = told(jobs, lambda each: each.done + each.failed >= 5, clock=clock)
        assert [(each.task, each.done, each.failed) for each in found.tasks if each.task == "mail.send"] == [
            ("mail.send", 4, 1)
        ]


def check_that_each_queue_is_told(client_kind: ClientKind, url: str, client: Client, clock: Forward) -> None:
    gate = Gate()
    jobs, mails, logs = queues = [client.queue(name, create=True) for name in ("jobs", "mails", "logs")]
    for queue in queues:
        queue.declare()
    jobs.write_many([(number, f"t{number}") for number in range(8)])
    with RunningWorker(client_kind, url, ["jobs", "mails", "logs"], gate, concurrency=3, client={"clock": clock}):
        eventually(lambda: len(gate.inside) == 2)
        mails.write("takes the last slot", shard_key="t")
        eventually(lambda: len(gate.inside) == 3)
        heard = told(logs).heard
        for _ in range(2):
            clock.by += STEP + 1
            heard = told(logs, lambda each, heard=heard: each.heard > heard).heard  # type: ignore[misc]
        # In a cluster each queue's beat has a trip of its own.
        eventually(lambda: sum(each.busy for each in client.workers()) > 2)
        found = client.workers()
        assert {each.queue for each in found} == {"jobs", "mails", "logs"}
        assert len({each.id for each in found}) == 1
        gate.open.set()
    assert {each.state for each in client.workers()} == {"ended"}


def test_each_queue_of_a_worker_is_told_also_one_that_gets_no_slot(
    client_kind: ClientKind, url: str, client: Client, clock: Forward
) -> None:
    check_that_each_queue_is_told(client_kind, url, client, clock)


def test_in_a_cluster_each_queue_is_told_too(client_kind: ClientKind, cluster: Cluster, clock: Forward) -> None:
    with Client.from_url(cluster.url) as client:
        check_that_each_queue_is_told(client_kind, cluster.url, client, clock)


def test_two_workers_of_one_process_have_two_ids(url: str, client: Client, jobs: Queue) -> None:
    with (
        RunningWorker("sync", url, "jobs", lambda _: None),
        RunningWorker("async", url, "jobs", lambda _: None),
    ):
        eventually(lambda: len(jobs.workers()) == 2)
    with RunningWorker("sync", url, "jobs", lambda _: None):
        eventually(lambda: [each.state for each in jobs.workers()].count("working") == 1)
    assert len(jobs.workers()) == 2  # an id is free again when its worker has ended


def test_beats_make_no_trips(begin: Begin, jobs: Queue, clock: Forward, default_server: Server) -> None:
    """Each goes out behind another call, in its round trip: the server answers both in one go."""
    with default_server.client().monitor() as monitor:
        begun = begin(lambda _: None, concurrency=2)
        heard = told(jobs, clock=clock).heard
        told(jobs, lambda each: each.heard > heard, clock=clock)
        begun.stop()
        seen: list[tuple[str, str]] = []
        default_server.run("PING", "over")
        for each in monitor.listen():
            words = each["command"].split()
            if words[0] == "PING" and words[-1] == "over":
                break
            if words[0].startswith("FCALL"):
                seen.append((f"{each['client_address']}:{each['client_port']}", words[1].rsplit("_", 1)[-1]))
    beats = [at for at, (_, verb) in enumerate(seen) if verb == "beat"]
    assert len(beats) >= 3
    for at in beats[:-1]:  # the last one says the end
        who = seen[at][0]
        before = next(verb for address, verb in reversed(seen[:at]) if address == who)
        assert before in ("read", "settle"), seen[max(0, at - 5) : at + 1]


def test_a_beat_that_is_refused_fails_nothing_and_is_logged_seldom(
    begin: Begin, jobs: Queue, clock: Forward, default_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Semaphore(0)
    with caplog.at_level(logging.WARNING, logger="shardq"):
        default_server.run("DEL", jobs.state.keys.workers)
        default_server.run("SET", jobs.state.keys.workers, "of another type")
        begun = begin(lambda _: done.release(), concurrency=2)
        for number in range(15):
            clock.by += STEP
            jobs.write(number, shard_key="t")
            assert done.acquire(timeout=60)
        assert clock.by < 2 * LOG_INTERVAL + 1
        begun.stop()
    assert begun.failure is None
    assert jobs.stats().acked == 15
    logged = [each for each in caplog.messages if "was not stored" in each]
    assert 1 <= len(logged) <= 3


def two_pulses(client: Client, jobs: Queue) -> tuple[Pulse, Pulse]:
    """Those of a worker of two queues that does nothing. A job was done of the second one."""
    lane: Any = SimpleNamespace(state=SimpleNamespace(held=set()), lock=threading.Lock(), children=lambda: ())
    beats = Beats("w")
    first, second = (beats.pulse(lane, each, 2) for each in (client.queue("missing"), jobs))
    beats.id = "w"
    second.ledger.count([job()], "ack")
    return first, second


def test_what_no_read_took_along_is_told_with_the_next_trip(client: Client, jobs: Queue) -> None:
    first, second = two_pulses(client, jobs)
    ride = first.ride(100.0)
    assert ride is not None
    assert len(ride.calls) == 2
    assert second.ride(100.0) is None
    ride.left()
    again = second.part(100.0, 0.0)
    assert again is not None
    assert again.work["t"].done == 1
    assert first.ride(100.0) is not None


def test_the_beats_of_other_queues_wait_if_another_thread_took_the_first(client: Client, jobs: Queue) -> None:
    first, second = two_pulses(client, jobs)
    first.part = lambda *_, **__: None  # type: ignore[method-assign]
    assert first.ride(100.0) is None
    there = second.part(100.0, 0.0)
    assert there is not None
    assert there.work["t"].done == 1


def test_a_read_of_a_queue_that_is_missing_keeps_no_beat(client: Client, jobs: Queue) -> None:
    first, second = two_pulses(client, jobs)
    missing = client.queue("missing")
    host: Any = SimpleNamespace(
        crossing=None, pulse=first, lock=threading.Lock(), wake=lambda: None, stopped=threading.Event(),
        state=SimpleNamespace(redis_fails=lambda: None, acked=lambda acks: [*acks], read_failed=None),
    )  # fmt: skip
    host.stopped.set()
    plan: Any = SimpleNamespace(until=None, visibility_timeout=None)
    assert Traffic(host, missing, plan, cast("Any", None), lambda: None).read(Read(1)) is None
    assert missing.state.rider is None
    there = second.part(first.state.clock.monotonic(), 0.0)
    assert there is not None
    assert there.work["t"].done == 1


def test_minutes_are_told_by_who_works(begin: Begin, jobs: Queue, clock: Forward) -> None:
    jobs.write_many([(number, "t") for number in range(7)])
    begun = begin(lambda _: None, concurrency=2)
    eventually(jobs.history, what="a minute is told")
    latest = jobs.history()[-1]
    assert (latest.workers, latest.slots, latest.written) == (1, 2, None)
    told(jobs, lambda each: each.done == 7, clock=clock)
    begun.stop()


def test_a_queue_that_is_deleted_meanwhile_gets_no_keys(
    begin: Begin, jobs: Queue, clock: Forward, default_server: Server
) -> None:
    begun = begin(lambda _: None, concurrency=2)
    told(jobs)
    jobs.delete(expected=None)
    for _ in range(3):
        clock.by += STEP
        default_server.run("PING")
    begun.stop()
    # A worker whose client has settings makes the queue again; what it told before is gone in any case.
    assert all(each.state == "ended" or each.done == 0 for each in jobs.workers() or [])

"""What is measured of the jobs of a worker: how long they ran, how they ended, and how many run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardq import Nack, Queue, Reject, Worker
from shardq.backoff import Constant
from shardq.model import DeliveryView
from shardq.tasks import Tasks
from shardq.telemetry import Tally, begin_tally, end_tally
from shardq.telemetry.instruments import (
    BUSY,
    CONSUMED,
    DEAD_LETTERED,
    LABELS,
    LEASE_LOST,
    OLDEST_JOB,
    PROCESS,
    RETRIED,
    SLOTS,
    Instrument,
)
from shardq.telemetry.tally import OTHER
from shardq.worker.meter import MAX_BEGUN
from tests.servers import Server
from tests.telemetry.measuring import tally_on, values
from tests.waiting import eventually
from tests.worker import handlers
from tests.worker.conftest import LEASE, Begin
from tests.worker.forward import end_leases_earlier
from tests.worker.running import FunctionKind, Gate, RunningWorker, of_kind


@pytest.fixture(autouse=True)
def tally() -> Iterator[Tally]:
    with tally_on() as tally:
        yield tally


def ran(tally: Tally) -> dict[tuple[str, ...], int]:
    """How many jobs ran, by what they failed with."""
    return {key[1:]: sum(value.counts) for key, value in values(tally, PROCESS).items()}


def test_how_jobs_end(begin: Begin, jobs: Queue, functions: FunctionKind, tally: Tally) -> None:
    def handle(delivery: DeliveryView) -> None:
        if delivery.payload == "fails":
            raise ValueError
        if delivery.payload == "later" and delivery.count == 1:
            raise Nack(0)
        if delivery.payload == "never":
            raise Reject("never")

    jobs.write_many([(each, each) for each in ("fine", "fine", "fails", "later", "never")])
    running = begin(of_kind(functions, handle), backoff=Constant(0))
    eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (3, 2))
    running.stop()
    assert ran(tally) == {(): 3, ("ValueError",): 3, ("Nack",): 1, ("Reject",): 1}
    assert values(tally, RETRIED) == {("retry",): 3}
    assert values(tally, DEAD_LETTERED) == {("dead",): 1, ("rejected",): 1}
    assert values(tally, LEASE_LOST) == {}


def test_the_parent_measures_what_its_child_processes_run(
    jobs: Queue, url: str, tally: Tally, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").touch()
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(tmp_path / "log"))
    jobs.write_many([(each, each) for each in ("fine", "fail", "reject")])
    settings: dict[str, Any] = {"concurrency": 2, "backoff": Constant(0), "run_in": "processes"}
    with RunningWorker("sync", url, "jobs", handlers.varied, **settings) as running:
        eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (1, 2), 60)
        running.stop()
    assert ran(tally) == {(): 1, ("ValueError",): 3, ("Reject",): 1}
    assert values(tally, DEAD_LETTERED) == {("dead",): 1, ("rejected",): 1}


def test_a_job_that_takes_too_long(begin: Begin, jobs: Queue, functions: FunctionKind, tally: Tally) -> None:
    gate = Gate()
    jobs.write("x", shard_key="t")
    running = begin(of_kind(functions, gate), time_limit=0.01, backoff=Constant(600))
    eventually(lambda: jobs.stats().delayed == 1)
    eventually(lambda: ran(tally))
    running.stop()
    assert ran(tally) == {("TimeLimit",): 1}
    assert values(tally, RETRIED) == {("time limit",): 1}


def test_a_lease_that_ended_and_one_that_was_cancelled(
    begin: Begin, jobs: Queue, functions: FunctionKind, tally: Tally, default_server: Server
) -> None:
    gate = Gate()
    cancelled = jobs.write("x", shard_key="t")
    running = begin(of_kind(functions, gate))
    eventually(lambda: gate.inside)
    jobs.cancel(cancelled)
    eventually(lambda: values(tally, LEASE_LOST) == {("cancelled",): 1})
    jobs.write("y", shard_key="t")
    eventually(lambda: len(gate.inside) == 2)

    def delivered_again() -> bool:
        # To the worker itself, which has room. Nobody ends the last of its three deliveries: it would be a dead letter.
        if jobs.stats().redelivered == 0:
            end_leases_earlier(default_server.run, jobs, 2 * LEASE)  # again if it was just extended
        return jobs.stats().redelivered > 0

    eventually(delivered_again)
    gate.open.set()
    eventually(lambda: values(tally, LEASE_LOST).keys() == {("cancelled",), ("lease ended",)})
    running.stop()
    assert values(tally, RETRIED) == values(tally, DEAD_LETTERED) == {}


def test_how_many_jobs_run(begin: Begin, jobs: Queue, tally: Tally) -> None:
    gate = Gate()
    jobs.write_many([(number, "t") for number in range(2)])
    running = begin(gate, concurrency=3)
    eventually(lambda: len(gate.inside) == 2)
    assert (values(tally, SLOTS), values(tally, BUSY)) == ({(): 3}, {(): 2})
    assert 0 < values(tally, OLDEST_JOB)[()] < 60
    gate.open.set()
    eventually(lambda: values(tally, BUSY) == {(): 0})
    assert values(tally, OLDEST_JOB) == {(): 0}
    running.stop()
    assert values(tally, SLOTS) == {}


def test_a_worker_that_never_ran_has_no_slots(jobs: Queue, tally: Tally) -> None:
    kept = Worker(jobs, lambda _: None, concurrency=4)
    assert values(tally, SLOTS) == {}
    assert tally.sources == []
    assert kept.hangs == 0


def zeros(tally: Tally, instrument: Instrument) -> set[tuple[str, ...]]:
    """The reasons and tasks of which nothing was counted yet, and that are told all the same."""
    return {
        tuple(value for name, value in sample.labels if LABELS[name] != "queue")
        for sample in tally.samples()
        if sample.instrument is instrument and sample.value == 0
    }


def test_what_a_handler_may_count_begins_at_0(begin: Begin, jobs: Queue, tally: Tally) -> None:
    """Prometheus sees growth only from a sample on: the first failure would be none."""
    gate = Gate()
    running = begin(gate)
    eventually(lambda: values(tally, SLOTS))
    assert zeros(tally, CONSUMED) == {("read",)}
    assert zeros(tally, RETRIED) == {(reason,) for reason in ("retry", "time limit", "process died")}
    assert zeros(tally, DEAD_LETTERED) == {
        (reason,) for reason in ("dead", "rejected", "time limit", "process died", "cannot decode")
    }
    assert zeros(tally, LEASE_LOST) == {("lease ended",), ("cancelled",)}
    gate.open.set()
    running.stop()


def test_what_tasks_may_count_begins_at_0_also_for_who_comes_later(jobs: Queue, tally: Tally) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    for number in range(MAX_BEGUN + 5):
        tasks.task(name=f"task-{number:03}")(lambda: None)
    end_tally()
    meter = Worker(jobs, tasks)._engine.lanes[0].meter
    meter.start(tasks.task_names("jobs"))
    assert zeros(tally, RETRIED) == set()
    begin_tally()
    meter._queue.took("read", 1)
    named = {f"task-{number:03}" for number in range(MAX_BEGUN)} | {OTHER}
    assert zeros(tally, LEASE_LOST) == {(reason, name) for reason in ("lease ended", "cancelled") for name in named}
    assert {name for reason, name in zeros(tally, DEAD_LETTERED) if reason == "no such task"} == {OTHER}
    meter.close()

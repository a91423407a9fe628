"""A tally counts what it is told, loses nothing, and stays small whatever names come."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from shardq.telemetry import Tally, tally
from shardq.telemetry.instruments import (
    ADDRESS,
    BUSY,
    CONSUMED,
    ERROR,
    OLDEST_JOB,
    OPERATION,
    PORT,
    PROCESS,
    QUEUE,
    SENT,
    TASK,
)
from shardq.telemetry.sample import Distribution, Labels
from shardq.telemetry.tally import MAX_ERRORS, MAX_QUEUES, MAX_TASKS, OTHER, OTHER_ERROR, TallySource

JOBS: Labels = ((QUEUE, "jobs"),)
HOSTILE = ("a\nb", 'a"b\\', "\x00", "é" * 5000, "\udcff", "")


def values(counted: Tally) -> dict[Any, Any]:
    return {(sample.instrument.name, sample.labels): sample.value for sample in counted.samples()}


def ran(counted: Tally) -> int:
    """How many jobs a tally has."""
    found = [sample.value for sample in counted.samples() if sample.instrument is PROCESS]
    return sum(sum(value.counts) for value in found if isinstance(value, Distribution))


def test_counters_sums_gauges_and_histograms() -> None:
    counted = Tally()
    for instrument, given in ((SENT, (1, 2)), (BUSY, (3, -1)), (OLDEST_JOB, (9.0, 4.0)), (PROCESS, (0.005, 0.02, 2e3))):
        for value in given:
            counted.add(instrument, value, JOBS)
    counts = (1, 0, 1, *[0] * 12, 1)  # a value that is a bound belongs below it
    assert values(counted) == {
        (SENT.name, JOBS): 3,
        (BUSY.name, JOBS): 2,
        (OLDEST_JOB.name, JOBS): 4.0,
        (PROCESS.name, JOBS): Distribution(counts, pytest.approx(2000.025)),  # type: ignore[arg-type]
    }


def test_a_source_is_asked_when_somebody_looks() -> None:
    counted, running = Tally(), [1]
    counted.sources.append(TallySource((BUSY,), lambda: [(BUSY, running[0], JOBS)]))
    running[0] = 7
    assert values(counted) == {(BUSY.name, JOBS): 7}


def test_queues_of_one_name_on_two_servers_are_one_in_text() -> None:
    counted = Tally()
    for address in ("one", "two"):
        counted.add(SENT, 1, (*JOBS, (ADDRESS, address), (PORT, "6379")))
        counted.add(PROCESS, 1.0, (*JOBS, (ADDRESS, address)))
    found = values(counted)
    assert found[SENT.name, JOBS] == 2
    assert sum(found[PROCESS.name, JOBS].counts) == 2
    assert len(list(counted.observed(SENT))) == 2


def test_names_are_bounded_and_nothing_is_lost() -> None:
    counted = Tally()
    for task in range(150):
        for error in range(40) if task in (0, 149) else (0,):
            labels = (*JOBS, (OPERATION, "process"), (TASK, f"task {task}"), (ERROR, f"Error{error}"))
            counted.add(PROCESS, 1.0, labels)
    for number in range(MAX_QUEUES + 5):
        counted.add(CONSUMED, 1, ((QUEUE, f"queue {number}"),))
    named = [dict(sample.labels) for sample in counted.samples() if sample.instrument is PROCESS]
    assert len({each[TASK] for each in named}) == MAX_TASKS + 1
    assert len([each for each in named if each[TASK] == "task 0"]) == MAX_ERRORS + 1
    assert {each[ERROR] for each in named if each[TASK] == OTHER} >= {"Error0", OTHER_ERROR}
    assert ran(counted) == 228
    queues = {key: value for key, value in values(counted).items() if key[0] == CONSUMED.name}
    assert (len(queues), queues[CONSUMED.name, ((QUEUE, OTHER),)]) == (MAX_QUEUES, 6)  # one more name was `jobs`


def test_a_tally_has_so_many_series_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MAX_SERIES", 10)
    counted = Tally()
    for number in range(50):
        counted.add(SENT, 1, (*JOBS, (OPERATION, f"verb {number}")))
    assert len(counted.samples()) == 11
    assert values(counted)[SENT.name, ()] == 40


def test_hostile_names_are_names() -> None:
    counted = Tally()
    for name in HOSTILE:
        counted.add(SENT, 1, ((QUEUE, name), (TASK, name), (ERROR, name)))
    assert {dict(sample.labels)[QUEUE] for sample in counted.samples()} == {*HOSTILE}


def test_threads_lose_nothing() -> None:
    counted = Tally()

    def add() -> None:
        for number in range(2000):
            counted.add(SENT, 1, JOBS)
            counted.add(PROCESS, number, (*JOBS, (TASK, str(number % 120))))

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values(counted)[SENT.name, JOBS] == 16_000
    assert ran(counted) == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_begins_with_nothing() -> None:
    """What its parent has counted is told by that; and nobody is left who could give back a lock."""
    counted = Tally()
    series = counted.series(SENT, JOBS)
    series.add(5)
    with counted._lock:
        child = os.fork()
        if not child:
            series.add(1)
            counted.add(SENT, 1, JOBS)
            os._exit(int(values(counted) != {(SENT.name, JOBS): 2}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert values(counted) == {(SENT.name, JOBS): 5}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_asks_none_of_its_parents_sources() -> None:
    """They tell of jobs of the parent, and may wait for a lock that a thread of the parent had."""
    counted = Tally()
    counted.sources.append(TallySource((SENT,), lambda: [(SENT, 7, JOBS)]))
    child = os.fork()
    if not child:
        os._exit(int(values(counted) != {}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert values(counted) == {(SENT.name, JOBS): 7}

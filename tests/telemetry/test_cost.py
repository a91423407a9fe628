"""What metrics cost a job, counted in calls: time on a busy machine says nothing. Attributes are made once."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import shardq
from shardq import Queue, Worker
from shardq.telemetry import begin_tally
from shardq.testing import fake_client
from tests.telemetry.measuring import metrics_on, tally_on

FILES = {f"telemetry/{each}.py" for each in ("calls", "export", "tally", "measures")} | {"worker/meter.py"}
"""Where values are measured."""
LOOKS = {"measuring", "QueueMeter.labels"}
"""What is called there also if nobody wants them."""
JOBS = 200


@contextmanager
def calls_counted() -> Iterator[Counter[str]]:
    """Count the calls of functions in FILES, in all threads that begin meanwhile and in this one."""
    counts: Counter[str] = Counter()
    root = Path(shardq.__file__).parent.as_posix()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_qualname not in LOOKS:
            name = code.co_filename[len(root) + 1 :]
            if name in FILES:
                counts[code.co_qualname] += 1

    before, beside = sys.getprofile(), threading.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(before)
        threading.setprofile(beside)


@pytest.fixture
def queue() -> Queue:
    return fake_client().queue("jobs", create=True)


def work(queue: Queue, concurrency: int) -> None:
    queue.write_many([("x", f"tenant-{number % 50}") for number in range(JOBS)])
    Worker(queue, lambda _: None, concurrency=concurrency, until="empty", signals=False).run()


def write(queue: Queue, _: int) -> None:
    for number in range(JOBS):
        queue.write("x", shard_key=f"tenant-{number % 50}")


@pytest.mark.parametrize("concurrency", [1, 4, 64])
@pytest.mark.parametrize("wants", ["SDK", "tally", "both"])
def test_a_job_makes_three_calls_and_what_is_read_and_acked_together_makes_a_dozen(
    wants: str, concurrency: int, queue: Queue
) -> None:
    """More wherever values go to both."""
    with tally_on() if wants == "tally" else metrics_on():
        if wants == "both":
            begin_tally()
        work(queue, concurrency)  # the first time it makes its series
        with calls_counted() as counts:
            work(queue, concurrency)
    assert counts["Meter.ended"] == JOBS
    share = 1 if wants != "both" else 3
    acks = counts["Meter.settled"] + counts["QueueMeter.took"]
    most = (2 + share) * JOBS + (6 + 4 * share) * (counts["QueueMeter.consumed"] + acks) + 150
    assert sum(counts.values()) <= most, counts
    assert counts["Measured.__init__"] == counts["attributes_of"] == counts["Names.bounded"] == 0


@pytest.mark.parametrize("does", [write, work])
def test_without_anybody_who_wants_to_know_nothing_is_called(does: Callable[[Queue, int], None], queue: Queue) -> None:
    does(queue, 4)
    with calls_counted() as counts:
        does(queue, 4)
    assert sum(counts.values()) <= 40, counts  # a worker begins and ends what tells of it to who comes later


def test_a_write_makes_three_calls(queue: Queue) -> None:
    with metrics_on():
        write(queue, 1)
        with calls_counted() as counts:
            write(queue, 1)
    assert sum(counts.values()) <= 3 * JOBS + 150, counts
    assert counts["Measured.__init__"] == counts["attributes_of"] == 0

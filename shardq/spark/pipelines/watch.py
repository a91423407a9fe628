"""Shows at intervals what a pipeline's step is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import StreamingQueryProgress

from shardq.clock import Clock, SystemClock
from shardq.errors import ShardqError
from shardq.spark.pipelines.report import Sofar
from shardq.spark.privates import session_there


class Watch:
    """Shows every *every* seconds which step runs, for how long, how far it is, and how many Spark tasks are done.

    For streaming queries it shows the rows a second, too.

    `show` gets the line, on a thread of its own, and "" when the step is over.
    """

    def __init__(self, show: Callable[[str], None], every: float, clock: Clock | None = None) -> None:
        self._show, self._every, self._clock = show, every, clock or SystemClock()

    @contextmanager
    def __call__(self, step: str, sofar: Sofar) -> Iterator[None]:
        """Show *step* while the block runs; *sofar* returns how far it is, "" if that is not known."""
        over, begun = Event(), self._clock.monotonic()

        def look() -> None:
            while not over.wait(self._every):
                known = [found for text in (sofar, streams, tasks) if (found := _text_or_nothing(text))]
                if not over.is_set():
                    self._show(", ".join((f"{step}: {self._clock.monotonic() - begun:,.0f} s", *known)))

        thread = Thread(target=look, name=f"watching {step}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(1.0)  # it may be waiting for an answer: then it shows nothing more
            self._show("")


def tasks() -> str:
    """How many tasks of the jobs that run now are done; "" when none runs."""
    spark = session_there()
    if spark is None:
        return ""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = [each for each in map(tracker.getStageInfo, stages) if each is not None]
    done, count = sum(each.numCompletedTasks for each in found), sum(each.numTasks for each in found)
    return f"{done:,} of {count:,} tasks done" if count else ""


def streams() -> str:
    """The figures of the last micro-batch of each query that runs: rows a second, and what its sources measure."""
    spark = session_there()
    queries = [] if spark is None else [query.lastProgress for query in spark.streams.active]
    return "; ".join(map(rates, filter(None, queries)))


def rates(last: StreamingQueryProgress) -> str:
    """A batch without rows has nothing but the measures of the sources."""
    came, done = _finite(last.inputRowsPerSecond), _finite(last.processedRowsPerSecond)
    figures = [f"{came:,.0f} rows/s come", f"{done:,.0f} rows/s done"] if last.numInputRows else []
    found = [f"{name} {value}" for each in last.sources for name, value in sorted(each.metrics.items())]
    return ", ".join((*figures, *found))


def _finite(rate: float) -> float:
    """*rate*, 0 for the first batch, which Spark knows no interval of."""
    return rate if isfinite(rate) else 0.0


def _text_or_nothing(text: Sofar) -> str:
    """The result of *text*, "" if a server or the JVM does not answer: then the step itself raises an error."""
    try:
        return text()
    except (ShardqError, Py4JError, OSError):
        return ""

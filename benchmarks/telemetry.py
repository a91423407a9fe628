"""telemetry: what do spans and metrics cost a program? A single write, and a job of a worker, in CPU of the process.

All run in one process by turns of SLICE messages: without an SDK, with a tally in memory (as `shardq worker --metrics`
has it), with an SDK that records spans and exports them to nothing, and with one that has metrics, too. After each turn
a reader collects once, as one does each few seconds; what that takes is told apart.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, NamedTuple

from opentelemetry import trace
from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.report import Table, Target, us
from benchmarks.rounds import half, middle, numbers, take_turns
from benchmarks.settings import Place
from shardq import Client, Queue, Worker
from shardq.telemetry import begin_tally, end_tally

MODES: Final = ("nothing", "tally", "spans", "spans and metrics")
WHAT: Final = ("write", "job")
MOST: Final = 3.0
"""Microseconds that metrics may add to what spans take."""
SHARE: Final = 5.0
"""Percent that they may add."""
SLICE: Final = 1_000
"""Messages of a turn."""


class Cost(NamedTuple):
    """CPU of this process in µs for each message: of the calls, and of one collection at the end."""

    calls: float
    collection: float


class Providers:
    """An SDK's providers, which are put in and taken out: the API takes one for the life of a process."""

    def __init__(self) -> None:
        self.spans: Any = TracerProvider()
        self.spans.add_span_processor(BatchSpanProcessor(_Nowhere()))
        self.reader = InMemoryMetricReader()
        self.metrics = MeterProvider([self.reader])

    def put_in(self, mode: str) -> None:
        """Let the process have what *mode* has."""
        trace._TRACER_PROVIDER = self.spans if "spans" in mode else None
        _internal._METER_PROVIDER = self.metrics if "metrics" in mode else None
        (begin_tally if mode == "tally" else end_tally)()

    def collect(self, mode: str) -> None:
        """Collect what was measured."""
        if "metrics" in mode:
            self.reader.get_metrics_data()
        elif mode == "tally":
            begin_tally().samples()


class _Nowhere(SpanExporter):
    """Exports to nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Forget them."""
        return SpanExportResult.SUCCESS


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the library log errors alone: its warnings would be printed between the rows."""
    log = logging.getLogger("shardq")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def run(place: Place) -> list[Table]:
    chosen, providers = place.settings, Providers()
    turns = chosen.rounds * max(1, chosen.messages // SLICE)
    with _quiet(), Client.from_url(place.url) as client:
        queue = client.queue(f"telemetry-{uuid.uuid4().hex[:8]}", create=True)
        queue.declare()
        names = [f"{what}: {mode}" for what in WHAT for mode in MODES]
        runs = take_turns(names, turns, chosen.seed, lambda name: _measured(queue, providers, name))
    providers.put_in("nothing")
    rows: list[tuple[str, ...]] = []
    targets = []
    for what in WHAT:
        spans = runs[f"{what}: spans"]
        for mode in MODES:
            own = runs[f"{what}: {mode}"]
            more = [mine.calls - other.calls for mine, other in zip(own, spans, strict=True)]
            low, high = half(more)
            rows.append((
                f"{what}, {mode}", us(middle(own, "calls")), f"{median(more):+.1f} µs", f"{low:+.1f} to {high:+.1f}",
                us(middle(own, "collection")),
            ))  # fmt: skip
        both = runs[f"{what}: spans and metrics"]
        more = [mine.calls - other.calls for mine, other in zip(both, spans, strict=True)]
        share = [100 * added / other.calls for added, other in zip(more, spans, strict=True)]
        targets.append(Target(f"a {what} with metrics, more than with spans alone", median(more), MOST, True, " µs"))
        targets.append(Target("this is", median(share), SHARE, True, " %"))
    columns = ("a message", "CPU of the calls", "more than spans", "half of the turns", "of the collection")
    title = "What telemetry costs a program"
    return [
        Table("telemetry", title, place.described(f"{turns} interleaved turns"), columns, rows, targets, numbers(runs))
    ]


def _measured(queue: Queue, providers: Providers, name: str) -> Cost:
    what, _, mode = name.partition(": ")
    if what == "job":
        queue.write_many([("x", f"tenant-{number % 100}") for number in range(SLICE)])
    providers.put_in(mode)
    began = time.process_time()
    (_write if what == "write" else _work)(queue)
    calls = time.process_time() - began
    began = time.thread_time()  # the thread that exports spans is still at it
    providers.collect(mode)
    collection = time.thread_time() - began
    providers.put_in("nothing")
    queue.purge()
    return Cost(calls * 1e6 / SLICE, collection * 1e6 / SLICE)


def _write(queue: Queue) -> None:
    for number in range(SLICE):
        queue.write("x", shard_key=f"tenant-{number % 100}")


def _work(queue: Queue) -> None:
    Worker(queue, lambda _: None, concurrency=4, until="empty", signals=False).run()

"""The pictures of docs/telemetry.md: the spans of one message, and how long jobs took by the buckets of the metric.

`python -m benchmarks.traced` takes 15 s on an embedded server: a request writes a message, and a worker does it with a
span of its own inside; then 600 jobs of two tasks run, of a few ms and of up to 2 s.
`python -m benchmarks.traced docs/pictures` also draws `trace.svg` and `metric.svg`.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.plots import GREYS, INK, LIGHT, OURS, STYLE
from benchmarks.report import percentile
from shardq import Client, Worker
from shardq.embedded import EmbeddedServer
from shardq.tasks import Tasks
from shardq.telemetry.instruments import PROCESS

REQUEST: Final = "POST /orders"
SHOWN: Final = 4.0
"""Milliseconds before the request that the picture shows: the worker has waited in its read for longer."""
JOBS: Final = {"thumbnail": 500, "report": 100}
"""How many jobs of each task run."""
SPREAD: Final = {"thumbnail": (0.004, 0.030), "report": (0.1, 2.0)}
"""Between which seconds they take, on a scale of ratios."""
Took = Mapping[str, list[float]]
"""For how many seconds the jobs of each task ran, by their own clock."""


def spans_of_a_message(client: Client) -> Sequence[ReadableSpan]:
    """The spans of a request that writes one message, and of the worker that does it."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("app")
    tasks: Tasks[None] = Tasks("mails")

    @tasks.task(name="send")
    def send() -> None:
        with tracer.start_as_current_span("POST smtp.example"):
            time.sleep(0.012)

    queue = client.queue(tasks)
    queue.declare()
    worker = Worker(queue, tasks, concurrency=1, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    for number in range(20):  # the first calls load code
        queue.write(send.call(), shard_key=f"tenant-{number}")
    _until(lambda: queue.stats().acked == 20)
    exporter.clear()
    time.sleep(0.1)
    with tracer.start_as_current_span(REQUEST):
        time.sleep(0.004)
        queue.write(send.call(), shard_key="acme")
        time.sleep(0.002)
    _until(lambda: queue.stats().acked == 21)
    worker.stop()
    thread.join()
    [request] = [span for span in exporter.get_finished_spans() if span.name == REQUEST]
    spans = [span for span in exporter.get_finished_spans() if (span.end_time or 0) > (request.start_time or 0)]
    return sorted(spans, key=lambda span: (_trace(span) != _trace(request), span.start_time or 0))


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds() and time.monotonic() < until:
        time.sleep(0.02)


def _trace(span: ReadableSpan) -> int:
    return span.context.trace_id if span.context else 0


def jobs_by_buckets(client: Client) -> tuple[Took, Mapping[str, Any]]:
    """What the jobs of two tasks took, and the data points of the metric."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    tasks: Tasks[None] = Tasks("jobs")
    took: dict[str, list[float]] = {name: [] for name in JOBS}

    def work(name: str, seconds: float) -> None:
        began = time.perf_counter()
        time.sleep(seconds)
        took[name].append(time.perf_counter() - began)

    tasks.task(name="thumbnail")(lambda seconds: work("thumbnail", seconds))
    tasks.task(name="report")(lambda seconds: work("report", seconds))
    dice, queue = random.Random(7), client.queue(tasks)
    calls: list[tuple[Any, str]] = []
    for name, count in JOBS.items():
        low, high = SPREAD[name]
        lasts = [low * (high / low) ** dice.random() for _ in range(count)]
        calls += [([name, {"seconds": each}], f"tenant-{number % 20}") for number, each in enumerate(lasts)]
    dice.shuffle(calls)
    queue.write_many(calls)
    Worker(queue, tasks, concurrency=8, until="empty", signals=False).run()
    data: Any = reader.get_metrics_data()
    found = [metric for metric in data.resource_metrics[0].scope_metrics[0].metrics if metric.name == PROCESS.name]
    return took, {point.attributes["shardq.task"]: point for point in found[0].data.data_points}


def quantile(share: float, point: Any) -> float:
    """The value below which *share* of all lie, as Prometheus's `histogram_quantile` tells it from buckets."""
    wanted, below = share * point.count, 0
    bounds = (0.0, *point.explicit_bounds)
    for at, count in enumerate(point.bucket_counts):
        if below + count >= wanted and count:
            high = bounds[min(at + 1, len(bounds) - 1)]
            return float(bounds[at] + (high - bounds[at]) * (wanted - below) / count)
        below += count
    return float(bounds[-1])


def draw_trace(spans: Sequence[ReadableSpan], path: Path, context: str) -> None:
    """Draw each span as a bar at its time: those of one trace in one colour, a link as an arrow."""
    figure, axes, pyplot = _figure(0.42 * len(spans) + 1.2)
    start = spans[0].start_time or 0
    at = {span.context.span_id: row for row, span in enumerate(spans) if span.context}
    for row, span in enumerate(spans):
        began, lasted = ((span.start_time or 0) - start) / 1e6, ((span.end_time or 0) - (span.start_time or 0)) / 1e6
        shown = max(began, -SHOWN)
        colour = OURS if _trace(span) == _trace(spans[0]) else GREYS[0]
        axes.barh(row, began + lasted - shown, left=shown, height=0.5, color=colour)
        axes.annotate(f" {span.name}", (began + lasted, row), va="center", fontsize=8)
        for link in span.links:
            if link.context.span_id in at and span.name.startswith("process"):
                other = spans[at[link.context.span_id]]
                source = ((other.start_time or 0) - start) / 1e6, at[link.context.span_id] + 0.25
                style = {"arrowstyle": "->", "color": INK, "linestyle": ":", "linewidth": 1}
                axes.annotate("", (began, row - 0.25), source, arrowprops=style)
                axes.annotate("link ", source, (-3, -12), textcoords="offset points", ha="right", fontsize=8)
    axes.set(xlabel="ms since the request began", ylim=(len(spans) - 0.5, -0.6), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.18)
    _save(figure, pyplot, path, f"one message: the trace of the request, and that of the worker (grey). {context}")


def draw_metric(took: Took, points: Mapping[str, Any], path: Path, context: str) -> None:
    """Draw how many jobs each bucket has, with p99 by the buckets and by the jobs' own clock."""
    figure, axes, pyplot = _figure(3.2)
    bounds = PROCESS.buckets
    names = [f"{bound * 1000:g} ms" if bound < 1 else f"{bound:g} s" for bound in bounds]
    for (task, point), colour, shift in zip(sorted(points.items()), (LIGHT, OURS), (-0.2, 0.2), strict=True):
        found, truth = quantile(0.99, point), percentile(took[task], 0.99)
        label = f"{task}: p99 by the buckets {_shown(found)}, by its own clock {_shown(truth)}"
        axes.bar(
            [at + shift for at in range(len(bounds) + 1)], point.bucket_counts, width=0.4, color=colour, label=label
        )
    axes.set_xticks(range(len(bounds) + 1), [*names, "more"], rotation=40, ha="right", fontsize=8)
    axes.set(xlabel="messaging.process.duration, at most", ylabel="jobs")
    axes.legend(loc="upper right")
    _save(figure, pyplot, path, context)


def _shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _figure(height: float) -> tuple[Any, Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(figsize=(8, height))
    return figure, axes, pyplot


def _save(figure: Any, pyplot: Any, path: Path, context: str) -> None:
    figure.supxlabel(context, x=0.01, ha="left", fontsize=7, color=GREYS[0])
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main(words: Sequence[str] | None = None) -> None:
    """Run both, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traced", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where the pictures go (needs the extra `bench`)")
    folder = parser.parse_args(words).folder
    with EmbeddedServer(port=0) as server, Client.from_url(server.url) as client:
        context = f"{server.name}, Python {platform.python_version()}, {os.cpu_count()} cores; benchmarks/traced.py"
        spans = spans_of_a_message(client)
        took, points = jobs_by_buckets(client)
    for span in spans:
        lasted = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
        print(f"{span.name:20} {lasted:8.3f} ms, links: {len(span.links)}")
    for task, point in sorted(points.items()):
        found, truth = _shown(quantile(0.99, point)), _shown(percentile(took[task], 0.99))
        print(f"{task}: {point.count} jobs, p99 by the buckets {found}, by its own clock {truth}")
    if folder:
        draw_trace(spans, folder / "trace.svg", context)
        draw_metric(took, points, folder / "metric.svg", context)


if __name__ == "__main__":
    main()

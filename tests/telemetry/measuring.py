"""What tests see of telemetry: the values that an SDK collected, and those of a tally that a test begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from shardq.telemetry import Tally, begin_tally, measures
from shardq.telemetry.instruments import LABELS, Instrument


@contextmanager
def nothing_measured() -> Iterator[None]:
    """Begin with nothing measured in this process, and end so."""
    kept = measures._tally, measures.is_begun, measures._export, measures._passed_over
    measures._tally, measures.is_begun, measures._export, measures._passed_over = None, False, None, None
    measures.generation += 1
    try:
        yield
    finally:
        measures._tally, measures.is_begun, measures._export, measures._passed_over = kept
        measures.generation += 1


@contextmanager
def metrics_on() -> Iterator[InMemoryMetricReader]:
    """Set a meter provider. The SDK takes one for the life of a process, so it is taken out again by hand."""
    before, reader = _internal._METER_PROVIDER, InMemoryMetricReader()
    provider = MeterProvider([reader])
    with nothing_measured():
        _internal._METER_PROVIDER = provider
        try:
            yield reader
        finally:
            _internal._METER_PROVIDER = before
            provider.shutdown()


@contextmanager
def tally_on() -> Iterator[Tally]:
    """Begin a tally."""
    with nothing_measured():
        yield begin_tally()


def points(reader: InMemoryMetricReader, instrument: Instrument) -> list[tuple[dict[str, Any], Any]]:
    """Return the attributes and the data point of each series that an SDK has of *instrument*."""
    data = reader.get_metrics_data()
    return [
        (dict(point.attributes or {}), point)
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == instrument.name
        for point in metric.data.data_points
    ]


def values(tally: Tally, instrument: Instrument) -> dict[tuple[str, ...], Any]:
    """Return the values that a tally has of *instrument*, by the values of the labels besides the queue.

    What was not counted yet is left out.
    """
    return {
        tuple(value for name, value in sample.labels if LABELS[name] != "queue"): sample.value
        for sample in tally.samples()
        if sample.instrument is instrument and not (instrument.kind == "counter" and sample.value == 0)
    }

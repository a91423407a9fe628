"""The spans around handlers: one each, linked to the write, with the error's type and never its text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shardq import Queue
from shardq.backoff import Constant
from shardq.model import DeliveryView
from tests.waiting import eventually
from tests.worker.conftest import Begin


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """The SDK takes one provider for the life of a process, so it is taken out again by hand."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = provider
    yield exporter
    trace._TRACER_PROVIDER = before
    provider.shutdown()


def test_each_handler_runs_in_a_span(exporter: InMemorySpanExporter, begin: Begin, jobs: Queue) -> None:
    inside: list[int] = []

    def handle(delivery: DeliveryView) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        if delivery.payload == "bad":
            raise ValueError("secret")

    ids = [jobs.write("good", shard_key="t"), jobs.write("bad", shard_key="t")]
    begun = begin(handle, backoff=Constant(600))  # the one that failed is not tried again here
    eventually(lambda: jobs.stats().acked == 1 and jobs.stats().delayed == 1)
    begun.stop()
    spans = [span for span in exporter.get_finished_spans() if span.name == "process jobs"]
    assert {span.context.span_id for span in spans if span.context} == set(inside)
    by_id = {dict(span.attributes or {})["messaging.message.id"]: span for span in spans}
    assert set(by_id) == set(ids)
    assert [len(span.links) for span in spans] == [1, 1]
    assert dict(by_id[ids[1]].attributes or {})["error.type"] == "ValueError"
    assert "shardq.task" not in {name for span in spans for name in span.attributes or {}}
    assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())


def test_the_span_of_a_call_names_its_task(exporter: InMemorySpanExporter, begin: Begin, jobs: Queue) -> None:
    jobs.write(["report", {"first": "secret"}], shard_key="t")
    begun = begin(lambda _: None)
    eventually(lambda: jobs.stats().acked == 1)
    begun.stop()
    (span,) = [each for each in exporter.get_finished_spans() if each.name == "process jobs"]
    assert dict(span.attributes or {})["shardq.task"] == "report"

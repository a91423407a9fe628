"""Spans: their names, kinds, attributes and links; and what must never be in one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from shardq import ConfigError, LeaseLost, Queue
from shardq.drivers import sharing
from shardq.testing import ManualClock, fake_client
from tests.waiting import eventually

SECRET = "hunter2"


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """The SDK takes one provider for the life of a process, so it is taken out again by hand."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = provider
    yield exporter
    trace._TRACER_PROVIDER = before
    provider.shutdown()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(exporter: InMemorySpanExporter, clock: ManualClock) -> Queue:
    exporter.clear()
    return fake_client(clock=clock).queue("jobs", streams=4)


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Any:
    """All spans so far, by name."""

    def spans() -> dict[str, ReadableSpan]:
        return {span.name: span for span in exporter.get_finished_spans()}

    return spans


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_read_that_began_before_there_was_a_provider_has_no_span(
    queue: Queue, exporter: InMemorySpanExporter, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not looked at the clock, so its span would begin in 1970."""
    queue.write("first", shard_key="tenant")
    first = queue.read()
    queue.write("second", shard_key="tenant")
    exporter.clear()
    provider, run = trace._TRACER_PROVIDER, queue.client.run

    def set_late(op: Any) -> Any:
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        return run(op)

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(queue.client, "run", set_late)
    assert [each.payload for each in queue.read_many(2, ack=first)] == ["second"]
    assert first.answered
    assert spans() == {}


@pytest.mark.parametrize("named", [True, False])
def test_a_provider_that_the_environment_names_is_made(named: bool) -> None:
    """OpenTelemetry makes it when it is first asked for, which may be by shardq."""
    code = "import opentelemetry.trace, opentelemetry.context; from shardq.telemetry import enabled; print(enabled())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    if named:
        environment["OTEL_PYTHON_TRACER_PROVIDER"] = "sdk_tracer_provider"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == str(named)


def test_an_ack_that_a_read_takes_along_has_a_span_of_its_own(queue: Queue, spans: Any) -> None:
    ids = [queue.write(each, shard_key="tenant") for each in "abc"]
    first = queue.read()
    rest = queue.read_many(2, ack=first)
    assert attributes(spans()["ack jobs"])["messaging.message.id"] == ids[0]
    assert (spans()["ack jobs"].kind, len(spans()["ack jobs"].links)) == (SpanKind.CLIENT, 1)
    assert queue.read_many(1, ack=rest) == []
    assert attributes(spans()["ack jobs"])["messaging.batch.message_count"] == 2
    assert attributes(spans()["ack jobs"])["messaging.operation.type"] == "settle"


def test_a_message_leaves_a_span_at_each_step(queue: Queue, clock: ManualClock, spans: Any) -> None:
    message_id = queue.write(SECRET, shard_key="tenant")
    clock.advance(1.5)
    delivery = queue.read()
    with delivery.processing():
        delivery.extend(60)
    delivery.ack()
    assert list(spans()) == ["write jobs", "read jobs", "extend jobs", "process jobs", "ack jobs"]
    kinds = [span.kind for span in spans().values()]
    assert kinds == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT]
    types = [attributes(span).get("messaging.operation.type") for span in spans().values()]
    assert types == ["send", "receive", None, "process", "settle"]
    for name, span in spans().items():
        held = attributes(span)
        assert (held["messaging.system"], held["messaging.destination.name"]) == ("shardq", "jobs")
        assert held["messaging.operation.name"] == name.split()[0]
        assert held["messaging.message.id"] == message_id
        assert span.status.status_code is StatusCode.UNSET
    process = attributes(spans()["process jobs"])
    assert (process["queue.pickup_delay_ms"], process["shardq.shard_key"]) == (1500, "tenant")
    assert (process["shardq.delivery.count"], process["messaging.destination.partition.id"]) == (
        1,
        str(delivery.stream),
    )


def test_the_span_of_a_writers_message_ends_with_its_outcome(queue: Queue, spans: Any) -> None:
    tracer = trace.get_tracer("test")
    with tracer.start_as_current_span("request") as request, queue.client.writer() as writer:
        message_id = writer.write(queue, SECRET, shard_key="t").result(30)
        assert trace.get_current_span() is request
    span = spans()["write jobs"]
    assert attributes(span)["messaging.message.id"] == message_id
    assert (span.kind, span.parent and span.parent.span_id) == (SpanKind.PRODUCER, request.get_span_context().span_id)
    assert queue.read().headers["traceparent"].split("-")[2] == f"{span.get_span_context().span_id:016x}"


def test_the_span_of_a_writers_message_that_is_refused_has_the_errors_type(
    queue: Queue, spans: Any, exporter: InMemorySpanExporter
) -> None:
    full = queue.client.queue("full", max_len=1)
    with queue.client.writer() as writer:
        written = [writer.write(full, SECRET, shard_key="t") for _ in range(2)]
        assert [type(each.exception(30)).__name__ for each in written] == ["NoneType", "QueueFull"]
        errors = [attributes(span).get("error.type") for span in exporter.get_finished_spans()]
        assert sorted(errors, key=str) == [None, "QueueFull"]
        with pytest.raises(ConfigError):
            writer.write(queue, SECRET, shard_key="")
    assert attributes(spans()["write jobs"])["error.type"] == "ConfigError"
    assert spans()["write jobs"].status.description is None


def test_what_handles_a_message_is_linked_to_what_wrote_it(queue: Queue, spans: Any) -> None:
    queue.write(1, shard_key="t")
    delivery = queue.read()
    with delivery.processing():
        pass
    delivery.ack()
    origin = spans()["write jobs"].get_span_context()
    for name in ("read jobs", "process jobs", "ack jobs"):
        [link] = spans()[name].links
        assert (link.context.trace_id, link.context.span_id) == (origin.trace_id, origin.span_id)
        assert spans()[name].parent is None


def test_the_context_travels_in_the_headers_beside_the_users(queue: Queue, spans: Any) -> None:
    queue.write(1, shard_key="t", headers={"own": "kept"})
    headers = dict(queue.read().headers)
    context = spans()["write jobs"].get_span_context()
    assert headers.keys() == {"own", "traceparent"}
    assert headers["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")


def test_a_header_of_the_users_wins(queue: Queue) -> None:
    mine = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    queue.write(1, shard_key="t", headers={"traceparent": mine})
    assert queue.read().headers["traceparent"] == mine


def test_a_write_is_part_of_the_callers_trace(queue: Queue, spans: Any) -> None:
    with trace.get_tracer("test").start_as_current_span("request") as request:
        queue.write(1, shard_key="t")
    write = spans()["write jobs"]
    assert write.parent is not None
    assert write.parent.span_id == request.get_span_context().span_id


def test_a_batch_is_one_span_with_a_link_for_each_message(queue: Queue, spans: Any) -> None:
    queue.write_many([(number, "t") for number in range(3)])
    queue.write(3, shard_key="t")
    found = queue.read_many(9)
    queue.ack_many(found)
    for name, count in (("read jobs", 4), ("ack jobs", 4)):
        assert attributes(spans()[name])["messaging.batch.message_count"] == count
        assert len(spans()[name].links) == 4
        assert "messaging.message.id" not in attributes(spans()[name])


def test_an_empty_poll_leaves_no_span(queue: Queue, spans: Any) -> None:
    assert queue.read_many(9, block=3) == []
    assert spans() == {}


def test_a_failure_keeps_its_kind_and_not_its_text(queue: Queue, spans: Any) -> None:
    queue.write(1, shard_key="t")
    delivery = queue.read()

    def handle() -> None:
        with delivery.processing():
            raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        handle()
    delivery.ack()
    with pytest.raises(LeaseLost):
        delivery.nack()
    for name, kind in (("process jobs", "ValueError"), ("nack jobs", "LeaseLost")):
        span = spans()[name]
        assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, kind)
        assert (span.events, span.status.description) == ((), None)


def test_no_payload_and_no_token_is_in_any_span(queue: Queue, exporter: InMemorySpanExporter) -> None:
    queue.write(SECRET, shard_key="t", headers={"secret": SECRET}, dedup_key=SECRET)
    queue.write_many([({"password": SECRET}, "t")])
    first, second = queue.read_many(2)
    with first.processing():
        first.extend(5)
    first.nack(error=SECRET)
    second.reject(SECRET)
    again = queue.read()
    again.ack()
    text = " ".join(span.to_json() for span in exporter.get_finished_spans())
    assert "nack jobs" in text
    assert SECRET not in text
    for delivery in (first, second, again):
        assert delivery.received.token.split(":")[3] not in text


def test_a_shard_key_of_bytes_is_shown_in_hex(queue: Queue, spans: Any) -> None:
    queue.write(1, shard_key=b"\xff\x00")
    with queue.read().processing():
        pass
    assert attributes(spans()["process jobs"])["shardq.shard_key"] == "ff00"


def test_a_broken_context_is_no_link_and_no_trouble(queue: Queue, spans: Any) -> None:
    queue.write(1, shard_key="t", headers={"traceparent": "rubbish"})
    with queue.read().processing():
        pass
    assert list(spans()["process jobs"].links) == []


WITHOUT_SDK = """
import sys
import threading
from shardq.testing import fake_client

queue = fake_client().queue("jobs", create=True)
queue.write("x", shard_key="t")
delivery = queue.read()
with delivery.processing():
    delivery.ack()
assert dict(delivery.headers) == {}, delivery.headers
assert "opentelemetry.sdk.trace" not in sys.modules
"""


@pytest.mark.runs_in("test-all")
def test_without_an_sdk_nothing_is_emitted_and_headers_stay_empty() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    told = subprocess.run([sys.executable, "-c", WITHOUT_SDK], capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stderr


def test_callers_that_share_a_call_have_spans_of_their_own(
    queue: Queue, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "PATIENCE", 60.0)  # or one that waits makes a call beside the one that is held up
    queue.write("known", shard_key="tenant")
    driver = queue.client._driver
    perform, held, passed = driver.perform, threading.Event(), threading.Event()

    def held_up(step: Any) -> Any:
        held.set()
        assert passed.wait(60)
        return perform(step)

    driver.perform = held_up  # type: ignore[method-assign]
    tracer = trace.get_tracer("test")
    ids: dict[int, str] = {}

    def write(number: int) -> None:
        with tracer.start_as_current_span(f"request {number}"):
            ids[number] = queue.write(number, shard_key="tenant")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
        held.wait(60)
    eventually(lambda: len(queue.state.coalescers["write"]._waiting) == 3)
    passed.set()
    for thread in threads:
        thread.join(60)
    found = exporter.get_finished_spans()
    requests = {span.name: span.context for span in found}
    writes = {attributes(span)["messaging.message.id"]: span.parent for span in found if span.name == "write jobs"}
    for number, message_id in ids.items():
        assert writes[message_id] == requests[f"request {number}"]

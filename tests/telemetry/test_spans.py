"""Spans: their names, kinds, attributes and links; and what must never be in one."""

from __future__ import annotations

import os
import re
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

from shardq import Client, ConfigError, LeaseLost, Message, Queue, Spans, __version__
from shardq.drivers import sharing
from shardq.ops.write.outgoing import compose_all
from shardq.ops.write.write import write_many
from shardq.telemetry import guard
from shardq.telemetry import spans as span_module
from shardq.telemetry.options import hashed
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


def of(context: Any) -> tuple[int, int]:
    """What is the same of a context here and of one that came with a message."""
    return context.trace_id, context.span_id


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
    code = (
        "import opentelemetry.trace, opentelemetry.context; from shardq.telemetry.gate import tracing; print(tracing())"
    )
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
    scopes = {span.instrumentation_scope for span in spans().values()}
    assert [(each.name, each.version) for each in scopes] == [("shardq", __version__)]
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


def test_with_parent_the_work_is_a_child_of_the_write(exporter: InMemorySpanExporter, spans: Any) -> None:
    exporter.clear()
    queue = fake_client(spans=Spans(parent=True)).queue("jobs", create=True)
    tracer = trace.get_tracer("test")
    with tracer.start_as_current_span("request"):
        queue.write(1, shard_key="t")
    delivery = queue.read()
    with tracer.start_as_current_span("loop") as loop, delivery.processing():
        delivery.ack()
    write, process, ack = (spans()[f"{name} jobs"] for name in ("write", "process", "ack"))
    assert of(process.parent) == of(write.context)
    assert [of(link.context) for link in process.links] == [of(loop.get_span_context())]
    assert (of(ack.parent), of(ack.links[0].context)) == (of(process.context), of(write.context))
    queue.write(1, shard_key="t", headers={"traceparent": "rubbish"})
    with queue.read().processing():
        pass
    assert spans()["process jobs"].parent is None


def test_who_is_not_trusted_is_no_parent(exporter: InMemorySpanExporter, spans: Any) -> None:
    exporter.clear()
    queue = fake_client(spans=Spans(parent=True)).queue("jobs", create=True)
    theirs = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    queue.client.run(write_many(queue.state, [outgoing(queue, {"trace-link": theirs})]))
    with queue.read().processing():
        pass
    process = spans()["process jobs"]
    assert (process.parent, len(process.links)) == (None, 1)


def outgoing(queue: Queue, headers: dict[str, str]) -> Any:
    return compose_all(queue.state, queue.client.codecs, [Message(1, "t", headers=headers)], None)[0]


@pytest.mark.parametrize(("tenant", "shown"), [("plain", "acme"), ("hash", hashed("acme")), ("off", None)])
def test_spans_tell_of_the_tenant_what_the_program_wants(
    tenant: Any, shown: str | None, exporter: InMemorySpanExporter
) -> None:
    exporter.clear()
    queue = fake_client(spans=Spans(tenant=tenant)).queue("jobs", create=True)
    queue.write(1, shard_key="acme")
    delivery = queue.read()
    with delivery.processing():
        delivery.ack()
    found = [attributes(span).get("shardq.shard_key") for span in exporter.get_finished_spans()]
    assert found == [None, shown, shown, shown]
    assert ("acme" in "".join(span.to_json() for span in exporter.get_finished_spans())) is (tenant == "plain")


def test_a_hash_is_the_same_everywhere_and_short() -> None:
    assert hashed("acme") == hashed(b"acme") != hashed("acmf")
    assert all(re.fullmatch("[a-z2-7]{8}", hashed(key)) for key in ("", "é" * 9000, b"\xff", "\udcff"))


@pytest.mark.parametrize("wrong", [{"parent": 1}, {"tenant": "hidden"}, {"tenant": None}])
def test_bad_options_are_named(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Spans(**wrong)


def test_the_environment_says_what_a_client_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDQ_SPANS", "parent, tenant=hash")
    assert fake_client().spans == Spans(parent=True, tenant="hash")
    assert fake_client(spans=Spans()).spans == Spans()
    for wrong in ("child", "tenant=", "parent=1", "tenant=hash;parent"):
        monkeypatch.setenv("SHARDQ_SPANS", wrong)
        with pytest.raises(ConfigError, match="SHARDQ_SPANS"):
            fake_client()


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("redis://db.internal:6380/1", ("db.internal", 6380)),
        ("redis://user:secret@[::1]", ("::1", 6379)),
        ("unix:///run/redis.sock", ("/run/redis.sock", None)),
        ("redis+cluster://one:7000,two:7001", ("one", 7000)),
        ("redis+sentinel://one,two/mymaster", ("one", 26379)),
    ],
)
def test_the_server_is_that_of_the_url(url: str, server: tuple[str, int | None]) -> None:
    assert Client.from_url(url).server == server


def test_spans_name_the_server(queue: Queue, exporter: InMemorySpanExporter) -> None:
    queue.write(1, shard_key="t")
    queue.read().ack()
    found = {
        (attributes(span)["server.address"], attributes(span)["server.port"]) for span in exporter.get_finished_spans()
    }
    assert found == {("localhost", 6379)}


def test_the_span_of_a_batch_has_the_first_ids(queue: Queue, spans: Any) -> None:
    ids = queue.write_many([(number, "t") for number in range(120)])
    found = queue.read_many(200)
    queue.ack_many(found)
    read = tuple(each.message_id for each in found)
    for name, wanted in (("write", tuple(ids)), ("read", read), ("ack", read)):
        held = attributes(spans()[f"{name} jobs"])
        assert (held["shardq.message.ids"], held["messaging.batch.message_count"]) == (wanted[:100], 120)
        assert {type(each) for each in held["shardq.message.ids"]} == {str}, "OpenTelemetry 1.30 drops subclasses"


def test_a_publish_has_one_span_for_its_queues(queue: Queue, spans: Any) -> None:
    client = queue.client
    for name in ("mails", "audit"):
        client.queue(name, create=True)
        client.bind("orders.#", name)
    ids = client.publish("orders.eu", 1, shard_key="t")
    span = spans()["write orders.eu"]
    held = attributes(span)
    assert (span.kind, held["messaging.batch.message_count"]) == (SpanKind.PRODUCER, 2)
    assert sorted(held["shardq.message.ids"]) == sorted(ids.values())
    with client.queue("mails").read().processing():
        pass
    assert of(spans()["process mails"].links[0].context) == of(span.context)


@pytest.mark.parametrize("what", ["start_span", "on_end", "inject", "is_recording", "attach"])
def test_traces_that_fail_are_logged_once_and_fail_no_call(
    what: str, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    places = {"start_span": "opentelemetry.sdk.trace.Tracer.start_span", "on_end": "opentelemetry.sdk.trace.Span.end"}
    places["is_recording"] = "opentelemetry.sdk.trace.Span.is_recording"
    if what in ("inject", "attach"):
        monkeypatch.setattr(span_module.api(), what, fail)
    else:
        monkeypatch.setattr(places[what], fail)
    monkeypatch.setattr(guard, "_has_failed", False)
    for number in range(3):
        queue.write(number, shard_key="t")
    found = queue.read_many(3)
    with found[0].processing():
        queue.ack_many(found)
    assert queue.stats().acked == 3
    assert sum("traces fail" in each.message for each in caplog.records) == 1

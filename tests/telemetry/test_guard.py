"""Nothing that telemetry does fails a call or ends a worker: an SDK in which each method raises in turn."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.metrics import _internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from shardq import AsyncWorker, QueueFull, Spans, Worker
from shardq.backoff import Constant
from shardq.model import DeliveryView
from shardq.telemetry import export, guard, measures
from shardq.telemetry import spans as span_module
from shardq.telemetry.instruments import DURATION
from shardq.testing import ManualClock, fake_async_client, fake_client
from tests.telemetry.measuring import nothing_measured, tally_on, values

METHODS = ("is_recording", "set_attribute", "set_status", "end", "get_span_context", "start_span", "get_tracer")
PARTS = ("attach", "detach", "inject", "extract", "set_span_in_context", "get_current_span")
MAKES = (
    "get_meter",
    "create_histogram",
    *(f"create_observable_{each}" for each in ("counter", "gauge", "up_down_counter")),
)
HOSTILE = ("tracer provider", "tracer", "span", "meter provider", "meter", "histogram", "context")
"""What of a program's SDK may be an object that raises whatever is done with it."""


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("no room")


class Hostile:
    """Raises whatever is done with it."""

    __getattribute__ = __setattr__ = __call__ = __bool__ = __len__ = __eq__ = __hash__ = __iter__ = fail
    __repr__ = __str__ = __enter__ = __exit__ = __getitem__ = __contains__ = fail


def provider_of(what: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A provider of spans in which *what* raises."""
    if what == "tracer provider":
        return Hostile()
    provider = TracerProvider()
    if what == "get_tracer":
        monkeypatch.setattr(provider, what, fail)
    elif what == "tracer":
        monkeypatch.setattr(provider, "get_tracer", lambda *_, **__: Hostile())
    elif what == "span":
        monkeypatch.setattr("opentelemetry.sdk.trace.Tracer.start_span", lambda *_, **__: Hostile())
    elif what == "start_span":
        monkeypatch.setattr("opentelemetry.sdk.trace.Tracer.start_span", fail)
    elif what in METHODS:
        monkeypatch.setattr(f"opentelemetry.sdk.trace.Span.{what}", fail)
    return provider


def meters_of(what: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A provider of meters in which *what* raises."""
    if what == "meter provider":
        return Hostile()
    provider = MeterProvider()
    if what == "get_meter":
        monkeypatch.setattr(provider, what, fail)
    elif what == "meter":
        monkeypatch.setattr(provider, "get_meter", lambda *_, **__: Hostile())
    elif what == "histogram":
        monkeypatch.setattr("opentelemetry.sdk.metrics.Meter.create_histogram", lambda *_, **__: Hostile())
    elif what == "record":
        monkeypatch.setattr("opentelemetry.sdk.metrics.Histogram.record", fail)
    elif what in MAKES:
        monkeypatch.setattr(f"opentelemetry.sdk.metrics.Meter.{what}", fail)
    return provider


@pytest.fixture(params=[*METHODS, *PARTS, *MAKES, *HOSTILE, "record", "get_current"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Providers in which one thing raises."""
    what = str(request.param)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider_of(what, monkeypatch))
    monkeypatch.setattr(_internal, "_METER_PROVIDER", meters_of(what, monkeypatch))
    monkeypatch.setattr(guard, "_has_failed", False)
    monkeypatch.setattr(measures, "_failing", None)
    monkeypatch.setattr(export, "MAX_WAITING", 3)
    monkeypatch.setattr(export, "VALUES_AT_ONCE", 1)
    if what == "get_current":
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        monkeypatch.setattr(context, "get_current", fail)
    elif what == "context":
        monkeypatch.setattr(context, "get_current", Hostile)
    elif what in PARTS:
        monkeypatch.setattr(span_module.api(), what, fail)
    with nothing_measured():
        yield what


def test_calls_and_workers_go_on(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    copy_context().run(_all_goes_on)  # where `detach` fails, a span stays the current one
    check(caplog)


@pytest.mark.runs_in("test-all")
def test_calls_and_workers_of_asyncio_go_on(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    copy_context().run(asyncio.run, _all_goes_on_async())
    check(caplog)


def check(caplog: pytest.LogCaptureFixture) -> None:
    """Each kind of failure was logged once at most, and nothing else as an error."""
    errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    for start in ("the program's traces fail", "the program's metrics fail"):
        assert sum(each.startswith(start) for each in errors) <= 1
    assert [each for each in errors if not each.startswith("the program's")] == []


def _all_goes_on() -> None:
    client = fake_client(spans=Spans(parent=True))
    queue = client.queue("jobs", create=True, max_len=9, max_deliveries=3)
    client.bind("orders.#", queue)
    queue.write(1, shard_key="t")
    queue.write_many([(2, "t"), (3, "u")])
    client.publish("orders.eu", 4, shard_key="t")
    with client.writer() as writer:
        assert writer.write(queue, 5, shard_key="t").result(60)
    first = queue.read()
    with first.processing():
        first.nack()
    found = queue.read_many(2)
    queue.ack_many(queue.read_many(2, ack=found))
    queue.read().reject("bad")
    queue.write_many([(number, str(number)) for number in range(9)])
    with pytest.raises(QueueFull):
        queue.write(1, shard_key="t")
    handled: list[Any] = []

    def handle(delivery: DeliveryView) -> None:
        handled.append(delivery)
        if delivery.payload == 7:
            raise ValueError

    Worker(queue, handle, backoff=Constant(0), until="empty", signals=False).run()
    assert len(handled) == 9 + 2
    assert (queue.stats().acked, queue.stats().dead) == (4 + 8, 2)


async def _all_goes_on_async() -> None:
    client = fake_async_client()
    queue = client.queue("jobs", create=True, max_len=9, max_deliveries=3)
    await client.bind("orders.#", queue)
    await queue.write(1, shard_key="t")
    await queue.write_many([(2, "t"), (3, "u")])
    await client.publish("orders.eu", 4, shard_key="t")
    async with client.writer() as writer:
        assert await (await writer.write(queue, 5, shard_key="t"))
    first = await queue.read()
    with first.processing():
        await first.nack()
    found = await queue.read_many(2)
    await queue.ack_many(await queue.read_many(2, ack=found))
    await (await queue.read()).reject("bad")
    await queue.write_many([(number, str(number)) for number in range(9)])
    with pytest.raises(QueueFull):
        await queue.write(1, shard_key="t")
    handled: list[Any] = []

    async def handle(delivery: DeliveryView) -> None:
        handled.append(delivery)
        if delivery.payload == 7:
            raise ValueError

    await AsyncWorker(queue, handle, backoff=Constant(0), until="empty", signals=False).run()
    assert len(handled) == 9 + 2
    stats = await queue.stats()
    assert (stats.acked, stats.dead) == (4 + 8, 2)


def test_an_ack_beside_a_read_is_timed_by_no_wall_clock() -> None:
    clock = ManualClock()
    queue = fake_client(clock=clock).queue("jobs", create=True)
    queue.write_many([(1, "t"), (2, "t")])
    with tally_on() as tally:
        first = queue.read_many(2)
        run = queue.client.run

        def stepped(op: Any) -> Any:
            found = run(op)
            clock._wall += 3600
            return found

        queue.client.run = stepped  # type: ignore[method-assign]
        assert queue.read_many(1, ack=first) == []
        assert values(tally, DURATION)["ack",].total < 60


BOGUS = """
import opentelemetry.trace, opentelemetry.metrics
from shardq.testing import fake_client
queue = fake_client().queue("jobs", create=True)
for number in range(5):
    queue.write(number, shard_key="t")
    queue.read().ack()
print(queue.stats().acked)
"""


@pytest.mark.parametrize("kind", ["TRACER", "METER"])
def test_a_provider_that_nobody_has_is_looked_for_once(kind: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment[f"OTEL_PYTHON_{kind}_PROVIDER"] = "bogus"
    told = subprocess.run([sys.executable, "-c", BOGUS], capture_output=True, text=True, env=environment, timeout=120)
    assert told.stdout.split() == ["5"], told.stderr
    assert told.stderr.count("Failed to load configured provider") == 1


PROPAGATORS = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from shardq import Worker
from shardq.testing import fake_client

looked_for = []

class Finder:
    def find_spec(self, name, *_):
        if name == "opentelemetry.propagate":
            looked_for.append(name)

sys.meta_path.insert(0, Finder())
trace.set_tracer_provider(TracerProvider())
queue = fake_client().queue("jobs", create=True)
for number in range(5):
    queue.write(number, shard_key="t")
handled = []
Worker(queue, handled.append, until="empty", signals=False).run()
print(*{len(each.headers["traceparent"]) for each in handled}, queue.stats().acked, len(looked_for))
"""


def test_propagators_that_nobody_has_are_looked_for_once() -> None:
    """Trace contexts travel as W3C says, as if the environment named none."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment["OTEL_PROPAGATORS"] = "bogus"
    command = [sys.executable, "-c", PROPAGATORS]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert told.stdout.split() == ["55", "5", "1"], told.stderr
    assert told.stderr.count("Propagator bogus not found") == 1

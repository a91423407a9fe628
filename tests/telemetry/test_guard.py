"""Nothing that telemetry does fails a call or ends a worker: an SDK in which each method raises in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

from shardq import Worker
from shardq.telemetry import guard
from shardq.telemetry import spans as span_module
from shardq.telemetry.instruments import DURATION
from shardq.testing import ManualClock, fake_client
from tests.telemetry.measuring import tally_on, values

METHODS = ("is_recording", "set_attribute", "set_status", "end", "get_span_context", "start_span", "get_tracer")
PARTS = ("attach", "detach", "inject", "extract", "set_span_in_context", "get_current_span")


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("no room")


@pytest.fixture(params=[*METHODS, *PARTS, "get_current"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A provider in which one method raises."""
    what, provider = str(request.param), TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(guard, "_has_failed", False)
    if what == "get_tracer":
        monkeypatch.setattr(provider, what, fail)
    elif what == "start_span":
        monkeypatch.setattr("opentelemetry.sdk.trace.Tracer.start_span", fail)
    elif what in METHODS:
        monkeypatch.setattr(f"opentelemetry.sdk.trace.Span.{what}", fail)
    elif what == "get_current":
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        monkeypatch.setattr(context, "get_current", fail)
    else:
        monkeypatch.setattr(span_module.api(), what, fail)
    return what


def test_calls_and_workers_go_on(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    copy_context().run(_all_goes_on)  # where `detach` fails, a span stays the current one
    assert sum("traces fail" in each.message for each in caplog.records) <= 1


def _all_goes_on() -> None:
    client = fake_client()
    queue = client.queue("jobs", create=True)
    client.bind("orders.#", queue)
    queue.write(1, shard_key="t")
    queue.write_many([(2, "t"), (3, "u")])
    client.publish("orders.eu", 4, shard_key="t")
    first = queue.read()
    with first.processing():
        first.nack()
    found = queue.read_many(2)
    queue.ack_many(queue.read_many(2, ack=found))
    queue.write_many([(number, str(number)) for number in range(5)])
    handled: list[Any] = []
    Worker(queue, handled.append, until="empty", signals=False).run()
    assert len(handled) >= 5


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

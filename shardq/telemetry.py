"""OpenTelemetry spans for write, publish, read, process and settle. Other calls have none.

It uses the OpenTelemetry API only. Without an SDK it costs almost nothing.

Names follow the semantic conventions for messaging (v1.44, status Development), which may change, so all names are in
this module. A span is linked to the spans that wrote its messages, not their child: a span has one parent, but a batch
has many writers. Payloads and lease tokens never enter a span. The shard key, which usually names a tenant, is on spans
only.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shardq.model import Received

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
PICKUP_DELAY = "queue.pickup_delay_ms"
_OPERATION_TYPES = {"write": "send", "read": "receive", "process": "process"}
_CONTEXT_FIELDS = ("traceparent", "tracestate", "baggage")


def enabled() -> bool:
    """Return whether there is a provider that records spans, or a context to propagate.

    That the API was imported is not enough: redis-py imports it too.
    """
    trace, context = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.context")
    if trace is None or context is None:
        return "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) or bool(context.get_current())


class Telemetry:
    """The spans of one queue."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._tracer: Tracer | None = None

    @contextmanager
    def writing(self, count: int | None) -> Iterator[Mapping[str, str]]:
        """Make a span around a write, and yield the trace context for the headers. *count* is None for one message."""
        if not enabled():
            yield {}
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        with self._current("write", SpanKind.PRODUCER, count):
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            yield carrier

    def begin_write(self) -> OpenSpan | None:
        """Start the span of one message's write, which ends later, in another context; None without telemetry."""
        if not enabled():
            return None
        from opentelemetry import propagate, trace
        from opentelemetry.trace import SpanKind

        span = self._get_tracer().start_span(
            f"write {self._queue}", kind=SpanKind.PRODUCER, attributes=self._attributes("write", None)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        return OpenSpan(span, carrier)

    def wrote(self, message_id: str) -> None:
        """Set the id of the only message that the current span wrote."""
        if enabled():
            from opentelemetry import trace

            trace.get_current_span().set_attribute("messaging.message.id", message_id)

    def read(self, deliveries: Sequence[Received], started_ns: int, *, batch: bool) -> None:
        """Make a span for a read that returned messages. Empty reads get none."""
        if not deliveries or not enabled():
            return
        from opentelemetry.trace import SpanKind

        links = [link for delivery in deliveries if (link := self._link(delivery))]
        attributes = self._attributes("read", len(deliveries) if batch else None)
        if not batch:
            attributes |= _message(deliveries[0])
        span = self._get_tracer().start_span(
            f"read {self._queue}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            start_time=started_ns,
        )
        span.end()

    def looked(self, rows: Sequence[Received], part: Sequence[Any], started_ns: int, *, batch: bool) -> None:
        """Make spans for a read that returned *rows*, and for the ack of *part* that it took along."""
        self.acked([each[2] for each in part], started_ns, time.time_ns())
        self.read(rows, started_ns, batch=batch)

    def acked(self, deliveries: Sequence[Received], started_ns: int, ended_ns: int) -> None:
        """Make a span for the acks that a read took along, as of a call of their own."""
        if not deliveries or not enabled():
            return
        from opentelemetry.trace import SpanKind

        links = [link for delivery in deliveries if (link := self._link(delivery))]
        one = len(deliveries) == 1
        attributes = self._attributes("ack", None if one else len(deliveries))
        if one:
            attributes |= _message(deliveries[0])
        span = self._get_tracer().start_span(
            f"ack {self._queue}", kind=SpanKind.CLIENT, attributes=attributes, links=links, start_time=started_ns
        )
        span.end(max(started_ns, ended_ns))

    @contextmanager
    def processing(self, delivery: Received) -> Iterator[Span | None]:
        """Make a span around the handling of one delivery. It has the pick-up delay, and a link to the write."""
        if not enabled():
            yield None
            return
        from opentelemetry.trace import SpanKind

        link = self._link(delivery)
        attributes = _message(delivery) | {PICKUP_DELAY: round(delivery.pickup_delay * 1000)}
        with self._current("process", SpanKind.CONSUMER, None, [link] if link else [], attributes) as span:
            yield span

    @contextmanager
    def settling(self, verb: str, deliveries: Sequence[Received]) -> Iterator[None]:
        """Make a span around ack, nack, reject or extend."""
        if not enabled():
            yield
            return
        from opentelemetry.trace import SpanKind

        links = [link for delivery in deliveries if (link := self._link(delivery))]
        one = len(deliveries) == 1
        extra = _message(deliveries[0]) if one else {}
        with self._current(verb, SpanKind.CLIENT, None if one else len(deliveries), links, extra):
            yield

    def note_dead(self, count: int) -> None:
        """Note at the span of the present call that it made *count* dead letters."""
        if count and enabled():
            from opentelemetry.trace import get_current_span

            get_current_span().set_attribute("shardq.dead_letters", count)

    @contextmanager
    def _current(
        self,
        verb: str,
        kind: Any,
        count: int | None,
        links: list[Link] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Iterator[Span]:
        attributes = self._attributes(verb, count) | (extra or {})
        # The text of an error may quote a payload, so only its type is kept.
        with self._get_tracer().start_as_current_span(
            f"{verb} {self._queue}",
            kind=kind,
            attributes=attributes,
            links=links or [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, error)
                raise

    def _attributes(self, verb: str, count: int | None) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "messaging.system": "shardq",
            "messaging.destination.name": self._queue,
            "messaging.operation.name": verb,
        }
        if verb != "extend":
            attributes["messaging.operation.type"] = _OPERATION_TYPES.get(verb, "settle")
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        return attributes

    def _link(self, delivery: Received) -> Link | None:
        """Return a link to the span that wrote the message; None if its headers have no trace context."""
        carrier = {name: delivery.headers[name] for name in _CONTEXT_FIELDS if name in delivery.headers}
        if "traceparent" not in carrier:
            return None
        from opentelemetry import propagate, trace

        context = trace.get_current_span(propagate.extract(carrier)).get_span_context()
        return trace.Link(context) if context.is_valid else None

    def _get_tracer(self) -> Tracer:
        if self._tracer is None:
            from opentelemetry import trace

            self._tracer = trace.get_tracer("shardq", schema_url=SCHEMA_URL)
        return self._tracer


class OpenSpan:
    """The span of a write that goes on elsewhere. `context` is the trace context for the message's headers."""

    def __init__(self, span: Span, context: Mapping[str, str]) -> None:
        self._span, self.context = span, context

    def end(self, result: str | BaseException) -> None:
        """End the span with the message's id, or an error."""
        if isinstance(result, str):
            self._span.set_attribute("messaging.message.id", result)
        else:
            _fail(self._span, result)
        self._span.end()


def _fail(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR)


def _message(delivery: Received) -> dict[str, Any]:
    key = delivery.shard_key
    attributes: dict[str, Any] = {
        "messaging.message.id": delivery.message_id,
        "shardq.delivery.count": delivery.count,
        "shardq.shard_key": key if isinstance(key, str) else key.hex(),
    }
    if delivery.stream is not None:
        attributes["messaging.destination.partition.id"] = str(delivery.stream)
    return attributes

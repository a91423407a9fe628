"""OpenTelemetry spans for write, publish, read, process and settle, and a metric of tasks. Other calls have none.

It uses the OpenTelemetry API only. Without an SDK it costs almost nothing.

Names follow the semantic conventions for messaging (v1.44, status Development), which may change, so all names are in
this module. A span is linked to the spans that wrote its messages, not their child: a span has one parent, but a batch
has many writers. Payloads and lease tokens never enter a span. The shard key, which usually names a tenant, is on spans
only.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import MappingProxyType, SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from shardq.model import Received
from shardq.model.call import called

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

log = logging.getLogger("shardq")
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
PICKUP_DELAY = "queue.pickup_delay_ms"
_OPERATION_TYPES = {"write": "send", "read": "receive", "process": "process"}
NO_CONTEXT: Final[Mapping[str, str]] = MappingProxyType({})
NOTHING: Final = nullcontext()
"""Stands for a span where none is recorded."""

LINKS: Final = 1_000
"""So many links are remembered for each queue."""

LONGEST_LINK: Final = 1_024
"""Letters of a trace context that is remembered; W3C has 55 and at least 512."""

TASK: Final = "shardq.task"
DURATION: Final = "messaging.process.duration"
MOST_TASKS: Final = 100
"""So many tasks of a process have names of their own in metrics, those that ran first: each is a series to store."""

OTHER: Final = "other"
"""What the others are called."""

_NAME: Final = type.__dict__["__name__"].__get__
"""Gives the name of a class, by no code of its metaclass."""

_IS_NAMED: Final = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ
"""Whether the environment that the process began with names a provider, which OpenTelemetry makes at its first use."""


BAGGAGE: Final = "baggage"

LINKED: Final = {"traceparent": "trace-link", "tracestate": "link-state"}
"""What the headers are called of a context that is a link, and that no program is to go on with by mistake."""


def enabled() -> bool:
    """Return whether there is a provider that records spans, or a context to propagate.

    That the API was imported is not enough: redis-py imports it too.
    """
    trace, context = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.context")
    if trace is None or context is None:
        return _IS_NAMED
    # Where none was set, `get_tracer_provider` looks into the environment each time: half of what a check would cost.
    if getattr(trace, "_TRACER_PROVIDER", trace) is None and not _IS_NAMED:
        return bool(context.get_current())
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) or bool(context.get_current())


class HasHeaders(Protocol):
    """What may have a trace context."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The message's headers."""


class Telemetry:
    """The spans of one queue."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._tracer: Tracer | None = None
        self._common: dict[str, tuple[str, dict[str, Any]]] = {}
        self._links: dict[tuple[str, str], Link | None] = {}

    def begin_write(self) -> OpenSpan | None:
        """Start the span of one message's write, which ends later, in another context; None without telemetry."""
        if not enabled():
            return None
        api = _api()
        span = self._start("write", api.SpanKind.PRODUCER)
        carrier: dict[str, str] = {}
        api.inject(carrier, api.set_span_in_context(span))
        return OpenSpan(span, carrier)

    def writing(self, count: int, of: Sequence[HasHeaders] = ()) -> AbstractContextManager[Mapping[str, str]]:
        """Make a span around a write of *count* messages, linked to the contexts that come with *of* some of them.

        It yields the trace context for their headers.
        """
        if not enabled():
            return nullcontext(NO_CONTEXT)
        return Writing(self._start("write", _api().SpanKind.PRODUCER, _counted(count), of))

    def read(self, deliveries: Sequence[Received], started_ns: int, *, batch: bool) -> None:
        """Make a span for a read that returned messages. Empty reads get none."""
        if deliveries:
            extra = _counted(len(deliveries)) if batch else _message(deliveries[0])
            self._start("read", _api().SpanKind.CLIENT, extra, deliveries, started_ns).end()

    def looked(self, rows: Sequence[Received], part: Sequence[Any], started_ns: int, *, batch: bool) -> None:
        """Make spans for a read that returned *rows*, and for the ack of *part* that it took along."""
        self.acked([each[2] for each in part], started_ns, time.time_ns())
        self.read(rows, started_ns, batch=batch)

    def acked(self, deliveries: Sequence[Received], started_ns: int, ended_ns: int) -> None:
        """Make a span for the acks that a read took along, as of a call of their own."""
        if deliveries:
            span = self._start("ack", _api().SpanKind.CLIENT, _of(deliveries), deliveries, started_ns)
            span.end(max(started_ns, ended_ns))

    def processing(self, delivery: Received) -> AbstractContextManager[Span | None]:
        """Make a span around the handling of one delivery. It has the pick-up delay, and a link to the write."""
        if not enabled():
            return NOTHING
        extra = _message(delivery)
        extra[PICKUP_DELAY] = round(delivery.pickup_delay * 1000)
        if task := called(delivery.tag, delivery.body):
            extra[TASK] = task
        return Current(self._start("process", _api().SpanKind.CONSUMER, extra, (delivery,)))

    def settling(self, verb: str, deliveries: Sequence[Received]) -> AbstractContextManager[Span | None]:
        """Make a span around ack, nack, reject or extend."""
        if not enabled():
            return NOTHING
        return Current(self._start(verb, _api().SpanKind.CLIENT, _of(deliveries), deliveries))

    def note_dead(self, count: int) -> None:
        """Note at the span of the present call that it made *count* dead letters."""
        if count and enabled():
            _api().get_current_span().set_attribute("shardq.dead_letters", count)

    def _start(
        self,
        verb: str,
        kind: Any,
        extra: dict[str, Any] | None = None,
        deliveries: Sequence[HasHeaders] = (),
        started_ns: int | None = None,
    ) -> Span:
        """Start a span with the attributes that all spans of *verb* have and *extra*, linked to what wrote these."""
        if self._tracer is None:
            self._tracer = _api().get_tracer("shardq", schema_url=SCHEMA_URL)
        name, common = self._common.get(verb) or self._described(verb)
        return self._tracer.start_span(
            name,
            kind=kind,
            attributes=common | extra if extra else common,
            links=[link for each in deliveries if each.headers and (link := self._link(each.headers)) is not None],
            start_time=started_ns,
        )

    def _described(self, verb: str) -> tuple[str, dict[str, Any]]:
        common: dict[str, Any] = {
            "messaging.system": "shardq",
            "messaging.destination.name": self._queue,
            "messaging.operation.name": verb,
        }
        if verb != "extend":
            common["messaging.operation.type"] = _OPERATION_TYPES.get(verb, "settle")
        found = self._common[verb] = f"{verb} {self._queue}", common
        return found

    def _link(self, headers: Mapping[str, str]) -> Link | None:
        """Return a link to the span that wrote the message; None if its headers have no trace context.

        It is remembered: a message is read, handled and settled.
        """
        parent = headers.get("traceparent")
        if parent is None:
            if LINKED["traceparent"] not in headers:
                return None
            headers = {name: headers[other] for name, other in LINKED.items() if other in headers}
            parent = headers["traceparent"]
        key = parent, headers.get("tracestate", "")
        if len(parent) + len(key[1]) > LONGEST_LINK:  # no tracer writes such: it is not kept
            return _linked(headers)
        try:
            return self._links[key]
        except KeyError:
            if len(self._links) >= LINKS:
                self._links.clear()
            link = self._links[key] = _linked(headers)
            return link


def measures() -> bool:
    """Return whether there is a provider that exports metrics."""
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return "OTEL_PYTHON_METER_PROVIDER" in os.environ
    return not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")


class TaskTimes:
    """How often tasks ran, for how many seconds, and with which errors: one histogram.

    *queue* is the queue of deliveries that do not say theirs. Only the *known* tasks have names: anybody may write
    calls of others.
    """

    _named: ClassVar[set[str]] = set()

    def __init__(self, queue: str, known: Container[str]) -> None:
        from opentelemetry import metrics

        self._queue, self._known, self._works = queue, known, True
        meter = metrics.get_meter("shardq", schema_url=SCHEMA_URL)
        self._duration = meter.create_histogram(DURATION, unit="s", description="How long tasks ran")

    def note(self, queue: str | None, task: str, seconds: float, error: BaseException | None) -> None:
        """Note that a task has run, and what it raised. The text of an error is not kept, only its class.

        If the program's exporter fails, that is logged once, and nothing is noted any more: the task is done.
        """
        attributes = {
            "messaging.system": "shardq",
            "messaging.destination.name": self._queue if queue is None else queue,
            "messaging.operation.name": "process",
            TASK: self._name_of(task),
        }
        if error is not None:
            attributes["error.type"] = _kind_of(error)
        try:
            if self._works:
                self._duration.record(seconds, attributes)
        except Exception:
            self._works = False
            log.exception("the program's metrics fail: tasks are not measured any more")

    def _name_of(self, task: str) -> str:
        if task in self._named:
            return task
        if task not in self._known or len(self._named) >= MOST_TASKS:
            return OTHER
        self._named.add(task)
        return task


class OpenSpan:
    """The span of a write that goes on elsewhere. `context` is the trace context for the message's headers."""

    __slots__ = ("_span", "context")

    def __init__(self, span: Span, context: Mapping[str, str]) -> None:
        self._span, self.context = span, context

    def end(self, result: str | BaseException) -> None:
        """End the span with the message's id, or an error."""
        if isinstance(result, str):
            self._span.set_attribute("messaging.message.id", result)
        else:
            _fail(self._span, result)
        self._span.end()


class Current:
    """A span that is the current one in a `with` block, and ends with it."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Any:
        """Make it the current one."""
        api = _api()
        self._token = api.attach(api.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it. The text of an error may quote a payload, so only its type is kept."""
        _api().detach(self._token)
        if error is not None:
            _fail(self._span, error)
        self._span.end()


class Writing(Current):
    """The span of a write of many."""

    def __enter__(self) -> Mapping[str, str]:
        """Make it the current one. Return the trace context for the headers."""
        super().__enter__()
        carrier: dict[str, str] = {}
        _api().inject(carrier)
        return carrier


@cache
def _api() -> Any:
    """Return what is used of OpenTelemetry's API. It is imported when it is needed."""
    from opentelemetry import context, propagate, trace

    return SimpleNamespace(
        SpanKind=trace.SpanKind,
        Link=trace.Link,
        ERROR=trace.StatusCode.ERROR,
        get_tracer=trace.get_tracer,
        get_current_span=trace.get_current_span,
        set_span_in_context=trace.set_span_in_context,
        attach=context.attach,
        detach=context.detach,
        inject=propagate.inject,
        extract=propagate.extract,
    )


def _linked(headers: Mapping[str, str]) -> Link | None:
    api = _api()
    carrier = {name: headers[name] for name in (*LINKED, BAGGAGE) if name in headers}
    context = api.get_current_span(api.extract(carrier)).get_span_context()
    return api.Link(context) if context.is_valid else None


def _counted(count: int) -> dict[str, Any]:
    return {"messaging.batch.message_count": count}


def _of(deliveries: Sequence[Received]) -> dict[str, Any]:
    return _message(deliveries[0]) if len(deliveries) == 1 else _counted(len(deliveries))


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", _kind_of(error))
    span.set_status(_api().ERROR)


def _kind_of(error: BaseException) -> str:
    """Return the name of the class of *error*, by no code of its metaclass."""
    return str(_NAME(type(error)))


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

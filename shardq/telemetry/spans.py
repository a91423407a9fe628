"""OpenTelemetry spans of one queue: how they begin and end, and what is in them.

It uses the OpenTelemetry API only. Without an SDK it costs almost nothing.

Names follow the semantic conventions for messaging (v1.44, status Development), which may change, so all names are in
this module and in `instruments`. A span is linked to the spans that wrote its messages, not their child, unless the
program wants that: a span has one parent, but a batch has many writers. Payloads and lease tokens never enter a span.
The shard key, which usually names a tenant, is on spans only, as the program wants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

from shardq.model import Received
from shardq.model.call import called
from shardq.model.failed import class_of
from shardq.telemetry.export import SCHEMA_URL
from shardq.telemetry.guard import guarded, log, note_failure, nothing
from shardq.telemetry.instruments import ERROR, OPERATION, OPERATION_TYPE, OPERATION_TYPES, QUEUE, SYSTEM, TASK
from shardq.telemetry.options import Spans, shown_tenant
from shardq.telemetry.server import MeasuredServer
from shardq.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

PICKUP_DELAY: Final = "queue.pickup_delay_ms"
MESSAGE: Final = "messaging.message.id"
MESSAGES: Final = "shardq.message.ids"
COUNT: Final = "messaging.batch.message_count"
STREAM: Final = "messaging.destination.partition.id"
DELIVERIES: Final = "shardq.delivery.count"
SHARD_KEY: Final = "shardq.shard_key"
DEAD_LETTERS: Final = "shardq.dead_letters"
MAX_IDS: Final = 100
"""Ids of a batch that its span has."""
MAX_LINKS: Final = 1_000
"""Links that are remembered for each queue."""
MAX_LINK: Final = 1_024
"""Letters of a trace context that is remembered; W3C has 55 and at least 512."""

BAGGAGE: Final = "baggage"
LINK_HEADERS: Final = {"traceparent": "trace-link", "tracestate": "link-state"}
"""The names of headers for a context that is a link, and that no program is to continue by mistake."""


class HasHeaders(Protocol):
    """An object that may have a trace context."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The message's headers."""


class QueueSpans:
    """Starts the spans of one queue (or of what is published to one topic)."""

    def __init__(self, destination: str, server: MeasuredServer, options: Spans) -> None:
        self._destination, self._server, self._options = destination, server, options
        self._tracer: Tracer | None = None
        self._common: dict[str, tuple[str, dict[str, Any]]] = {}
        self._links: dict[tuple[str, str], Link | None] = {}

    @guarded(nothing)
    def write(self, count: int | None = None, of: Sequence[HasHeaders] = ()) -> Span | None:
        """Start the span of a write of one message, or of *count*, linked to the contexts that come with *of* some."""
        return self._start("write", api().SpanKind.PRODUCER, None if count is None else {COUNT: count}, of)

    @guarded(nothing)
    def call(self, verb: str, received: Sequence[Received], began_ns: int | None = None, *, batch: bool) -> Span | None:
        """Start the span of a call about what was *received*: of a batch, or of one message."""
        extra = {COUNT: len(received)} if batch else self._message(received[0])
        span = self._start(verb, api().SpanKind.CLIENT, extra, received, began_ns)
        if batch:
            note_ids(span, [each.message_id for each in received[:MAX_IDS]])
        return span

    @guarded(nothing)
    def process(self, received: Received) -> Span | None:
        """Start the span of the work on one message. It has the pick-up delay, and a link to the write."""
        extra = self._message(received)
        extra[PICKUP_DELAY] = round(received.pickup_delay * 1000)
        if task := called(received.tag, received.body):
            extra[TASK] = task
        kind = api().SpanKind.CONSUMER
        if self._options.parent and "traceparent" in received.headers:
            link = self._link(received.headers)
            if link is not None:
                return self._child("process", kind, extra, link)
        return self._start("process", kind, extra, (received,))

    def _start(
        self,
        verb: str,
        kind: Any,
        extra: dict[str, Any] | None = None,
        linked: Sequence[HasHeaders] = (),
        began_ns: int | None = None,
    ) -> Span:
        """Start a span with the attributes that all spans of *verb* have and *extra*, linked to what wrote these."""
        links = [link for each in linked if each.headers and (link := self._link(each.headers)) is not None]
        return self._started(verb, extra, kind=kind, links=links, start_time=began_ns)

    def _child(self, verb: str, kind: Any, extra: dict[str, Any], parent: Link) -> Span:
        """Start a span as a child of what *parent* is a link to, linked to the span that is current, if one is."""
        current = api().get_current_span().get_span_context()
        context = api().set_span_in_context(api().NonRecordingSpan(parent.context))
        links = [api().Link(current)] if current.is_valid else []
        return self._started(verb, extra, kind=kind, links=links, context=context)

    def _started(self, verb: str, extra: dict[str, Any] | None, **how: Any) -> Span:
        name, common = self._common.get(verb) or self._described(verb)
        try:
            if self._tracer is None:
                self._tracer = api().get_tracer("shardq", __version__, schema_url=SCHEMA_URL)
            return self._tracer.start_span(name, attributes=common | extra if extra else common, **how)
        except Exception as error:  # noqa: BLE001 (the program's SDK)
            note_failure(error)
            return api().INVALID_SPAN  # type: ignore[no-any-return]

    def _described(self, verb: str) -> tuple[str, dict[str, Any]]:
        common: dict[str, Any] = {SYSTEM: "shardq", QUEUE: self._destination, OPERATION: verb}
        if verb in OPERATION_TYPES:
            common[OPERATION_TYPE] = OPERATION_TYPES[verb]
        found = self._common[verb] = f"{verb} {self._destination}", common | self._server.attributes
        return found

    def _message(self, received: Received) -> dict[str, Any]:
        attributes: dict[str, Any] = {MESSAGE: received.message_id, DELIVERIES: received.count}
        tenant = shown_tenant(self._options, received.shard_key)
        if tenant is not None:
            attributes[SHARD_KEY] = tenant
        if received.stream is not None:
            attributes[STREAM] = str(received.stream)
        return attributes

    def _link(self, headers: Mapping[str, str]) -> Link | None:
        """Return a link to the span that wrote the message; None if its headers have no trace context.

        It is remembered: a message is read, handled and settled.
        """
        parent = headers.get("traceparent")
        if parent is None:
            if LINK_HEADERS["traceparent"] not in headers:
                return None
            headers = {name: headers[other] for name, other in LINK_HEADERS.items() if other in headers}
            parent = headers["traceparent"]
        key = parent, headers.get("tracestate", "")
        if len(parent) + len(key[1]) > MAX_LINK:  # no tracer writes such: it is not kept
            return _linked(headers)
        try:
            return self._links[key]
        except KeyError:
            if len(self._links) >= MAX_LINKS:
                self._links.clear()
            link = self._links[key] = _linked(headers)
            return link


def context_of(span: Span) -> Mapping[str, str]:
    """Return the trace context of *span*, for the headers of what it writes."""
    carrier: dict[str, str] = {}
    try:
        api().inject(carrier, api().set_span_in_context(span))
    except Exception as error:  # noqa: BLE001 (as above)
        note_failure(error)
    return carrier


@guarded(nothing)
def note_ids(span: Span, ids: Iterable[str]) -> None:
    """Note the ids of a batch's messages at its span: the first MAX_IDS.

    Old versions of OpenTelemetry drop a list whose items are of a subclass of str, as the result of a write is.
    """
    if span.is_recording():
        note(span, MESSAGES, [str(each) for each in islice(ids, MAX_IDS)])


@guarded(nothing)
def note_dead(count: int) -> None:
    """Note at the span of the present call that it made *count* dead letters."""
    note(api().get_current_span(), DEAD_LETTERS, count)


def note(span: Span, name: str, value: Any) -> None:
    """Note something at a span."""
    try:
        span.set_attribute(name, value)
    except Exception as error:  # noqa: BLE001 (as above)
        note_failure(error)


def end(span: Span, error: BaseException | None = None, ended_ns: int | None = None) -> None:
    """End a span. The text of an error may quote a payload, so only its class is kept."""
    try:
        if error is not None:
            span.set_attribute(ERROR, class_of(error))
            span.set_status(api().ERROR)
        span.end(ended_ns)
    except Exception as failure:  # noqa: BLE001 (as above)
        note_failure(failure)


@guarded(nothing)
def enter(span: Span) -> Any:
    """Make *span* the current one, and return what `leave` needs."""
    return api().attach(api().set_span_in_context(span))


@guarded(nothing)
def leave(token: Any) -> None:
    """Let the span be current that was it before; None if `enter` failed."""
    if token is not None:
        api().detach(token)


@cache
def api() -> Any:
    """Return what is used of OpenTelemetry's API. It is imported when it is needed."""
    from opentelemetry import context, trace

    propagate = _propagators()
    return SimpleNamespace(
        SpanKind=trace.SpanKind,
        Link=trace.Link,
        ERROR=trace.StatusCode.ERROR,
        NonRecordingSpan=trace.NonRecordingSpan,
        INVALID_SPAN=trace.INVALID_SPAN,
        get_tracer=trace.ProxyTracerProvider().get_tracer,  # it looks for no provider that the environment names
        get_current_span=trace.get_current_span,
        set_span_in_context=trace.set_span_in_context,
        attach=context.attach,
        detach=context.detach,
        inject=propagate.inject,
        extract=propagate.extract,
    )


def _propagators() -> Any:
    """Return the propagators that OTEL_PROPAGATORS names; if they are missing, OpenTelemetry's default ones."""
    try:
        from opentelemetry import propagate
    except Exception as error:  # noqa: BLE001 (it loads other packages)
        log.error(
            "the propagators that OTEL_PROPAGATORS names cannot be loaded: W3C's are used instead", exc_info=error
        )
    else:
        return propagate
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def _linked(headers: Mapping[str, str]) -> Link | None:
    carrier = {name: headers[name] for name in (*LINK_HEADERS, BAGGAGE) if name in headers}
    try:
        context = api().get_current_span(api().extract(carrier)).get_span_context()
    except Exception as error:  # noqa: BLE001 (the program's propagator)
        note_failure(error)
        return None
    return api().Link(context) if context.is_valid else None

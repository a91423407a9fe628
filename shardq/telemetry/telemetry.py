"""The telemetry of the calls on one queue: a span for each, and its measures. Clients and workers call this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from shardq.clock import Clock, SystemClock
from shardq.errors import PartlyPublished, PartlyWritten
from shardq.model import Received
from shardq.model.call import called
from shardq.model.failed import class_of
from shardq.telemetry.calls import QueueMeter
from shardq.telemetry.gate import tracing
from shardq.telemetry.guard import guarded, nothing
from shardq.telemetry.measures import measuring
from shardq.telemetry.options import Spans
from shardq.telemetry.server import MeasuredServer
from shardq.telemetry.spans import (
    MESSAGE,
    HasHeaders,
    QueueSpans,
    context_of,
    end,
    enter,
    leave,
    note,
    note_dead,
    note_ids,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span

NO_CONTEXT: Final[Mapping[str, str]] = MappingProxyType({})
Results: TypeAlias = Sequence[object] | Mapping[str, object]
"""The outcome of each message: for those of a batch in their order, for copies of one by their queues."""
_SYSTEM: Final = SystemClock()
_SERVER: Final = MeasuredServer()
_PLAIN: Final = Spans()


class Began(NamedTuple):
    """When a read began, by the wall and by the local clock, and who wants to know."""

    wall: float
    at: float
    is_traced: bool
    is_measured: bool


def _untold() -> AbstractContextManager[Span | None]:
    return Current(None)


def _unwritten() -> WriteSpan:
    return WriteSpan(None, (), _SYSTEM)


def _not_begun() -> Began:
    return Began(0.0, 0.0, is_traced=False, is_measured=False)


class Telemetry:
    """The spans of one queue's calls, and what is measured of them."""

    def __init__(
        self, queue: str, clock: Clock = _SYSTEM, server: MeasuredServer = _SERVER, options: Spans = _PLAIN
    ) -> None:
        self._clock = clock
        self._spans, self.meter = QueueSpans(queue, server, options), QueueMeter(queue, server)

    @guarded(nothing)
    def begin_write(self) -> OpenWrite | None:
        """Begin one message's write, which ends later, in another context; None if nobody wants to know."""
        span = self._spans.write() if tracing() else None
        meter = self.meter if measuring() else None
        return None if span is None and meter is None else OpenWrite(span, meter, self._clock)

    @guarded(_unwritten)
    def writing(self, count: int, of: Sequence[HasHeaders] = ()) -> WriteSpan:
        """Return a `with` block around a write of *count* messages. *of* have contexts that its span is linked to."""
        span = self._spans.write(count, of) if tracing() else None
        return WriteSpan(span, [(self.meter, count)] if measuring() else (), self._clock)

    @guarded(_not_begun)
    def begin(self) -> Began:
        """Note when a read begins."""
        return Began(self._clock.wall(), self._clock.monotonic(), tracing(), measuring())

    @guarded(nothing)
    def read(self, rows: Sequence[Received], began: Began, *, batch: bool) -> None:
        """Tell of a read that returned messages. Nothing is reported of one that did not."""
        if not rows:
            return
        if began.is_traced:
            self._end(self._spans.call("read", rows, round(began.wall * 1e9), batch=batch))
        if began.is_measured:
            self.meter.consumed(self._clock.monotonic() - began.at, rows)

    @guarded(nothing)
    def read_failed(self, began: Began | None, error: BaseException) -> None:
        """Tell of a read that failed."""
        if began is not None and began.is_measured:
            self.meter.took("read", self._clock.monotonic() - began.at, error)

    @guarded(nothing)
    def looked(self, rows: Sequence[Received], part: Sequence[Any], began: Began, *, batch: bool) -> None:
        """Tell of a read that returned *rows*, and of the ack of *part* that it took along."""
        if part:
            self.acked([each[2] for each in part], began, self._clock.monotonic())
        self.read(rows, began, batch=batch)

    @guarded(nothing)
    def acked(self, received: Sequence[Received], began: Began, ended: float) -> None:
        """Tell of the acks that a read took along, answered at *ended* (monotonic), as of a call of their own."""
        if not received:
            return
        if began.is_traced:
            span = self._spans.call("ack", received, round(began.wall * 1e9), batch=len(received) > 1)
            self._end(span, round((began.wall + max(0.0, ended - began.at)) * 1e9))
        if began.is_measured:
            self.meter.took("ack", ended - began.at)

    def _end(self, span: Span | None, ended_ns: int | None = None) -> None:
        if span is not None:
            end(span, ended_ns=ended_ns)

    @guarded(_untold)
    def processing(self, received: Received) -> AbstractContextManager[Span | None]:
        """Return a `with` block around the work on one message, which is measured."""
        return Processing(self._process(received), self.meter if measuring() else None, self._clock, received)

    @guarded(_untold)
    def working(self, received: Received) -> AbstractContextManager[Span | None]:
        """Return a `with` block around the work on one message that a worker measures."""
        return Current(self._process(received))

    def _process(self, received: Received) -> Span | None:
        return self._spans.process(received) if tracing() else None

    @guarded(_untold)
    def settling(self, verb: str, received: Sequence[Received]) -> AbstractContextManager[Span | None]:
        """Return a `with` block around ack, nack, reject or extend."""
        span = self._spans.call(verb, received, batch=len(received) != 1) if tracing() else None
        return Settling(span, self.meter if measuring() else None, self._clock, verb)

    @guarded(nothing)
    def note_dead(self, count: int) -> None:
        """Note at the span of the present call that it made *count* dead letters."""
        if count and tracing():
            note_dead(count)


@guarded(_unwritten)
def publishing(
    topic: str, queues: Sequence[Telemetry], server: MeasuredServer, options: Spans, clock: Clock
) -> WriteSpan:
    """Return a `with` block around a write to each of *queues*, to which a message goes that has this *topic*."""
    span = QueueSpans(topic, server, options).write(len(queues)) if tracing() else None
    return WriteSpan(span, [(each.meter, 1) for each in queues] if measuring() else (), clock)


class OpenWrite:
    """The write of one message that continues elsewhere. `context` is the trace context for the message's headers."""

    __slots__ = ("_began", "_clock", "_meter", "_span", "context")

    def __init__(self, span: Span | None, meter: QueueMeter | None, clock: Clock) -> None:
        self._span, self._meter, self._clock = span, meter, clock
        self._began = 0.0 if meter is None else clock.monotonic()
        self.context: Mapping[str, str] | None = None if span is None else context_of(span)

    @guarded(nothing)
    def end(self, result: str | BaseException) -> None:
        """End it with the message's id, or an error."""
        error = result if isinstance(result, BaseException) else None
        if (meter := self._meter) is not None:
            seconds = self._clock.monotonic() - self._began
            if error is None:
                meter.wrote(seconds)
            else:
                meter.took("write", seconds, error)
                meter.sent(1, error)
        if (span := self._span) is not None:
            if error is None:
                note(span, MESSAGE, str(result))
            end(span, error)


class Current:
    """A span that is the current one in a `with` block, and ends with it; None if nobody wants one."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def __enter__(self) -> Any:
        """Make it the current one."""
        if self._span is not None:
            self._token = enter(self._span)
        return self._span

    @guarded(nothing)
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it. The text of an error may quote a payload, so only its type is kept."""
        if self._span is not None:
            leave(self._token)
            end(self._span, error)


class Timed(Current):
    """A span, and how long what it is around takes: *meter* is None if nobody wants that."""

    __slots__ = ("_began", "_clock", "_meter")

    def __init__(self, span: Span | None, meter: QueueMeter | None, clock: Clock) -> None:
        super().__init__(span)
        self._meter, self._clock = meter, clock
        self._began = 0.0 if meter is None else clock.monotonic()

    @guarded(nothing)
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        super().__exit__(kind, error, trace)
        if self._meter is not None:
            self._note(self._meter, self._clock.monotonic() - self._began, error)

    def _note(self, meter: QueueMeter, seconds: float, error: BaseException | None) -> None:
        raise NotImplementedError


class Settling(Timed):
    """An ack, nack, reject or extend."""

    __slots__ = ("_verb",)

    def __init__(self, span: Span | None, meter: QueueMeter | None, clock: Clock, verb: str) -> None:
        super().__init__(span, meter, clock)
        self._verb = verb

    def _note(self, meter: QueueMeter, seconds: float, error: BaseException | None) -> None:
        meter.took(self._verb, seconds, error)


class Processing(Timed):
    """The work on one message."""

    __slots__ = ("_received",)

    def __init__(self, span: Span | None, meter: QueueMeter | None, clock: Clock, received: Received) -> None:
        super().__init__(span, meter, clock)
        self._received = received

    def _note(self, meter: QueueMeter, seconds: float, error: BaseException | None) -> None:
        task = called(self._received.tag, self._received.body)
        meter.processed(task, seconds, "" if error is None else class_of(error))


class WriteSpan(Timed):
    """A write of many messages to one queue, or of one to many: *meters* has how many each of these gets.

    `context` is the trace context for the headers, once it was entered.
    """

    __slots__ = ("_meters", "_results", "context")

    def __init__(self, span: Span | None, meters: Sequence[tuple[QueueMeter, int]], clock: Clock) -> None:
        super().__init__(span, meters[0][0] if meters else None, clock)
        self._meters = meters
        self._results: Results | None = None
        self.context = NO_CONTEXT

    def __enter__(self) -> WriteSpan:
        """Make its span the current one."""
        super().__enter__()
        if self._span is not None:
            self.context = context_of(self._span)
        return self

    @guarded(nothing)
    def wrote(self, ids: Sequence[str] | Mapping[str, str]) -> None:
        """Note the ids of written messages: for a batch in its order, for a published message by its queues."""
        self._results = ids
        if self._span is not None:
            note_ids(self._span, ids.values() if isinstance(ids, Mapping) else ids)

    def _note(self, _: QueueMeter, seconds: float, error: BaseException | None) -> None:
        """Note what became of each message: an error says so, if only some were not written."""
        results = error.results if isinstance(error, (PartlyWritten, PartlyPublished)) else self._results
        for meter, count in self._meters:
            meter.took("write", seconds, error)
            if results is None:
                meter.sent(count, error)
            elif not isinstance(results, Mapping):
                meter.sent_each(results)
            elif meter.queue in results:  # else it is gone
                meter.sent_each([results[meter.queue]])

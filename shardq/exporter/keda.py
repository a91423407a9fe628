"""KEDA's external scaler, over gRPC: the five calls of its service, and the check of health."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from shardq.extras import extra

with extra("scaler"):
    import grpc
    from google.protobuf.message import DecodeError
    from grpc_health.v1 import health_pb2

from shardq.clock import SystemClock
from shardq.errors import BackendError, ConfigError, QueueMissing, ShardqError
from shardq.exporter.asking import Asking
from shardq.exporter.errors import FAILED, is_private, public_text
from shardq.exporter.externalscaler import (
    SERVICE,
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from shardq.exporter.policy import METRICS
from shardq.exporter.seldom import Seldom
from shardq.exporter.trigger import Trigger, trigger_of, value_of
from shardq.exporter.watcher import Watchers

log = logging.getLogger("shardq.exporter")
HEALTH: Final = "grpc.health.v1.Health"

MAX_REQUEST: Final = 64 * 1024
"""Bytes of a request: the metadata of a trigger."""
MAX_STREAMS: Final = 1000
"""Calls that stay open, of all clients. KEDA has two for each trigger of the type external-push."""
MAX_WATCHED: Final = 250
"""Queues that are watched for calls that stay open. Each may take a connection to Redis."""
MAX_NAME: Final = 253
"""Characters of the name of a metric that is asked for."""
MAX_LINE: Final = 500
"""Characters of the line that says what is wrong."""
REPEAT: Final = 15.0
"""Seconds after which it is said again that a queue is active: the first time KEDA may not have been ready for it."""


def specs_of(trigger: Trigger) -> Any:
    """Return what the metric is called, and its target, in both forms."""
    target = trigger.policy.target
    spec = MetricSpec(metricName=trigger.name, targetSize=_whole_target(target), targetSizeFloat=target)
    return GetMetricSpecResponse(metricSpecs=[spec])


def values_of(trigger: Trigger, value: float, name: str) -> Any:
    """Return the value of the metric, in both forms. KEDA takes the whole number where the other is 0."""
    target = trigger.policy.target
    # In the whole number's form as many workers are wanted as in the other.
    whole = math.ceil(round(value / target * _whole_target(target), 6))
    found = MetricValue(metricName=name, metricValue=min(whole, 2**62), metricValueFloat=value)
    return GetMetricsResponse(metricValues=[found])


def _whole_target(target: float) -> int:
    return max(1, math.ceil(target))


class Busy(Exception):
    """More is asked for than this scaler does at once."""


Method = Callable[[bytes, Any], Coroutine[Any, Any, Any]]


class ExternalScaler:
    """Serves the calls. The numbers of a queue come from *asking*, and whether it got active from *watchers*."""

    def __init__(self, asking: Asking, watchers: Watchers) -> None:
        self._asking, self._watchers = asking, watchers
        self._closing = asyncio.Event()
        self._seldom = Seldom(SystemClock())
        self.streams = 0
        """Calls that stay open."""

    def handlers(self) -> list[Any]:
        """Return what a server of grpc is to serve: KEDA's service, and the check of health, without its watch."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        calls = {
            "IsActive": unary(self._served(self._is_active)),
            "StreamIsActive": stream(self._served(self._stream_is_active)),
            "GetMetricSpec": unary(self._served(self._metric_spec)),
            "GetMetrics": unary(self._served(self._metrics)),
            "StreamMetricSpec": stream(self._served(self._stream_metric_spec)),
        }
        return [
            grpc.method_handlers_generic_handler(SERVICE, calls),
            grpc.method_handlers_generic_handler(HEALTH, {"Check": unary(self._served(self._health))}),
        ]

    def close(self) -> None:
        """End the calls that stay open: the client calls again, perhaps another scaler."""
        self._closing.set()
        self._watchers.end()

    async def _is_active(self, request: bytes, _context: Any) -> bytes:
        trigger = _trigger_of(ScaledObjectRef.FromString(request))
        numbers = await self._asking.numbers(trigger.queue, with_outlook=False)
        return _packed(IsActiveResponse(result=trigger.policy.is_active(numbers)))

    async def _metric_spec(self, request: bytes, _context: Any) -> bytes:
        # Redis is not asked: KEDA makes no autoscaler where this fails, and the queue may come later.
        return _packed(specs_of(_trigger_of(ScaledObjectRef.FromString(request))))

    async def _metrics(self, request: bytes, _context: Any) -> bytes:
        asked = GetMetricsRequest.FromString(request)
        trigger = _trigger_of(asked.scaledObjectRef)
        name = _checked_name(asked.metricName, trigger)
        numbers = await self._asking.numbers(trigger.queue, with_outlook=trigger.policy.metric != "load")
        return _packed(values_of(trigger, value_of(trigger.policy, numbers), name))

    async def _stream_is_active(self, request: bytes, context: Any) -> None:
        trigger = _trigger_of(ScaledObjectRef.FromString(request))
        async with self._stream():
            if trigger.queue not in self._watchers and len(self._watchers) >= MAX_WATCHED:
                raise Busy(f"{MAX_WATCHED} queues are watched: use the type external, which polls")
            with self._watchers.listening(trigger.queue, trigger.policy) as listening:
                async for is_active in listening.news(REPEAT):
                    await context.write(_packed(IsActiveResponse(result=is_active)))

    async def _stream_metric_spec(self, request: bytes, context: Any) -> None:
        trigger = _trigger_of(ScaledObjectRef.FromString(request))
        async with self._stream():
            # It changes with the metadata alone, and then KEDA calls again.
            await context.write(_packed(specs_of(trigger)))
            await self._closing.wait()

    async def _health(self, request: bytes, _context: Any) -> bytes:
        asked = health_pb2.HealthCheckRequest.FromString(request)
        if asked.service not in ("", SERVICE):
            raise QueueMissing(f"there is no service but {SERVICE}")
        is_ready = await self._asking.is_ready()
        states = health_pb2.HealthCheckResponse
        return _packed(states(status=states.SERVING if is_ready else states.NOT_SERVING))

    def _served(self, method: Method) -> Method:
        """Return *method* as grpc calls it: an error in it becomes a status and one line."""

        async def serve(request: bytes, context: Any) -> Any:
            try:
                answer = await method(request, context)
            except (DecodeError, ShardqError, Busy) as error:
                if isinstance(error, BackendError) and is_private(error) and self._seldom.is_due():
                    log.warning("a call of KEDA failed: %s", error)
                answer = await context.abort(*_status_of(error))
            except Exception:
                if self._seldom.is_due():
                    log.exception("a call of KEDA failed")
                answer = await context.abort(grpc.StatusCode.INTERNAL, FAILED)
            return answer

        return serve

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[None]:
        if self.streams >= MAX_STREAMS:
            raise Busy(f"{MAX_STREAMS} calls stay open already")
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


def _status_of(error: Exception) -> tuple[Any, str]:
    """Return the status for an error, and a line that says what is wrong."""
    if isinstance(error, DecodeError):
        return grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be read"
    if isinstance(error, BackendError):
        return grpc.StatusCode.UNAVAILABLE, public_text(error)
    kinds = (
        (QueueMissing, grpc.StatusCode.NOT_FOUND),
        (ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
        (Busy, grpc.StatusCode.RESOURCE_EXHAUSTED),
    )
    status = next((status for kind, status in kinds if isinstance(error, kind)), grpc.StatusCode.UNAVAILABLE)
    return status, " ".join(str(error).split())[:MAX_LINE]


def _trigger_of(ref: Any) -> Trigger:
    return trigger_of(dict(ref.scalerMetadata))


def _checked_name(name: str, trigger: Trigger) -> str:
    """Return the name of the metric that is asked for. ConfigError if it is not of this trigger.

    The queue's part is not looked at: another version of shardq may have named it otherwise, and KEDA still ask so.
    """
    known = {f"-{metric}" for metric in METRICS}
    if not name:
        return trigger.name
    is_ours = name.startswith("shardq-") and name.isascii() and name.isprintable() and len(name) <= MAX_NAME
    ending = f"-{name.rpartition('-')[2]}"
    if not is_ours or ending not in known or ending != f"-{trigger.policy.metric}":
        raise ConfigError(f"the metric of this trigger is {trigger.name}, which is not what was asked for")
    return name


def _packed(message: Any) -> bytes:
    packed: bytes = message.SerializeToString()
    return packed

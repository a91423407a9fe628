"""Whether anybody wants what shardq could tell. Each call looks here, so it costs next to nothing."""

from __future__ import annotations

import os
import sys
from typing import Any

from shardq.telemetry import measures
from shardq.telemetry.guard import note_failure
from shardq.telemetry.measures import measuring

_is_named = any(f"OTEL_PYTHON_{kind}_PROVIDER" in os.environ for kind in ("TRACER", "METER"))
"""Whether the environment that the process began with names a provider, which OpenTelemetry makes at its first use."""
_modules = sys.modules
_trace: Any = None
_metrics: Any = None
_context: Any = None
"""Parts of OpenTelemetry's API, once somebody has imported all of them."""
_recording: Any = _modules  # the provider that was found to record spans; at first nothing that is one


def watched() -> bool:
    """Return whether anybody wants spans, or what is measured."""
    # To ask the API takes several times as long as to see whether a provider was set.
    if _trace is None:
        return _watched()
    if _trace._TRACER_PROVIDER is None and _metrics._METER_PROVIDER is None:
        return measures.is_begun or _has_context(_context)
    return True


def _watched() -> bool:
    global _trace, _metrics, _context
    if not _is_named:
        trace, metrics = _modules.get("opentelemetry.trace"), _modules.get("opentelemetry.metrics._internal")
        context = _modules.get("opentelemetry.context")
        if context is not None and hasattr(trace, "_TRACER_PROVIDER") and hasattr(metrics, "_METER_PROVIDER"):
            _trace, _metrics, _context = trace, metrics, context
    return tracing() or measuring()


def tracing() -> bool:
    """Return whether there is a provider that records spans, or a context to propagate.

    That the API was imported is not enough: redis-py imports it too.
    """
    global _recording, _is_named
    trace: Any = _modules.get("opentelemetry.trace")
    context: Any = _modules.get("opentelemetry.context")
    if trace is None or context is None:
        return _is_named
    # Where none was set, `get_tracer_provider` looks into the environment each time: half of what a check would cost.
    provider = getattr(trace, "_TRACER_PROVIDER", trace)
    if provider is None and not _is_named:
        return _has_context(context)
    if provider is _recording:
        return True
    try:
        provider = trace.get_tracer_provider()
    except Exception as error:  # noqa: BLE001 (such as of a provider that the environment names, and nobody has)
        _is_named = False
        note_failure(error)
        return _has_context(context)
    if issubclass(type(provider), trace.ProxyTracerProvider):  # nothing of the object itself is believed
        return _has_context(context)
    _recording = provider
    return True


def _has_context(context: Any) -> bool:
    try:
        return bool(context.get_current())
    except Exception as error:  # noqa: BLE001 (the program's SDK)
        note_failure(error)
        return False

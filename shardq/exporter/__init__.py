"""Numbers for graphs and autoscalers: Prometheus's text, HTTP JSON, KEDA's external scaler, and who polls for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.later import names_from

if TYPE_CHECKING:
    from shardq.exporter.observing import Observing, observe

__all__ = ["Observing", "observe"]

__getattr__ = names_from(__name__, dict.fromkeys(__all__, "shardq.exporter.observing"))
"""Most programs need no HTTP server, and a worker none of this."""

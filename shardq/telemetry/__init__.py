"""shardq's data for OpenTelemetry, and Prometheus's names for it: spans, instruments, samples, a tally of them."""

from shardq.telemetry.measures import begin_tally, end_tally
from shardq.telemetry.options import Spans
from shardq.telemetry.tally import Tally

__all__ = ["Spans", "Tally", "begin_tally", "end_tally"]

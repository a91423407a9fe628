"""What goes to one meter provider of OpenTelemetry: instruments, the values of histograms that wait, observations.

Counters and gauges are read from the tally when the provider collects. The values of histograms wait for that, too,
MAX_PENDING at most: an SDK takes several microseconds to record one, longer than all else that is measured of a call.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from shardq.telemetry.instruments import (
    BUSY,
    CONSUMED,
    DEAD_LETTERED,
    INSTRUMENTS,
    LEASE_LOST,
    OLDEST_JOB,
    PORT,
    REDELIVERED,
    REFUSED,
    RETRIED,
    SENT,
    SLOTS,
    SYSTEM,
    Instrument,
)
from shardq.telemetry.sample import Labels
from shardq.telemetry.tally import Tally

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
MAX_PENDING: Final = 4_096
"""Values of histograms that wait to be collected. Further ones are recorded at once."""
COUNTED: Final = (SENT, CONSUMED, RETRIED, DEAD_LETTERED, LEASE_LOST, REFUSED, SLOTS, BUSY, OLDEST_JOB)
"""What clients and workers measure besides histograms."""


class Export:
    """The instruments of one meter *provider*. *note_failure* is told of what fails there, once."""

    def __init__(self, provider: Any, tally: Tally, note_failure: Callable[[Any, Exception], object]) -> None:
        self.provider, self._tally, self._note_failure = provider, tally, note_failure
        self._meter = provider.get_meter("shardq", schema_url=SCHEMA_URL)
        self._pending: deque[tuple[Any, float, dict[str, Any]]] = deque()
        self._works = True
        self._observed: set[str] = set()
        self.histograms = {
            each.name: self._meter.create_histogram(
                each.name, each.unit, each.about, explicit_bucket_boundaries_advisory=each.buckets
            )
            for each in INSTRUMENTS
            if each.kind == "histogram"
        }
        self.observe(COUNTED)

    def observe(self, instruments: Collection[Instrument]) -> None:
        """Let the provider ask for the values of these, when it collects."""
        for each in instruments:
            if each.name not in self._observed and each.kind != "histogram":
                self._observed.add(each.name)
                kind = {"counter": "counter", "sum": "up_down_counter", "gauge": "gauge"}[each.kind]
                create = getattr(self._meter, f"create_observable_{kind}")
                create(each.name, [lambda _, which=each: self._observations(which)], each.unit, each.about)

    def _observations(self, instrument: Instrument) -> list[Any]:
        from opentelemetry.metrics import Observation

        self.flush()
        return [
            Observation(cast("float", value), attributes_of(labels))
            for value, labels in self._tally.observed(instrument)
            if math.isfinite(cast("float", value))  # SDKs refuse others, and log that each time
        ]

    def record(self, histogram: Any, value: float, attributes: dict[str, Any]) -> None:
        """Record *value* when the provider collects, or at once if many wait for that."""
        if len(self._pending) < MAX_PENDING:
            self._pending.append((histogram, value, attributes))
        else:
            self._record(histogram, value, attributes)

    def flush(self) -> None:
        """Record what waits."""
        for _ in range(len(self._pending)):
            try:
                waiting = self._pending.popleft()
            except IndexError:  # another thread collects, too
                return
            self._record(*waiting)

    def forget(self) -> None:
        """Forget what waits: in a child process, since its parent records that."""
        self._pending.clear()

    def _record(self, histogram: Any, value: float, attributes: dict[str, Any]) -> None:
        if self._works:
            try:
                histogram.record(value, attributes)
            except Exception as error:  # noqa: BLE001 (the program's SDK)
                self._works = False
                self._note_failure(self.provider, error)


def attributes_of(labels: Labels) -> dict[str, Any]:
    """Return labels as OpenTelemetry has them: with the system, and with types."""
    found: dict[str, Any] = {SYSTEM: "shardq", **dict(labels)}
    if PORT in found:
        found[PORT] = int(found[PORT])
    if REDELIVERED in found:
        found[REDELIVERED] = found[REDELIVERED] == "true"
    return found

"""The data for one meter provider of OpenTelemetry: instruments, the values of histograms that wait, observations.

Counters and gauges are read from the tally when the provider collects. The values of histograms wait for that, too, up
to a bound: an SDK takes several microseconds to record one, longer than all else that is measured of a call. A reader
collects once a minute unless it is set otherwise, so there is room for the values of a busy process in that time. They
wait as plain numbers in an array: to keep an object for each costs more than to measure it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock
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
from shardq.version import __version__

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
MAX_WAITING: Final = 65_536
"""Values of all histograms that wait to be collected: half a MB, and half a second of a processor for the SDK.

Further ones are recorded at once. More would be too many: an SDK gives a collection up after 10 s, and on a busy
machine this process may get a twentieth of a processor.
"""
VALUES_AT_ONCE: Final = 64
"""Values for which a series gets room at once."""
COUNTERS: Final = (SENT, CONSUMED, RETRIED, DEAD_LETTERED, LEASE_LOST, REFUSED, SLOTS, BUSY, OLDEST_JOB)
"""The measures of clients and workers besides histograms."""


class Export:
    """The instruments of one meter *provider*. *note_failure* is called with a failure there, once."""

    def __init__(self, provider: Any, tally: Tally, note_failure: Callable[[Any, Exception], object]) -> None:
        self.provider, self._tally, self._note_failure = provider, tally, note_failure
        self._meter = provider.get_meter("shardq", __version__, schema_url=SCHEMA_URL)
        self._waiting: dict[tuple[str, Labels], WaitingValues] = {}
        self._room = SeriesRoom(MAX_WAITING)
        self._lock = Lock()
        self._works = True
        self._observed: set[str] = set()
        self._histograms = {
            each.name: self._meter.create_histogram(
                each.name, each.unit, each.about, explicit_bucket_boundaries_advisory=each.buckets
            )
            for each in INSTRUMENTS
            if each.kind == "histogram"
        }
        self.observe(COUNTERS)

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

    def waiting(self, instrument: Instrument, labels: Labels) -> WaitingValues:
        """Return where values of a histogram wait that have these labels."""
        with self._lock:
            found = self._waiting.get((instrument.name, labels))
            if found is None:
                histogram, attributes = self._histograms[instrument.name], attributes_of(labels)
                found = WaitingValues(lambda values: self._record(histogram, values, attributes), self._room)
                self._waiting[instrument.name, labels] = found
            return found

    def flush(self) -> None:
        """Record what waits."""
        with self._lock:
            waiting = [*self._waiting.values()]
        for each in waiting:
            each.flush()

    def forget(self) -> None:
        """Forget what waits: in a child process, since its parent records that."""
        self._lock = Lock()
        self._room.forget()
        for each in self._waiting.values():
            each.forget()

    def _record(self, histogram: Any, values: Iterable[float], attributes: dict[str, Any]) -> None:
        if self._works:
            try:
                for value in values:
                    histogram.record(value, attributes)
            except Exception as error:  # noqa: BLE001 (the program's SDK)
                self._works = False
                self._note_failure(self.provider, error)


class SeriesRoom:
    """Room for *many* values, which series of histograms share. Safe across threads."""

    def __init__(self, many: int) -> None:
        self._many = self._left = many
        self._lock = Lock()

    def take(self, many: int) -> bool:
        """Take room for *many* values, if there is as much."""
        with self._lock:
            if has_room := self._left >= many:
                self._left -= many
            return has_room

    def give_back(self, many: int) -> None:
        """Give room back that was taken."""
        with self._lock:
            self._left += many

    def forget(self) -> None:
        """All room is there again, in a child process."""
        self._lock, self._left = Lock(), self._many


class WaitingValues:
    """Values of one series of a histogram that wait until somebody collects them, as many as it gets *room* for."""

    __slots__ = ("_lock", "_record", "_room", "_taken", "_values")

    def __init__(self, record: Callable[[Iterable[float]], object], room: SeriesRoom) -> None:
        self._record, self._room = record, room
        self._values, self._lock = array("d"), Lock()
        self._taken = 0

    def add(self, value: float) -> None:
        """Let *value* wait, or record it at once."""
        if len(self._values) < self._taken or self._take(1):
            self._values.append(value)
        else:
            self._record((value,))

    def add_each(self, values: Sequence[float]) -> None:
        """Let *values* wait, or record them at once."""
        if len(self._values) + len(values) <= self._taken or self._take(len(values)):
            self._values.extend(array("d", values))
        else:
            self._record(values)

    def flush(self) -> None:
        """Record what waits."""
        if not self._values:  # as of most series of a process with many queues
            return
        with self._lock:  # of several threads that collect, each takes values of its own; others may add meanwhile
            values = self._values[:]
            del self._values[: len(values)]
            taken, self._taken = self._taken, 0
        self._room.give_back(taken)
        self._record(values)

    def forget(self) -> None:
        """Forget what waits."""
        self._values, self._lock, self._taken = array("d"), Lock(), 0

    def _take(self, count: int) -> bool:
        """Take room for *count* values more. Threads that add at once may find a few more in it than it is for."""
        with self._lock:
            missing = len(self._values) + count - self._taken
            pieces = -(-missing // VALUES_AT_ONCE)
            if pieces > 0 and not self._room.take(pieces * VALUES_AT_ONCE):
                return False
            self._taken += pieces * VALUES_AT_ONCE
            return True


def attributes_of(labels: Labels) -> dict[str, Any]:
    """Return labels as OpenTelemetry has them: with the system, and with types."""
    found: dict[str, Any] = {SYSTEM: "shardq", **dict(labels)}
    if PORT in found:
        found[PORT] = int(found[PORT])
    if REDELIVERED in found:
        found[REDELIVERED] = found[REDELIVERED] == "true"
    return found

"""What OpenTelemetry gets of what is measured: names, units, buckets, attributes; and what it costs if nobody looks."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from opentelemetry.metrics import NoOpMeterProvider, _internal
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from shardq import Queue, __version__
from shardq.telemetry import Tally, export, measures
from shardq.telemetry.instruments import (
    BUSY,
    CONSUMED,
    DURATION,
    INSTRUMENTS,
    PICKUP,
    PROCESS,
    QUEUE,
    REFUSED,
    RETRIED,
    SENT,
    Instrument,
)
from shardq.telemetry.measures import unwatch, watch
from shardq.testing import ManualClock, fake_client
from tests.report import SEED
from tests.telemetry import measuring


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    with measuring.metrics_on() as reader:
        yield reader


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> Queue:
    return fake_client(clock=clock).queue("jobs", create=True)


def test_an_sdk_gets_names_units_buckets_and_attributes(
    reader: InMemoryMetricReader, queue: Queue, clock: ManualClock
) -> None:
    queue.write(1, shard_key="t")
    clock.advance(7)
    delivery = queue.read(visibility_timeout=600)
    with delivery.processing():
        clock.advance(100)
    delivery.nack()
    queue.read().ack()
    common = {
        "messaging.system": "shardq", "messaging.destination.name": "jobs", "server.address": "localhost",
        "server.port": 6379,
    }  # fmt: skip
    [(held, process)] = measuring.points(reader, PROCESS)
    assert held == {**common, "messaging.operation.name": "process"}
    assert (process.explicit_bounds, process.bucket_counts) == (PROCESS.buckets, (*[0] * 13, 1, 0, 0))
    queue.write(1, shard_key="t")
    assert measuring.points(reader, SENT)[0][0] == {**common, "messaging.operation.name": "write"}
    assert [point.value for _, point in measuring.points(reader, SENT)] == [2]
    found = {held["shardq.redelivered"]: point for held, point in measuring.points(reader, PICKUP)}
    assert {again: (point.count, point.sum) for again, point in found.items()} == {False: (1, 7.0), True: (1, 0.0)}
    kinds = {held["messaging.operation.name"]: held for held, _ in measuring.points(reader, DURATION)}
    assert {name: held.get("messaging.operation.type") for name, held in kinds.items()} == {
        "write": "send", "read": "receive", "nack": "settle", "ack": "settle",
    }  # fmt: skip
    data = cast("Any", reader.get_metrics_data())
    scope = data.resource_metrics[0].scope_metrics[0].scope
    assert (scope.name, scope.version) == ("shardq", __version__)
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    by_name = {each.name: each for each in INSTRUMENTS}
    assert {name: (metric.unit, metric.description) for name, metric in metrics.items()} == {
        name: (by_name[name].unit, by_name[name].about) for name in metrics
    }


def test_what_a_queue_may_refuse_begins_at_0(reader: InMemoryMetricReader, queue: Queue) -> None:
    queue.read_many(1)
    assert measuring.points(reader, REFUSED) == []
    queue.write(1, shard_key="t")
    assert {held["shardq.reason"]: point.value for held, point in measuring.points(reader, REFUSED)} == {
        "max_len": 0, "max_dedup": 0, "max_backlog": 0, "unique": 0, "out of memory": 0,
    }  # fmt: skip


def test_counters_are_counted_once_however_often_they_are_collected(reader: InMemoryMetricReader, queue: Queue) -> None:
    for _ in range(3):
        queue.write(1, shard_key="t")
        reader.get_metrics_data()
    queue.read_many(3)
    assert [point.value for _, point in measuring.points(reader, SENT)] == [3]
    assert [point.value for _, point in measuring.points(reader, CONSUMED)] == [3]
    assert {held["messaging.operation.name"]: point.count for held, point in measuring.points(reader, DURATION)} == {
        "write": 3, "read": 1,
    }  # fmt: skip


def test_threads_that_find_a_provider_at_once_make_its_instruments_once(reader: InMemoryMetricReader) -> None:
    together, count = threading.Barrier(8), 50

    def write(queue: Queue) -> None:
        together.wait(60)
        for number in range(count):
            queue.write(number, shard_key="t")

    threads = [threading.Thread(target=write, args=(fake_client().queue("jobs", create=True),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [point.value for _, point in measuring.points(reader, SENT)] == [8 * count]
    assert [point.count for _, point in measuring.points(reader, DURATION)] == [8 * count]


def waits() -> list[int]:
    """How many values of each histogram wait to be collected."""
    return [len(each._values) for each in cast("Any", measures._export)._waiting.values()]


def test_values_that_nobody_collects_stay_few(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of further ones are recorded at once: none is lost."""
    monkeypatch.setattr(export, "MAX_WAITING", 20)
    monkeypatch.setattr(export, "VALUES_AT_ONCE", 10)
    with measuring.metrics_on() as reader:
        for number in range(30):
            queue.write(number, shard_key="t")
        assert waits() == [20]
        queue.ack_many(queue.read_many(30))
        assert waits() == [20, 0, 0, 0]
        found = {held["messaging.operation.name"]: point.count for held, point in measuring.points(reader, DURATION)}
        assert found == {"write": 30, "read": 1, "ack": 1}
        assert [point.count for _, point in measuring.points(reader, PICKUP)] == [30]
        for number in range(11):  # what was collected has made room
            queue.write(number, shard_key="t")
        assert waits() == [11, 0, 0, 0]


def test_a_busy_series_has_the_room_that_others_do_not_need() -> None:
    """An SDK collects once a minute by itself, and a worker may run hundreds of jobs a second."""
    taken: list[float] = []
    room = export.SeriesRoom(export.MAX_WAITING)
    busy, idle = (export.WaitingValues(taken.extend, room) for _ in range(2))
    idle.add(1)
    for _ in range(60):
        busy.add_each([0.5] * 1_000)
    assert taken == []
    busy.flush()
    idle.flush()
    assert len(taken) == 60_001
    assert room._left == export.MAX_WAITING


def test_a_forked_child_has_all_the_room(reader: InMemoryMetricReader, queue: Queue) -> None:
    """What its parent has in there is told by that."""
    queue.write(1, shard_key="t")
    kept = cast("Any", measures._export)
    assert kept._room._left < export.MAX_WAITING
    kept.forget()
    assert (kept._room._left, waits()) == (export.MAX_WAITING, [0])
    queue.write(2, shard_key="t")
    assert waits() == [1]


def test_threads_that_collect_while_others_measure_take_each_value_once() -> None:
    taken: list[float] = []
    waiting = export.WaitingValues(taken.extend, export.SeriesRoom(128))
    together, is_over = threading.Barrier(4), threading.Event()

    def add(first: int) -> None:
        together.wait(60)
        for number in range(first, first + 20_000, 4):
            waiting.add(number)
            waiting.add_each([number + 1, number + 2, number + 3])

    def collect() -> None:
        together.wait(60)
        while not is_over.is_set():
            waiting.flush()

    adding = [threading.Thread(target=add, args=(first,)) for first in (0, 20_000)]
    collecting = [threading.Thread(target=collect) for _ in range(2)]
    for thread in (*adding, *collecting):
        thread.start()
    for thread in adding:
        thread.join(60)
    is_over.set()
    for thread in collecting:
        thread.join(60)
    waiting.flush()
    assert sorted(taken) == list(range(40_000))


def test_a_source_is_asked_when_an_sdk_collects(reader: InMemoryMetricReader, queue: Queue) -> None:
    source = watch((BUSY,), lambda: [(BUSY, 3, ((QUEUE, "jobs"),))])
    queue.write(1, shard_key="t")
    assert [point.value for _, point in measuring.points(reader, BUSY)] == [3]
    unwatch(source)
    assert measuring.points(reader, BUSY) == []


def test_a_provider_may_come_late_and_a_tally_go(queue: Queue) -> None:
    with measuring.tally_on() as tally:
        queue.write(1, shard_key="t")
        before, late = _internal._METER_PROVIDER, InMemoryMetricReader()
        _internal._METER_PROVIDER = MeterProvider([late])
        queue.write(2, shard_key="t")
        measures.end_tally()
        queue.write(3, shard_key="t")
        _internal._METER_PROVIDER = before
        queue.write(4, shard_key="t")
        assert [point.count for _, point in measuring.points(late, DURATION)] == [2]
        assert sum(measuring.values(tally, DURATION)["write",].counts) == 2


def test_a_provider_that_exports_nothing_costs_no_measuring(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with measuring.nothing_measured():
        monkeypatch.setattr(_internal, "_METER_PROVIDER", NoOpMeterProvider())
        queue.write(1, shard_key="t")
        assert not measures.measuring()
        assert measures._tally is None


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("no room")


@pytest.mark.parametrize(
    ("what", "name"), [(MeterProvider, "get_meter"), (Histogram, "record"), (_internal, "get_meter_provider")]
)
def test_an_sdk_that_fails_is_logged_once_and_fails_no_call(
    what: Any, name: str, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(export, "MAX_WAITING", 2)
    monkeypatch.setattr(export, "VALUES_AT_ONCE", 1)
    monkeypatch.setattr(what, name, fail)
    monkeypatch.setattr("opentelemetry.metrics.get_meter_provider", _internal.get_meter_provider)
    with measuring.metrics_on() as reader, caplog.at_level(logging.ERROR):
        for number in range(5):
            queue.write(number, shard_key="t")
        queue.ack_many(queue.read_many(5))
        reader.get_metrics_data()
    assert queue.stats().acked == 5
    assert [each.getMessage() for each in caplog.records].count(measures._FAILS) == 1


def quantile(share: float, counts: tuple[int, ...]) -> int:
    """The bucket in which so many of all values lie below."""
    wanted, seen = share * sum(counts), 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return bucket
    raise AssertionError


def bucket_of(value: float, instrument: Instrument) -> int:
    return sum(bound < value for bound in instrument.buckets)


@pytest.mark.parametrize("spread", ["log", "short", "long", "two kinds"])
def test_p50_and_p99_of_jobs_of_4_ms_to_10_min_are_within_a_bucket(
    spread: str, clock: ManualClock, queue: Queue
) -> None:
    """The same from an SDK and from a tally, through what a program calls around its work."""
    dice = random.Random(f"{SEED} {spread}")
    spreads: dict[str, Callable[[], float]] = {
        "log": lambda: 0.004 * (600 / 0.004) ** dice.random(),
        "short": lambda: min(600.0, 0.004 + dice.expovariate(100)),
        "long": lambda: dice.uniform(0.004, 600),
        "two kinds": lambda: dice.choice((0.02, 0.02, 0.02, 240.0)) * dice.uniform(0.5, 2),
    }
    given: list[float] = []
    queue.write(1, shard_key="t")
    with measuring.metrics_on() as reader:
        tally = measures.begin_tally()
        delivery = queue.read(visibility_timeout=60)
        for _ in range(400):
            given.append(spreads[spread]())
            with delivery.processing():
                clock.advance(given[-1])
        [(_, point)] = measuring.points(reader, PROCESS)
        [counted] = measuring.values(tally, PROCESS).values()
    assert point.bucket_counts == counted.counts
    assert counted.total == pytest.approx(sum(given))
    for share in (0.5, 0.99):
        truth = sorted(given)[int(share * len(given)) - 1]
        assert abs(quantile(share, counted.counts) - bucket_of(truth, PROCESS)) <= 1


WITHOUT = """
import sys

from shardq import Worker
from shardq.testing import fake_client
from shardq.telemetry import Tally, begin_tally, measures, tally

def never(*_):
    raise AssertionError("something is counted")

tally.Series.add = tally.Series.add_each = never
before = {name for name in sys.modules if name.startswith("opentelemetry")}
client = fake_client()
queue = client.queue("jobs", create=True)
queue.write("x", shard_key="t")
queue.write_many([("y", "t"), ("z", "t")])
client.bind("orders.#", queue)
client.publish("orders.eu", "x", shard_key="t")
with client.writer() as writer:
    writer.write(queue, "x", shard_key="t")
delivery = queue.read()
with delivery.processing():
    delivery.ack()
Worker(queue, lambda _: None, until="empty", signals=False).run()
assert queue.stats().acked == 5
assert {name for name in sys.modules if name.startswith("opentelemetry")} == before
assert measures._export is None
tally.Series.add = lambda self, value: print(self.instrument.name)
begin_tally()
queue.write("x", shard_key="t")
"""


def test_without_an_sdk_nothing_is_imported_or_counted() -> None:
    """Unless somebody wants it, as at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    told = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, env=environment, timeout=120)
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == [DURATION.name, SENT.name]


def test_a_provider_of_metrics_that_the_environment_names_is_made() -> None:
    code = "from shardq.telemetry.measures import measuring; print(measuring())"
    environment = {**os.environ, "OTEL_PYTHON_METER_PROVIDER": "sdk_meter_provider", "OTEL_METRICS_EXPORTER": "none"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert told.stdout.split() == ["True"], told.stderr


def test_the_tables_names_are_told_apart() -> None:
    for name in ("name", "text"):
        assert len({getattr(each, name) for each in INSTRUMENTS}) == len(INSTRUMENTS)
    assert all(bool(each.buckets) == (each.kind == "histogram") for each in INSTRUMENTS)
    assert all(list(each.buckets) == sorted(set(each.buckets)) for each in INSTRUMENTS)
    assert RETRIED.text.endswith("_total")
    assert Tally().samples() == []

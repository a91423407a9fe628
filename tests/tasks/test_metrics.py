"""What is measured of tasks: how long they ran, and with which errors, with the names of at most 100 of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from shardq import Client, Nack
from shardq.backoff import Constant
from shardq.tasks import PartlyFailed, Tasks, finding
from shardq.telemetry.instruments import DEAD_LETTERED, PROCESS
from tests.tasks.conftest import Work
from tests.telemetry import measuring
from tests.worker.ends.errors import OfUnnamed
from tests.worker.running import FunctionKind, of_kind

pytestmark = pytest.mark.runs_in("test-all")


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    with measuring.metrics_on() as reader:
        yield reader


def points(reader: InMemoryMetricReader) -> dict[tuple[str, str, str], tuple[int, float]]:
    """By queue, task and error: how often it ran, and for how many seconds."""
    found: dict[tuple[str, str, str], tuple[int, float]] = {}
    for at, point in measuring.points(reader, PROCESS):
        assert (at["messaging.system"], at["messaging.operation.name"]) == ("shardq", "process")
        key = at["messaging.destination.name"], at["shardq.task"], at.get("error.type", "")
        found[key] = point.count, point.sum
    return found


@pytest.mark.runs_in("test", "test-all")
def test_how_often_each_task_ran_and_failed_and_for_how_long(
    reader: InMemoryMetricReader, client: Client, work: Work, functions: FunctionKind
) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    def raises(secret: str) -> None:
        raise ValueError(secret)

    def waits() -> None:
        if tasks.delivery.count == 1:
            raise Nack(0)

    fails: Any = tasks.task(name="fails", retries=1, backoff=Constant(0))(of_kind(functions, raises))
    later: Any = tasks.task(name="later")(of_kind(functions, waits))
    tasks.task(name="f")(of_kind(functions, lambda: None))
    queue = client.queue(tasks)
    queue.write_many([(call, "t") for call in (["f", {}], ["f", {}], later.call(), fails.call("secret"))])
    queue.write_many([(call, "t") for call in (["nobody", {}], ["f", {"no": 1}], "no call")])
    work(tasks)
    found = points(reader)
    assert {key: count for key, (count, _) in found.items()} == {
        ("jobs", "f", ""): 2,
        ("jobs", "later", ""): 1,
        ("jobs", "later", "Nack"): 1,
        ("jobs", "fails", "ValueError"): 2,
        ("jobs", "other", "Reject"): 1,
    }
    assert all(seconds >= 0 for _, seconds in found.values())


def test_a_class_that_cannot_say_its_name_is_named_all_the_same(
    reader: InMemoryMetricReader, client: Client, work: Work
) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.task(name="fails", retries=0)
    def fails() -> None:
        raise OfUnnamed

    client.queue(tasks).write(fails.call(), shard_key="t")
    work(tasks)
    assert {key: count for key, (count, _) in points(reader).items()} == {("jobs", "fails", "OfUnnamed"): 1}
    assert [letter.last_error.partition(" ")[0] for letter in client.queue(tasks).dead()] == ["OfUnnamed"]


def test_a_process_has_at_most_100_names(reader: InMemoryMetricReader, client: Client, work: Work) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    names = [f"task-{number}" for number in range(150)]
    for name in names:
        tasks.task(name=name)(lambda: None)
    client.queue(tasks).write_many([([name, {}], "t") for name in (*names, *names)])
    work(tasks)
    found = points(reader)
    assert len(found) == 101
    assert found["jobs", "other", ""][0] == 100
    assert sum(count for count, _ in found.values()) == 300


def test_names_that_no_task_has_are_not_kept(
    reader: InMemoryMetricReader, client: Client, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who may write can invent them, and they are rejected in the end."""
    monkeypatch.setattr(finding, "UNKNOWN_SECONDS", -1.0)
    tasks: Tasks[None] = Tasks("jobs")
    client.queue(tasks).write_many([([f"invented-{number}", {}], "t") for number in range(5)])
    work(tasks)
    assert {key: count for key, (count, _) in points(reader).items()} == {("jobs", "other", "Reject"): 5}


def test_metrics_that_fail_do_not_fail_a_task(
    reader: InMemoryMetricReader,
    client: Client,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr("opentelemetry.sdk.metrics.Histogram.record", fail)
    tasks: Tasks[None] = Tasks("jobs")
    tasks.task(name="f")(lambda: None)
    client.queue(tasks).write_many([(["f", {}], "t")] * 3)
    work(tasks)
    assert client.queue(tasks).stats().acked == 3
    assert points(reader) == {}
    assert sum("metrics fail" in each.message for each in caplog.records) == 1


def test_each_member_of_a_batch_has_the_time_of_the_batch_and_its_own_error(
    reader: InMemoryMetricReader, client: Client, work: Work
) -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.batch(name="many", size=3, wait=60, retries=0)
    async def many(numbers: list[int]) -> None:
        await asyncio.sleep(0.05)
        raise PartlyFailed({numbers.index(1): ValueError("secret")})

    client.queue(tasks).write_many([(many.call(number), "t") for number in range(3)])
    work(tasks)
    found = points(reader)
    assert {key[2]: count for key, (count, _) in found.items()} == {"": 2, "ValueError": 1}
    assert found["jobs", "many", ""][1] >= 2 * 0.04
    dead = {
        (at["shardq.task"], at["shardq.reason"]): point.value
        for at, point in measuring.points(reader, DEAD_LETTERED)
        if point.value  # those that did not happen yet stand at 0
    }
    assert dead == {("many", "dead"): 1}

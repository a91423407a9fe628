"""Queues that are deleted, or made anew, while a query consumes them: it starts from its checkpoint, and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq import Client, QueueMissing
from shardq.client import Queue
from shardq.ops.settle.settle import Settled, ack
from shardq.spark.consume.fetch import read_leased
from shardq.spark.consume.lease import unpacked
from shardq.spark.consume.settling import _settle, settle_last
from shardq.spark.consume.stream import ConsumingReader
from shardq.spark.options import Consuming, Leasing
from shardq.spark.schema import arrow_schema, table_schema
from tests.spark.consume.queries import Sink, consuming_query, drain
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)
Make = Callable[[str], Queue]
GONE = "there is no queue"


@pytest.fixture
def make(client: Client, queue_name: str) -> Make:
    """Makes a queue, also one that was deleted before."""

    def make(name: str) -> Queue:
        queue = client.queue(f"{queue_name}-{name}", streams=4, visibility_timeout=600)
        queue.read_many(1)
        return queue

    return make


def fill(queue: Queue, count: int, first: int = 0) -> None:
    queue.write_many([(f"{at}".encode(), f"tenant-{at % 10}") for at in range(first, first + count)])


def reader_of(url: str, *queues: Queue) -> ConsumingReader:
    options = Consuming(url=url, subscribe=",".join(each.name for each in queues))
    return ConsumingReader(options, arrow_schema(table_schema("leased")))


def older(offset: Any) -> Any:
    """The offset as a version wrote it that knew no ids."""
    return {key: value for key, value in offset.items() if key != "ids"}


VERSIONS = pytest.mark.parametrize("version", [lambda offset: offset, older], ids=["now", "older"])


@VERSIONS
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("anew", [True, False])
def test_a_query_goes_on_without_a_queue_that_is_deleted(
    url: str, make: Make, caplog: pytest.LogCaptureFixture, version: Any, named: bool, anew: bool
) -> None:
    """It raised QueueMissing at each start, when it settled its last micro-batch, though nobody named the queue."""
    stays, goes = make("a"), make("b")
    fill(stays, 10)
    fill(goes, 10)
    first = reader_of(url, stays, goes)
    start = first.initialOffset()
    end = first.latestOffset(start)
    assert end["rows"] == {stays.name: 10, goes.name: 10}
    first.stop()
    goes.delete(expected=None)
    if anew:
        fill(make("b"), 7)
    fill(stays, 5)
    end, again = version(end), reader_of(url, *([stays, goes] if named else [stays]))
    replayed = again.partitions(start, end)
    assert {queue for part in replayed for queue, _ in part.leases} == {stays.name}
    following = again.latestOffset(end)
    again.stop()
    assert following["rows"] == {stays.name: 5, **({goes.name: 7} if named and anew else {})}
    assert stays.stats().acked == 10
    if anew:
        assert (goes.stats().acked, goes.stats().in_flight) == (0, 7 if named else 0)
    told = [each.getMessage() for each in caplog.records if GONE in each.message]
    if version is older and anew:
        return  # nobody knows that it is another queue
    assert told[:1] == [f"{GONE} {goes.name!r} any more: what this query held of it went with it"]
    assert "settled before, or come again" not in caplog.text


def test_a_query_that_runs_waits_for_a_queue_to_be_made_anew(
    url: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make("a")
    fill(queue, 10)
    reader = reader_of(url, queue)
    offset = reader.latestOffset(reader.initialOffset())
    queue.delete(expected=None)
    for _ in range(3):
        assert reader.latestOffset(offset) == offset
    assert len([each for each in caplog.records if GONE in each.message]) == 1
    fill(make("a"), 4)
    offset = reader.latestOffset(offset)
    assert offset["rows"] == {queue.name: 4}
    assert offset["ids"] == {queue.name: queue.stats().id}
    reader.latestOffset(offset)
    reader.stop()
    assert queue.stats().acked == 4


def test_a_new_query_must_not_name_a_queue_that_is_not_there(url: str, make: Make) -> None:
    stays, goes = make("a"), make("b")
    goes.delete(expected=None)
    fill(stays, 5)
    reader = reader_of(url, stays, goes)
    start = reader.initialOffset()
    for _ in range(2):
        with pytest.raises(QueueMissing, match=GONE):
            reader.latestOffset(start)
    assert stays.stats().in_flight == 0
    reader.partitions(start, start)  # but if its first micro-batch was planned, it was there
    assert reader.latestOffset(start)["rows"] == {stays.name: 5}
    reader.stop()


def test_tasks_find_no_rows_of_a_queue_that_is_deleted_and_count_them_as_lost(url: str, make: Make) -> None:
    queue = make("a")
    fill(queue, 10)
    reader = reader_of(url, queue)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start))
    leases = [lease for part in parts for _, some in part.leases for lease in unpacked(some)]
    assert len(leases) == 10
    reader.stop()
    for anew in (False, True):
        queue.delete(expected=None)
        if anew:
            fill(make("a"), 10)
        options = Leasing(url=url)
        assert [*read_leased(options, reader.schema, queue.name, leases)] == []
        acked = _settle(options, lambda state, held, _: ack(state, held), [each.text for each in leases], [""] * 10)
        assert [*acked] == [Settled.LOST.value] * 10


def aged(checkpoint: Path) -> None:
    """Make the checkpoint one of a version that knew no ids."""
    for each in (checkpoint / "offsets").iterdir():
        *head, last = each.read_text().splitlines()
        each.write_text("\n".join([*head, json.dumps(older(json.loads(last)))]))


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("old", [False, True], ids=["now", "older"])
def test_a_query_starts_from_its_checkpoint_whatever_became_of_its_queues(
    spark: Any, url: str, make: Make, tmp_path: Path, old: bool
) -> None:
    """One is deleted, one made anew, one is not named any more and deleted."""
    queues = [make(name) for name in ("stays", "goes", "anew", "left")]
    stays, goes, anew, left = queues
    for at, queue in enumerate(queues):
        fill(queue, 10, 100 * at)
    sink, checkpoint = Sink(tmp_path / "sink"), tmp_path / "checkpoint"
    names = ",".join(each.name for each in queues)
    query = consuming_query(spark, url, sink, checkpoint, {"processingTime": "1 hour"}, subscribe=names)
    eventually(lambda: query.lastProgress is not None, 120)
    query.stop()
    if old:
        aged(checkpoint)
    for queue in (goes, anew, left):
        queue.delete(expected=None)
    fill(make("anew"), 10, 500)
    fill(stays, 10, 600)
    drain(spark, url, sink, checkpoint, subscribe=",".join(each.name for each in (stays, goes, anew)))
    assert sink.numbers(spark) == sorted(
        number for first in (0, 100, 200, 300, 500, 600) for number in range(first, first + 10)
    )
    assert (stays.stats().acked, anew.stats().acked) == (20, 10)
    settle_last(query, url=url)

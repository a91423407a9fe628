"""Queues that are deleted, or made anew, while a stream follows them: it goes on, and calls nothing lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq import Client, ConfigError, QueueMissing
from shardq.client import Queue
from shardq.spark import Lag, lag
from shardq.spark.options import Reading
from shardq.spark.reader import read_part
from shardq.spark.schema import arrow_schema, table_schema
from shardq.spark.stream import StreamReader
from tests.servers import Server
from tests.spark.test_stream import archive, worked

pytestmark = pytest.mark.timeout(300)
Make = Callable[[str], Queue]
GONE = "there is no queue"


@pytest.fixture
def make(client: Client, queue_name: str) -> Make:
    """Makes a queue that keeps a journal, also one that was deleted before."""

    def make(name: str) -> Queue:
        queue = client.queue(f"{queue_name}-{name}", streams=4, journal=100_000)
        queue.read_many(1)
        return queue

    return make


def reading(url: str, *queues: Queue, **options: Any) -> Reading:
    return Reading(url=url, subscribe=",".join(each.name for each in queues), **{"state": "journal"} | options)


def reader_of(options: Reading) -> StreamReader:
    return StreamReader(options, arrow_schema(table_schema(options.table)))


def next_batch(options: Reading, start: Any) -> tuple[Any, dict[str, int]]:
    """What a query that is started again at *start* does first: its next offset, and how many rows of each queue."""
    reader = reader_of(options)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return end, rows_of(reader, start, end)


def rows_of(reader: StreamReader, start: Any, end: Any) -> dict[str, int]:
    found: Counter[str] = Counter()
    for part in reader.partitions(start, end):
        for batch in reader.read(part):
            found.update(batch.column("queue").to_pylist())
    return dict(found)


def older(offset: Any) -> Any:
    """The offset as a version wrote it that knew no ids."""
    return {
        name: {key: value for key, value in mark.items() if key != "id"} if isinstance(mark, dict) else mark
        for name, mark in offset.items()
    }


def pointed(offset: Any) -> Any:
    """The offset as a still older version wrote it."""
    return {name: mark["to"] for name, mark in offset.items()}


VERSIONS = pytest.mark.parametrize("version", [lambda offset: offset, older, pointed], ids=["now", "older", "points"])


@pytest.mark.parametrize("state", ["journal", "dead"])
@VERSIONS
def test_a_queue_that_is_deleted_ends_its_part(
    url: str, make: Make, version: Any, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    left, right = make("a"), make("b")
    worked(left, 20)
    start, first = next_batch(reading(url, left, right, state=state), {})
    assert set(first) == {left.name}
    left.delete(expected=None)
    worked(right, 20)
    start = version(start)
    end, second = next_batch(reading(url, left, right, state=state), start)
    assert set(second) == {right.name}
    assert end[left.name] == start[left.name]
    assert [each.getMessage() for each in caplog.records if GONE in each.message] == [
        f"{GONE} {left.name!r} any more: its part of the stream ends there"
    ]
    caplog.clear()
    worked(right, 20)
    assert set(next_batch(reading(url, right, state=state), end)[1]) == {right.name}
    assert caplog.records == []


@pytest.mark.parametrize("state", ["journal", "dead"])
@VERSIONS
def test_one_that_is_made_anew_is_read_from_its_beginning_on(
    url: str, make: Make, version: Any, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The difference of two creation times, in microseconds, was called lost."""
    queue = make("a")
    worked(queue, 20)
    options = reading(url, queue, state=state)
    start, _ = next_batch(options, {})
    queue.delete(expected=None)
    worked(make("a"), 30)
    end, second = next_batch(options, version(start))
    assert second == {queue.name: 90 if state == "journal" else 10}
    assert end[queue.name]["id"] == queue.stats().id
    assert "was deleted and created again: the stream continues at its beginning" in caplog.text
    caplog.clear()
    assert next_batch(options, end)[1] == {}
    assert caplog.records == []


def test_one_that_is_made_anew_before_it_was_read_is_read_once(url: str, make: Make) -> None:
    """Though nothing was in it when the query began, and its journal is switched on only after some messages."""
    queue, options = make("a"), None
    options = reading(url, queue)
    start = reader_of(options).initialOffset()
    queue.delete(expected=None)
    queue.write(b"x", shard_key="t")
    queue.delete(expected=None)
    queue = make("a")
    queue.configure(journal=0)
    worked(queue, 10)
    queue.configure(journal=1000)
    worked(queue, 10)
    assert next_batch(options, start)[1] == {queue.name: 31}


def test_what_one_that_is_made_anew_has_dropped_is_called_lost(url: str, make: Make, client: Client) -> None:
    queue = make("a")
    options = reading(url, queue)
    worked(queue, 10)
    start, _ = next_batch(options, {})
    queue.delete(expected=None)
    small = make("a")
    small.configure(journal=10)
    for _ in range(400):
        small.write(b"x", shard_key="t")
    kept = len(small.journal(10_000).events)
    with pytest.raises(ConfigError, match=rf"{401 - kept:,} events after position .* are lost"):
        next_batch(options, start)
    assert next_batch(reading(url, queue, fail_on_data_loss=False), start)[1] == {queue.name: kept}


def test_a_planned_batch_of_a_queue_that_is_deleted_meanwhile_has_no_rows(url: str, make: Make) -> None:
    """Spark replays it, and a task that is under way finds nothing; a batch job fails, since nothing else says so."""
    queue, other = make("a"), make("b")
    worked(queue, 20)
    worked(other, 10)
    options = reading(url, queue, other)
    reader = reader_of(options)
    end = reader.latestOffset({}, reader.getDefaultReadLimit())
    parts = reader.partitions({}, end)
    first = next(part for part in parts if part.queue == queue.name)
    for anew in (False, True):
        queue.delete(expected=None)
        if anew:
            worked(make("a"), 20)
        assert rows_of(reader_of(options), {}, end) == {other.name: 30}
        assert [*reader.read(first)] == []
        with pytest.raises(QueueMissing, match=GONE if not anew else "deleted and created again while it was read"):
            [*read_part(options, reader.schema, first)]


def test_a_task_that_finds_rows_gone_with_their_queue_calls_them_not_lost(url: str, make: Make) -> None:
    queue = make("a")
    worked(queue, 500)
    options = reading(url, queue, fetch_size=10)
    reader = reader_of(options)
    [part] = reader.partitions({}, reader.latestOffset({}, reader.getDefaultReadLimit()))
    batches = reader.read(part)
    assert next(batches).num_rows > 0
    queue.delete(expected=None)
    assert sum(batch.num_rows for batch in batches) == 0


def test_a_query_that_ends_now_leaves_what_is_made_meanwhile_to_the_next(url: str, make: Make) -> None:
    queue, other = make("a"), make("b")
    options = reading(url, queue, other)
    worked(queue, 10)
    worked(other, 10)
    reader = reader_of(options)
    reader.prepareForTriggerAvailableNow()
    queue.delete(expected=None)
    worked(make("a"), 20)
    end = reader.latestOffset({}, reader.getDefaultReadLimit())
    assert rows_of(reader, {}, end) == {other.name: 30}
    assert next_batch(options, end)[1] == {queue.name: 60}


def test_a_new_query_must_not_name_a_queue_that_is_not_there(url: str, make: Make) -> None:
    reader = reader_of(reading(url, make("a"), make("b")))
    make("b").delete(expected=None)
    start = reader.initialOffset()
    for _ in range(2):
        with pytest.raises(QueueMissing, match=GONE):
            reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, start)  # but if its first micro-batch was planned, it was there
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start


def test_a_redis_that_went_back_to_an_earlier_life_is_noticed(queue_name: str) -> None:
    """That one is not made anew: it would be read twice."""
    with Server() as saved, Client.from_url(saved.url) as client:
        queue = client.queue(queue_name, streams=4, journal=1000)
        worked(queue, 10)
        options = reading(saved.url, queue)
        saved.run("SAVE")
        queue.delete(expected=None)
        worked(queue, 10)
        start, _ = next_batch(options, {})
        saved.run("DEBUG", "RELOAD", "NOSAVE")
        with pytest.raises(ConfigError, match="Redis lost data"):
            next_batch(options, start)


def test_a_stream_is_not_said_to_be_millions_of_events_behind(url: str, make: Make) -> None:
    queue = make("a")
    worked(queue, 10)
    options = reading(url, queue)
    start, _ = next_batch(options, {})
    queue.delete(expected=None)
    worked(make("a"), 20)
    latest = reader_of(options).reportLatestOffset()
    for known in (start, older(start), pointed(start)):
        sources = [{"endOffset": json.dumps(known), "latestOffset": json.dumps(latest)}]
        found = lag({"sources": sources})[queue.name]
        assert found == Lag(60, found.seconds)
        assert 0 <= (found.seconds or 0) < 60


def aged(checkpoint: Path) -> None:
    """Make the checkpoint one of a version that knew no ids."""
    for each in (checkpoint / "offsets").iterdir():
        *head, last = each.read_text().splitlines()
        each.write_text("\n".join([*head, json.dumps(older(json.loads(last)))]))


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("state", ["journal", "dead"])
@pytest.mark.parametrize("old", [False, True], ids=["now", "older"])
def test_a_query_starts_from_its_checkpoint_whatever_became_of_its_queues(
    spark: Any, url: str, make: Make, tmp_path: Path, state: str, old: bool
) -> None:
    """One is deleted, one made anew, one is not named any more and deleted; failOnDataLoss is true."""
    stays, goes, anew, left = (make(name) for name in ("stays", "goes", "anew", "left"))
    for queue in (stays, goes, anew, left):
        worked(queue, 20)
    named = ",".join(each.name for each in (stays, goes, anew))
    archive(spark, stays, url, tmp_path, subscribe=f"{named},{left.name}", state=state)
    if old:
        aged(tmp_path / "checkpoint")
    for queue in (goes, anew, left):
        queue.delete(expected=None)
    worked(make("anew"), 30)
    worked(stays, 10)
    archive(spark, stays, url, tmp_path, subscribe=named, state=state)
    rows = spark.read.parquet(str(tmp_path / "events")).collect()
    each = (60, 30, 90) if state == "journal" else (10, 10, 10)
    assert Counter(row.queue for row in rows) == {
        stays.name: each[0] + each[1], goes.name: each[0], left.name: each[0], anew.name: each[0] + each[2]
    }  # fmt: skip

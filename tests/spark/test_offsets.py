"""What the offset of a stream remembers: queues that leave and come back, and a Redis that was rolled back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardq import Client
from shardq.client import Queue
from shardq.spark import Lag, lag
from shardq.spark.options import Reading
from shardq.spark.schema import arrow_schema, table_schema
from shardq.spark.stream import StreamReader, shares
from tests.servers import Server
from tests.spark.test_stream import archive, events, worked
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pair(client: Client, queue_name: str) -> list[Queue]:
    """Two empty queues that keep a journal."""
    queues = [client.queue(f"{queue_name}-{each}", streams=4, journal=100_000) for each in "ab"]
    for queue in queues:
        queue.read_many(1)
    return queues


@pytest.mark.parametrize("state", ["journal", "dead"])
def test_a_queue_that_leaves_and_comes_back_goes_on_where_it_was(
    spark: Any, url: str, pair: list[Queue], tmp_path: Path, state: str
) -> None:
    left, right = pair
    for both in (True, False, True):
        for queue in pair:
            worked(queue, 50)
        names = ",".join(each.name for each in (pair if both else [left]))
        archive(spark, left, url, tmp_path, subscribe=names, state=state)
    rows = spark.read.parquet(str(tmp_path / "events")).collect()
    seen = Counter((row.queue, row.number if state == "journal" else row.entry_id) for row in rows)
    assert {each: count for each, count in seen.items() if count > 1} == {}
    assert len(seen) == (2 * 3 * 150 if state == "journal" else 2 * 3 * 10)
    assert {name for name, _ in seen} == {left.name, right.name}


@pytest.fixture
def saved() -> Iterator[Server]:
    """A server of its own, to be rolled back."""
    with Server() as server:
        yield server


def journaled(server: Server, name: str) -> Queue:
    """A queue of *server* that keeps a journal."""
    queue = Client.from_url(server.url).queue(name, streams=4, journal=100_000)
    queue.read_many(1)
    return queue


def test_a_redis_that_was_rolled_back_and_went_on_is_noticed(
    spark: Any, saved: Server, queue_name: str, tmp_path: Path
) -> None:
    """Its new events have numbers that the query has passed, so it would never read them."""
    queue = journaled(saved, queue_name)
    worked(queue, 20)
    saved.run("SAVE")
    worked(queue, 20)
    archive(spark, queue, saved.url, tmp_path)
    saved.run("DEBUG", "RELOAD", "NOSAVE")  # back to what was saved
    worked(queue, 40)
    with pytest.raises(Exception, match=r"event \d+ of queue .* is another one than the query has read"):
        archive(spark, queue, saved.url, tmp_path)
    archive(spark, queue, saved.url, tmp_path, failOnDataLoss="false")
    found = [(row.number, row.message_id, row.kind) for row in events(spark, tmp_path)]
    assert len(found) == len(set(found))
    assert {(each.number, each.message_id, each.kind) for each in queue.journal(10_000).events} < set(found)


def test_a_pattern_finds_queues_and_a_stream_says_how_far_it_is_behind(
    spark: Any, url: str, client: Client, pair: list[Queue], queue_name: str
) -> None:
    """The stream waits for enough events, and a queue without a journal is none of its queues."""
    client.queue(f"{queue_name}-none", streams=4).write_many([(b"x", "t")])
    left, right = pair
    left.write_many([(b"x", "t")] * 30)
    options = {"url": url, "subscribePattern": re.escape(queue_name) + "-[a-z]+"}
    reader = spark.read.format("shardq").options(**options)
    held = {row.queue: row["count"] for row in reader.load().groupBy("queue").count().collect()}
    assert held == {left.name: 30, f"{queue_name}-none": 1}
    assert "headers" not in reader.option("includeHeaders", "false").load().columns
    assert reader.option("state", "journal").load().count() == 30
    stream = spark.readStream.format("shardq").options(**options, state="journal", startingOffsets="earliest")
    query = stream.options(minOffsetsPerTrigger=50).load().writeStream.format("noop").start()
    try:
        eventually(lambda: lag(query.lastProgress).get(left.name) == Lag(30, None), timeout=120)
        assert lag(query.lastProgress)[right.name] == Lag(0, 0.0)
        right.write_many([(b"x", "t")] * 20)
        eventually(lambda: any(each.numInputRows for each in query.recentProgress), timeout=120)
        assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [50]
        assert lag(next(each for each in query.recentProgress if each.numInputRows)) == {
            left.name: Lag(0, 0.0), right.name: Lag(0, 0.0)
        }  # fmt: skip
    finally:
        query.stop()


def test_the_first_micro_batch_is_the_same_when_it_is_replayed(
    spark: Any, url: str, pair: list[Queue], tmp_path: Path
) -> None:
    """Where a query starts may have moved by then: a stream from the latest event on lost what came between."""
    options = Reading(url=url, subscribe=pair[0].name, state="journal")
    schema = arrow_schema(table_schema("journal"))
    reader = StreamReader(options, schema)
    start = reader.initialOffset()
    pair[0].write_many([(b"x", "t")] * 20)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    restarted = StreamReader(options, schema)
    later = restarted.initialOffset()
    assert later != start
    assert (
        [(part.after, part.until) for part in restarted.partitions(later, end)]
        == [(part.after, part.until) for part in reader.partitions(start, end)]
        != []
    )


def test_a_checkpoint_of_an_older_version_goes_on(url: str, pair: list[Queue]) -> None:
    """It has points alone, and cannot know a Redis that was rolled back until the next micro-batch."""
    left, right = pair
    left.write_many([(b"x", "t")] * 20)
    right.write_many([(b"x", "t")] * 5)
    first, last = left.journal(1).events[0].number, left.journal(100).position
    reader = StreamReader(
        Reading(url=url, subscribe=f"{left.name},{right.name}", state="journal"),
        arrow_schema(table_schema("journal")),
    )
    start = {left.name: first + 4, "gone": 7}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["gone"] == 7
    parts = [(part.queue, int(part.until) - int(part.after)) for part in reader.partitions(start, end)]
    assert parts == [(left.name, 15), (right.name, 5)]
    planned = {left.name: last, "gone": 7}  # a batch that the older version has planned, and not finished
    assert [(part.after, part.until) for part in reader.partitions(start, planned)] == [(str(first + 4), str(last))]


@pytest.mark.parametrize(
    ("lags", "most", "wanted"),
    [
        ({"flood": 1_000_000, "quiet": 50}, 1000, {"flood": 950, "quiet": 50}),
        ({"a": 10, "b": 10, "c": 10}, 2, {"a": 1, "b": 1, "c": 1}),
        ({"a": 700, "b": 0}, 700, {"a": 700, "b": 0}),
        ({"a": 9, "b": 100, "c": 100}, 50, {"a": 9, "b": 20, "c": 21}),
    ],
)
def test_a_micro_batch_is_shared_fairly(lags: dict[str, int], most: int, wanted: dict[str, int]) -> None:
    assert shares(lags, most) == wanted


def test_spark_finds_the_format_by_itself(url: str, pair: list[Queue], tmp_path: Path) -> None:
    """The package lies at the top level, as in a wheel. `register` knows the cores of the cluster."""
    rows = 25_000  # enough for three tasks, if there were more cores
    for _ in range(0, rows, 5000):
        pair[0].write_many([(b"x", "t")] * min(rows, 5000))
    (tmp_path / "pyspark_shardq").symlink_to(ROOT / "shardq" / "spark" / "pyspark_shardq")
    code = (
        "import sys; from shardq.spark import register; from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "reader = spark.read.format('shardq').option('url', sys.argv[1]).option('subscribe', sys.argv[2])\n"
        "print('rows', reader.load().count())\n"
        "register(spark); print('parts', reader.load().rdd.getNumPartitions())"
    )
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYSPARK_PYTHON": sys.executable}
    told = subprocess.run(
        [sys.executable, "-c", code, url, pair[0].name], env=os.environ | paths, capture_output=True, text=True
    )
    assert told.stdout.split()[-4:] == ["rows", str(rows), "parts", "2"], told.stderr[-2000:]

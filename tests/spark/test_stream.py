"""`spark.readStream.format("shardq")`: the journal and dead letters, replayable, with lost data noticed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardq import Client, Written
from shardq.client import Queue
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


@pytest.fixture
def journaled(client: Client, queue_name: str) -> Queue:
    """An empty queue that keeps a journal."""
    queue = client.queue(queue_name, streams=8, streams_per_shard=2, journal=100_000)
    queue.read_many(1)
    return queue


def worked(queue: Queue, count: int) -> list[Written]:
    """Write *count* messages and settle them, some as dead; their ids."""
    ids = queue.write_many([(f"{at}".encode(), f"tenant-{at % 10}") for at in range(count)])
    while some := queue.read_many(500):
        queue.reject_many(some[:10], "no good")
        queue.ack_many(some[10:])
    return ids


def archive(spark: Any, queue: Queue, url: str, folder: Path, **options: object) -> list[int]:
    """Bring the archive in *folder* up to date; the rows of each micro-batch.

    Spark gives the Python process of a streaming source ten seconds to start, which a busy machine may need: then the
    query fails before it has read anything, and is started again.
    """
    while True:
        try:
            return archived(spark, queue, url, folder, **options)
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise


def archived(spark: Any, queue: Queue, url: str, folder: Path, **options: object) -> list[int]:
    """One query that does it."""
    given = {"url": url, "subscribe": queue.name, "state": "journal", "startingOffsets": "earliest", **options}
    query = (
        spark.readStream.format("shardq")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "events"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def events(spark: Any, folder: Path) -> list[Any]:
    """What the archive holds, in order."""
    return sorted(spark.read.parquet(str(folder / "events")).collect(), key=lambda row: row.number)


def test_the_journal_is_a_table(spark: Any, url: str, journaled: Queue) -> None:
    worked(journaled, 500)
    wanted = journaled.journal(10_000).events
    options = {"url": url, "subscribe": journaled.name, "state": "journal"}
    rows = sorted(spark.read.format("shardq").options(**options).load().collect(), key=lambda row: row.number)
    assert [
        (row.number, row.kind, row.message_id, row.shard_key, row.stream, row["count"], row.client or "")
        for row in rows
    ] == [
        (each.number, each.kind, each.message_id, each.shard_key, each.stream, each.count, each.client)
        for each in wanted
    ]
    assert [row.time.timestamp() for row in rows] == [each.time for each in wanted]
    assert Counter(row.kind for row in rows) == {"written": 500, "delivered": 500, "acked": 490, "rejected": 10}


def test_the_journal_is_pruned_by_time_and_shard_key(spark: Any, url: str, journaled: Queue) -> None:
    worked(journaled, 300)
    eventually(lambda: time.time() > journaled.journal(10_000).events[-1].time + 0.002)  # a later ms for what follows
    worked(journaled, 200)
    wanted = journaled.journal(10_000).events
    options = {"url": url, "subscribe": journaled.name, "state": "journal"}
    for cut in (0, 1, len(wanted) // 2, len(wanted) - 1):
        ms = round(wanted[cut].time * 1000)
        late = spark.read.format("shardq").options(**options, startingTimestamp=ms).load()
        early = spark.read.format("shardq").options(**options, endingTimestamp=ms).load()
        assert sorted(row.number for row in late.collect()) == [
            each.number for each in wanted if each.time * 1000 >= ms - 0.5
        ]
        assert early.count() == sum(1 for each in wanted if each.time * 1000 <= ms + 0.5)
    some = spark.read.format("shardq").options(**options, shardKeys="tenant-3").load().collect()
    assert sorted(row.number for row in some) == [each.number for each in wanted if each.shard_key == "tenant-3"]


def test_an_archive_of_the_journal_has_each_event_once(spark: Any, url: str, journaled: Queue, tmp_path: Path) -> None:
    """In batches of a bounded size; after a restart it goes on; and a batch that is replayed is not doubled."""
    worked(journaled, 1000)
    sizes = archive(spark, journaled, url, tmp_path, maxOffsetsPerTrigger=700)
    assert sizes == [700, 700, 700, 700, 200]
    worked(journaled, 100)
    assert archive(spark, journaled, url, tmp_path) == [300]
    for done in (tmp_path / "checkpoint" / "commits").glob("*4*"):  # as if Spark had died before it wrote that down
        done.unlink()
    worked(journaled, 10)
    archive(spark, journaled, url, tmp_path)
    wanted = [each.number for each in journaled.journal(10_000).events]
    assert [row.number for row in events(spark, tmp_path)] == wanted
    assert archive(spark, journaled, url, tmp_path) == []


def test_events_that_are_gone_before_they_were_read_fail_the_query(
    spark: Any, url: str, journaled: Queue, tmp_path: Path
) -> None:
    worked(journaled, 100)
    archive(spark, journaled, url, tmp_path)
    journaled.configure(journal=100)
    for _ in range(3):
        worked(journaled, 2000)
    with pytest.raises(Exception, match=r"events after position \d+ of the journal of queue .* are lost"):
        archive(spark, journaled, url, tmp_path)
    archive(spark, journaled, url, tmp_path, failOnDataLoss="false")
    kept = {each.number for each in journaled.journal(10_000).events}
    found = [row.number for row in events(spark, tmp_path)]
    assert kept <= set(found)
    assert len(found) == len(set(found)) < 300 + 3 * 6000


@pytest.mark.runs_in("test", "test-all")
def test_dead_letters_come_as_a_stream(spark: Any, url: str, journaled: Queue, tmp_path: Path) -> None:
    worked(journaled, 1000)
    options = {"state": "dead", "maxOffsetsPerTrigger": 7}
    sizes = archive(spark, journaled, url, tmp_path, **options)
    assert (sum(sizes), max(sizes)) == (20, 7)
    worked(journaled, 100)
    assert archive(spark, journaled, url, tmp_path, state="dead") == [10]
    found = spark.read.parquet(str(tmp_path / "events")).collect()
    assert Counter(row.message_id for row in found) == Counter(each.message_id for each in journaled.dead())


def test_what_a_queue_holds_is_no_stream(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="a stream is read with state=journal or state=dead"):
        archive(spark, queue, url, tmp_path, state="backlog")

"""Bulk writes to a queue with partitions: each row once, whatever becomes of its partitions between two tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardq import Client, ConfigError
from shardq.client import Queue
from shardq.partitions.homes import home
from shardq.protocol.ids import split
from shardq.spark.committing import commit
from shardq.spark.connection import client_of, queue_of
from shardq.spark.ops import dealing
from shardq.spark.ops.bulk import BulkOffset
from shardq.spark.ops.rows import RowPace, Rows
from shardq.spark.options import Writing
from shardq.spark.sinks import Sinks, Wrote
from tests.spark.rows import numbered, numbers, write

pytestmark = pytest.mark.timeout(300)
ROWS = 600


@pytest.fixture
def parted(client: Client, queue_name: str) -> Queue:
    """An empty queue of three partitions."""
    queue = client.queue(queue_name, partitions=3, streams=4)
    queue.declare()
    return queue


def rows_of(first: int, last: int) -> Rows:
    some = range(first, last)
    return Rows([f"tenant-{at % 40}" for at in some], "b", [f"{at}".encode() for at in some])


def one_try(url: str, queue: Queue, upto: int = ROWS, *, batch: int = 0, size: int = 150, **options: Any) -> Wrote:
    """What a task does: the rows of its partition page by page, of which the first ones are stored."""
    sinks = Sinks(Writing(url=url, queue=queue.name, chunk_size=50, **options), "w", batch, 1)
    for first in range(0, upto, size):
        sinks.of(queue.name, "0").store(rows_of(first, min(upto, first + size)))
    return sinks.finish()


def test_each_row_is_stored_once_in_its_home_though_its_task_is_tried_again(url: str, parted: Queue) -> None:
    one_try(url, parted, ROWS // 2)
    wrote = one_try(url, parted, size=70)
    assert sum(each.rows for each in wrote.stored) == ROWS
    commit(Writing(url=url, queue=parted.name), [wrote], last=True)
    found = [each for page in iter(lambda: parted.read_many(1000), []) for each in page]
    assert {split(each.message_id)[1] == home(each.shard_key, 3) for each in found} == {True}
    assert sorted(int(each.body) for each in found) == list(range(ROWS))


def test_the_next_batch_of_a_write_is_stored_and_an_earlier_one_refused(url: str, parted: Queue) -> None:
    for batch in (0, 1, 1):
        one_try(url, parted, batch=batch)
    assert numbers(parted) == sorted([*range(ROWS), *range(ROWS)])
    with pytest.raises(ConfigError, match="comes after batch 1"):
        one_try(url, parted, batch=0)


def test_other_rows_under_the_same_id_are_refused(url: str, parted: Queue) -> None:
    one_try(url, parted)
    sinks = Sinks(Writing(url=url, queue=parted.name), "w", 0, 1)
    with pytest.raises(ConfigError, match="is not the one that an earlier try"):
        sinks.of(parted.name, "0").store(rows_of(1, ROWS + 1))
    assert parted.len() == ROWS


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("after", [5, 2])
def test_a_try_after_a_resize_deals_as_the_one_before(url: str, parted: Queue, after: int) -> None:
    one_try(url, parted, ROWS // 2)
    parted.resize(partitions=after)
    one_try(url, parted)
    assert numbers(parted) == list(range(ROWS))
    one_try(url, parted)
    assert parted.len() == 0


@pytest.mark.runs_in("test-all")
def test_a_write_that_was_begun_without_partitions_goes_on_in_the_head(
    url: str, client: Client, queue_name: str
) -> None:
    queue = client.queue(queue_name, streams=4)
    queue.declare()
    one_try(url, queue, ROWS // 2)
    queue.resize(partitions=3)
    one_try(url, queue)
    one_try(url, queue, batch=1)
    assert numbers(client.queue(queue_name)) == sorted([*range(ROWS), *range(ROWS)])


def test_rows_are_refused_whose_partition_is_gone_or_was_made_anew(
    url: str, parted: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Writing(url=url, queue=parted.name)
    state = queue_of(options, parted.name)
    client_of(options).run(dealing.dealing(state, BulkOffset("w", "0", began=1), 5, RowPace()))
    with pytest.raises(ConfigError, match=r"were dealt to 5 partitions of the queue, and partition [34] is gone"):
        one_try(url, parted)
    monkeypatch.setattr(dealing, "_MIN_YOUNGER_MS", -(10**6))
    with pytest.raises(ConfigError, match=r"were dealt to 3 partitions of the queue, and partition [12] is gone"):
        one_try(url, parted, batch=1)
    assert parted.len() == 0


def test_rows_without_numbers_go_home_and_those_with_dedup_keys_are_refused(url: str, parted: Queue) -> None:
    one_try(url, parted, idempotence="none")
    assert {each.number for each in parted.partitions() if each.stats and each.stats.backlog} == {0, 1, 2}
    assert numbers(parted) == list(range(ROWS))
    sinks = Sinks(Writing(url=url, queue=parted.name, idempotence="key"), "w", 0, 1)
    with pytest.raises(ConfigError, match="a dedup_key or unique_key may be known in a former home"):
        sinks.of(parted.name, "0").store(Rows(["a"], "b", [b""], [b""], ["||key"]))


@pytest.mark.runs_in("test-all")
def test_spark_writes_each_row_once_also_a_second_time_under_its_id(spark: Any, url: str, parted: Queue) -> None:
    frame = numbered(spark, ROWS)
    for _ in range(2):
        write(frame, parted, url, writeId="w")
    assert {each.number for each in parted.partitions() if each.stats and each.stats.backlog} == {0, 1, 2}
    assert numbers(parted) == list(range(ROWS))


@pytest.mark.runs_in("test-all")
def test_a_stream_from_the_journal_of_one_to_another_brings_each_event_once(
    spark: Any, url: str, parted: Queue, client: Client, queue_name: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    source = client.queue(f"{queue_name}.source", partitions=2, streams=4, journal=20_000)
    source.declare()
    for first in (0, ROWS):
        ids = source.write_many([(f"{at}", f"tenant-{at % 40}") for at in range(first, first + ROWS)])
        assert {split(each)[1] for each in ids} == {0, 1}
        given = {"url": url, "subscribe": source.name, "state": "journal", "startingOffsets": "earliest"}
        events = spark.readStream.format("shardq").options(maxOffsetsPerTrigger="400", **given).load()
        frame = events.select("shard_key", F.col("message_id").cast("binary").alias("payload"))
        sink = frame.writeStream.format("shardq").options(url=url, queue=parted.name)
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination()
        found = [each for page in iter(lambda: parted.read_many(1000), []) for each in page]
        assert sorted(each.body.decode() for each in found) == sorted(map(str, ids))
        parted.ack_many(found)

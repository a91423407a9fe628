"""The option `idempotence`: by which a second try knows what is stored, where rows come in another order each time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from shardq.client import Client, Queue
from tests.spark.rows import drained, numbered, numbers, write

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]


def keyed(frame: Any) -> Any:
    """*frame* with a dedup key for each row."""
    return frame.withColumn("dedup_key", F.col("payload").cast("string"))


def shuffled(frame: Any, seed: int, *, fail: bool = False) -> Any:
    """*frame* in another order, which differs between tries of a task; to *fail*, each first try does so at its end."""

    def mixed(batches: Any) -> Any:
        import random

        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context else 0
        for batch in batches:
            order = list(range(batch.num_rows))
            random.Random(seed + attempt).shuffle(order)
            yield batch.take(pa.array(order))
        if fail and attempt == 0:
            raise RuntimeError("made to fail")

    return frame.mapInArrow(mixed, frame.schema)


def test_what_the_error_for_other_rows_says_helps(spark: Any, url: str, queue: Queue) -> None:
    rows = keyed(numbered(spark, 1000))
    write(shuffled(rows, 1), queue, url, writeId="w")
    with pytest.raises(Exception, match="give each row a dedup_key and write with idempotence=key, which passes over"):
        write(shuffled(rows, 2), queue, url, writeId="w")
    write(shuffled(rows, 2), queue, url, writeId="w", idempotence="key")
    assert numbers(queue) == list(range(1000))


def test_by_key_a_second_try_may_bring_rows_in_another_order(spark: Any, url: str, queue: Queue) -> None:
    """Also in other partitions, under one write id or several."""
    rows = keyed(numbered(spark, 3000))
    write(shuffled(rows, 1, fail=True), queue, url, writeId="w", idempotence="key", chunkSize=70)
    write(shuffled(rows.repartition(3), 2), queue, url, writeId="w", idempotence="key")
    write(rows, queue, url, idempotence="key")
    assert numbers(queue) == list(range(3000))


def test_by_key_each_row_needs_a_key(spark: Any, url: str, client: Client, queue: Queue) -> None:
    rows = numbered(spark, 10, 1)
    with pytest.raises(Exception, match="idempotence=key needs the column dedup_key"):
        write(rows, queue, url, idempotence="key")
    some = rows.withColumn("dedup_key", F.when(F.col("payload") != b"7", F.col("payload").cast("string")))
    with pytest.raises(
        Exception, match="row 7 of partition 0 is no valid message: dedup_key is null, with idempotence"
    ):
        write(some, queue, url, idempotence="key")
    assert queue.len() == 0
    errors = client.queue(f"{queue.name}.bad", create=True)
    write(some, queue, url, idempotence="key", errorQueue=errors.name, create="true")
    assert numbers(queue) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [each.payload["payload"] for each in drained(errors)] == [b"7"]


def test_without_idempotence_nothing_is_refused(spark: Any, url: str, queue: Queue) -> None:
    """A try stores all of its rows, whatever another one has stored."""
    rows = numbered(spark, 1000)
    write(shuffled(rows, 1, fail=True), queue, url, idempotence="none")
    found = Counter(numbers(queue))
    assert set(found) == set(range(1000))
    assert set(found.values()) <= {1, 2}
    for seed in (2, 3):
        write(shuffled(rows, seed), queue, url, writeId="w", idempotence="none")
    assert Counter(numbers(queue)) == dict.fromkeys(range(1000), 2)


def test_a_stream_knows_its_rows_by_key(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    """Also one whose checkpoint was deleted."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("".join(f'{{"number": {number}}}\n' for number in range(500)))
    source = spark.readStream.schema("number long").json(str(tmp_path / "in"))
    rows = source.selectExpr("'tenant' as shard_key", "cast(cast(number as string) as binary) as payload")
    for run in range(2):
        writer = shuffled(keyed(rows), run).writeStream.format("shardq").options(url=url, queue=queue.name)
        writer = writer.option("idempotence", "key").option("checkpointLocation", str(tmp_path / f"checkpoint-{run}"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert numbers(queue) == list(range(500))

"""Consuming with a schema: what does not fit it is rejected, and never acked unless the job asked for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardq.client import Queue
from shardq.errors import CodecError, ConfigError
from shardq.spark import ack, consuming
from tests.spark.consume.queries import failing_once
from tests.spark.malformed import Example, examples, fill, record, schema

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
FITS = [Example("j", b'{"a": 4.0}', {"a": 4, "b": None, "c": None, "e": None, "f": None}, "")]
ALL = [*examples(), *FITS]
COLUMNS = f"message_id string, payload {schema()}, _corrupt_record string, lease string"


def consume(spark: Any, url: str, queue: Queue, checkpoint: Path, work: Any, **options: Any) -> None:
    frame = spark.readStream.format("shardq").options(url=url, mode="consume", subscribe=queue.name, **options)
    writer = frame.schema(COLUMNS).load().writeStream.foreachBatch(work)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def reasons(queue: Queue) -> dict[str, str]:
    """Why each dead letter is one, by its id."""
    return {letter.message_id: letter.reason for letter in queue.dead(count=1000)}


def wanted(ids: list[str]) -> dict[str, str]:
    return {message_id: each.reason for message_id, each in zip(ids, ALL, strict=True) if each.reason}


@pytest.mark.runs_in("test", "test-all")
@pytest.mark.parametrize("ack_on", ["commit", pytest.param("job", marks=pytest.mark.runs_in("test-all"))])
def test_a_query_rejects_what_does_not_fit_and_acks_none_of_it(
    spark: Any, url: str, queue: Queue, tmp_path: Path, ack_on: str
) -> None:
    ids, rows = fill(url, queue, ALL), []

    def work(df: Any, batch: int) -> None:
        rows.extend(df.collect())
        if ack_on == "job":
            ack(df, url=url)

    consume(spark, url, queue, tmp_path, work, ackOn=ack_on)
    assert reasons(queue) == wanted(ids)
    assert (queue.stats().acked, queue.len()) == (1, 0)
    assert [(row.message_id, row.payload.a, row._corrupt_record) for row in rows] == [(ids[-1], 4, None)]


def test_a_task_that_is_tried_again_rejects_once(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    ids, flag, rows = fill(url, queue, ALL * 20), tmp_path / "failed", []

    def work(df: Any, batch: int) -> None:
        rows.extend(df.mapInArrow(failing_once(flag), df.schema).collect())

    consume(spark, url, queue, tmp_path / "checkpoint", work)
    assert flag.exists()
    assert {row.message_id for row in rows} == {each for at, each in enumerate(ids, 1) if at % len(ALL) == 0}
    stats = queue.stats()
    assert (len(rows), stats.acked, stats.dead, queue.len()) == (20, 20, 20 * (len(ALL) - 1), 0)


def test_a_query_that_failed_and_is_started_again_acks_what_fits_and_nothing_else(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    ids, rows = fill(url, queue, ALL), []

    def broken(df: Any, batch: int) -> None:
        assert df.count() == 1
        raise RuntimeError("the sink is down")

    with pytest.raises(Exception, match="the sink is down"):
        consume(spark, url, queue, tmp_path, broken)
    assert (queue.stats().acked, queue.stats().in_flight, reasons(queue)) == (0, 1, wanted(ids))
    consume(spark, url, queue, tmp_path, lambda df, _: rows.extend(df.collect()))
    assert [row.message_id for row in rows] == [ids[-1]]
    assert (queue.stats().acked, reasons(queue)) == (1, wanted(ids))


def test_a_query_that_is_started_again_with_another_schema_rejects_by_that(
    spark: Any, url: str, queue: Queue, tmp_path: Path
) -> None:
    """The messages of its first micro-batch were leased under the old one."""
    queue.write({"a": "five"}, shard_key="t")

    def broken(df: Any, batch: int) -> None:
        raise RuntimeError("the sink is down")

    reader = spark.readStream.format("shardq").options(url=url, mode="consume", subscribe=queue.name)
    writer = reader.load().writeStream.foreachBatch(broken).option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="the sink is down"):
        writer.trigger(availableNow=True).start().awaitTermination()
    consume(spark, url, queue, tmp_path, lambda df, _: df.collect())
    assert [*reasons(queue).values()] == ["payload.a: text is no int"]
    assert queue.stats().acked == 0


def test_permissive_hands_out_all_and_keeps_the_payloads(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    ids, rows = fill(url, queue, ALL), {}
    consume(
        spark, url, queue, tmp_path, lambda df, _: rows.update({row.message_id: row for row in df.collect()}),
        parseMode="PERMISSIVE",
    )  # fmt: skip
    for each, message_id in zip(ALL, ids, strict=True):
        row = rows[message_id]
        assert (row.payload and row.payload.asDict(recursive=True)) == each.wanted
        assert row._corrupt_record == (record(each) if each.reason else None)
    assert (queue.stats().acked, queue.stats().dead) == (len(ALL), 0)


def test_dropmalformed_acks_what_it_drops(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    ids, rows = fill(url, queue, ALL), []
    consume(spark, url, queue, tmp_path, lambda df, _: rows.extend(df.collect()), parseMode="DROPMALFORMED")
    assert [row.message_id for row in rows] == [ids[-1]]
    assert (queue.stats().acked, queue.stats().dead) == (len(ALL), 0)


def test_failfast_stops_the_query_which_acks_nothing(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    fill(url, queue, ALL)
    with pytest.raises(Exception, match=r"message .* is malformed: payload"):
        consume(spark, url, queue, tmp_path, lambda df, _: df.collect(), parseMode="FAILFAST")
    assert (queue.stats().acked, queue.stats().dead, queue.stats().in_flight) == (0, 0, len(ALL))


@pytest.mark.runs_in("test", "test-all")
@pytest.mark.parametrize("ack_on", ["end", "job"])
def test_a_block_rejects_what_does_not_fit(spark: Any, url: str, queue: Queue, ack_on: str) -> None:
    ids = fill(url, queue, ALL)
    with consuming(spark, url=url, queue=queue.name, schema=COLUMNS, ack_on=ack_on) as df:
        assert reasons(queue) == wanted(ids)
        assert [(row.message_id, row.payload.a) for row in df.collect()] == [(ids[-1], 4)]
        if ack_on == "job":
            assert ack(df, url=url).settled == 1
    assert (queue.stats().acked, queue.stats().dead, queue.len()) == (1, len(ALL) - 1, 0)


BAD: dict[str, Any] = {
    "schema": COLUMNS.replace("_corrupt_record", "bad"),
    "column_name_of_corrupt_record": "bad",
}


def test_a_block_that_fails_fast_gives_all_back_as_any_that_fails(spark: Any, url: str, queue: Queue) -> None:
    fill(url, queue, ALL)
    with (
        pytest.raises(CodecError, match=r"message .* is malformed: payload"),
        consuming(spark, url=url, queue=queue.name, parse_mode="failfast", **BAD),
    ):
        pass
    stats = queue.stats()
    assert (stats.acked, stats.dead, stats.backlog + stats.delayed) == (0, 0, len(ALL))


def test_a_block_may_be_permissive(spark: Any, url: str, queue: Queue) -> None:
    fill(url, queue, ALL)
    with consuming(spark, url=url, queue=queue.name, parse_mode="PERMISSIVE", ack_on="job", **BAD) as df:
        found = sorted(row.bad for row in df.collect() if row.bad is not None)
        assert found == sorted(record(each) for each in ALL if each.reason)
    assert (queue.stats().acked, queue.stats().dead, queue.stats().backlog) == (0, 0, len(ALL))


def test_a_block_acks_what_it_drops(spark: Any, url: str, queue: Queue) -> None:
    fill(url, queue, ALL)
    with consuming(spark, url=url, queue=queue.name, parse_mode="DROPMALFORMED", schema="payload string") as df:
        assert sorted(row.payload for row in df.collect()) == ["\x00bytes", "text", "text"]
    assert (queue.stats().acked, queue.stats().dead, queue.len()) == (len(ALL), 0, 0)


def test_a_block_has_the_columns_of_its_schema(spark: Any, url: str, queue: Queue) -> None:
    queue.write(b"\xff", shard_key=b"\xff")
    with consuming(spark, url=url, queue=queue.name, schema="shard_key binary, payload binary") as df:
        assert [(bytes(row.shard_key), bytes(row.payload)) for row in df.collect()] == [(b"\xff", b"\xff")]
        assert df.columns == ["shard_key", "payload"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"schema": "payload string", "parse_mode": "DROPMALFORMED", "ack_on": "job"}, "DROPMALFORMED drops rows"),
        ({"parse_mode": "REJECT"}, "option parseMode needs a payload that is decoded"),
        ({"schema": "payload string", "parse_mode": "no"}, "option parseMode must be"),
        ({"schema": "load string"}, "there is no column load"),
    ],
)
def test_a_block_refuses_what_makes_no_sense(
    spark: Any, url: str, queue: Queue, given: dict[str, Any], why: str
) -> None:
    queue.write(b"1", shard_key="t")
    with pytest.raises(ConfigError, match=why), consuming(spark, url=url, queue=queue.name, **given):
        pass
    assert queue.stats().in_flight == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"parseMode": "DROPMALFORMED", "ackOn": "job"}, "DROPMALFORMED drops rows"),
        ({"parseMode": "no"}, "option parseMode must be"),
    ],
)
def test_a_query_refuses_what_makes_no_sense(
    spark: Any, url: str, queue: Queue, tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    queue.write(b"1", shard_key="t")
    with pytest.raises(Exception, match=why):
        consume(spark, url, queue, tmp_path, lambda df, _: df.collect(), **options)
    assert queue.stats().in_flight == 0

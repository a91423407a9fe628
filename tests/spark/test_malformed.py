"""Reading with `.schema(...)`: what becomes of payloads that do not fit it, in each mode and from each table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardq.client import Queue
from tests.spark.malformed import Example, examples, fill, record, schema

pytestmark = [pytest.mark.timeout(300), pytest.mark.runs_in("test-all")]
FITS = [Example("j", b'{"a": 4.0, "z": 1}', {"a": 4, "b": None, "c": None, "e": None, "f": None}, "")]
CORRUPT = "_corrupt_record string"


def load(spark: Any, url: str, queue: Queue, columns: str, **options: Any) -> Any:
    reader = spark.read.format("shardq").options(url=url, subscribe=queue.name, **options)
    return reader.schema(columns).load()


def value(row: Any) -> Any:
    return row.payload and row.payload.asDict(recursive=True)


@pytest.mark.runs_in("test", "test-all")
@pytest.mark.parametrize("state", ["backlog", "dead"])
def test_permissive_makes_null_what_does_not_fit_and_keeps_the_payload(
    spark: Any, url: str, queue: Queue, state: str
) -> None:
    some = [*examples(), *FITS]
    ids = fill(url, queue, some)
    if state == "dead":
        queue.reject_many(queue.read_many(100), "for a test")
    columns = f"message_id string, payload {schema()}, {CORRUPT}"
    rows = {row.message_id: row for row in load(spark, url, queue, columns, state=state).collect()}
    assert len(rows) == len(some)
    for each, message_id in zip(some, ids, strict=True):
        assert value(rows[message_id]) == each.wanted
        assert rows[message_id]._corrupt_record == (record(each) if each.reason else None)


def test_permissive_is_the_default_without_the_column_and_is_asked_for_in_any_case(
    spark: Any, url: str, queue: Queue
) -> None:
    fill(url, queue, examples()[:1])
    for options in ({}, {"parseMode": "permissive"}):
        [row] = load(spark, url, queue, f"payload {schema()}", **options).collect()
        assert (row.payload.a, row.payload.b) == (None, "x")


def test_the_column_of_corrupt_records_has_another_name_and_bytes_if_that_is_wished(
    spark: Any, url: str, queue: Queue
) -> None:
    some = examples()
    fill(url, queue, some)
    columns = f"bad binary, payload {schema()}"
    rows = load(spark, url, queue, columns, columnNameOfCorruptRecord="bad").collect()
    assert sorted(bytes(row.bad) for row in rows) == sorted(each.body for each in some)


@pytest.mark.parametrize("state", ["backlog", "dead"])
def test_dropmalformed_leaves_out_what_does_not_fit(spark: Any, url: str, queue: Queue, state: str) -> None:
    ids = fill(url, queue, [*examples(), *FITS])
    if state == "dead":
        queue.reject_many(queue.read_many(100), "for a test")
    columns = f"message_id string, payload {schema()}"
    rows = load(spark, url, queue, columns, parseMode="DROPMALFORMED", state=state).collect()
    assert [(row.message_id, row.payload.a) for row in rows] == [(ids[-1], 4)]


def test_a_stream_of_dead_letters_knows_the_modes(spark: Any, url: str, queue: Queue, tmp_path: Path) -> None:
    some = [*examples(), *FITS]
    fill(url, queue, some)
    queue.reject_many(queue.read_many(100), "for a test")
    found: dict[str, list[Any]] = {}
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        frame = spark.readStream.format("shardq").options(
            url=url, subscribe=queue.name, state="dead", startingOffsets="earliest", parseMode=mode
        )
        query = frame.schema(f"payload {schema()}, {CORRUPT}").load().writeStream
        query = query.foreachBatch(lambda df, _, mode=mode: found.setdefault(mode, []).extend(df.collect()))
        query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / mode)).start().awaitTermination()
    assert len(found["PERMISSIVE"]) == len(some)
    assert sorted(filter(None, (row._corrupt_record for row in found["PERMISSIVE"]))) == sorted(
        record(each) for each in some if each.reason
    )
    assert [row.payload.a for row in found["DROPMALFORMED"]] == [4]


def test_failfast_names_the_message_and_the_reason(spark: Any, url: str, queue: Queue) -> None:
    [_, bad] = fill(url, queue, [*FITS, examples()[0]])
    frame = load(spark, url, queue, f"payload {schema()}", parseMode="FAILFAST")
    reason = f"message {bad} of queue '{queue.name}' is malformed: {examples()[0].reason}"
    with pytest.raises(Exception, match=reason) as failed:
        frame.collect()
    assert "4.5" not in str(failed.value)


def test_a_payload_that_must_not_be_null(spark: Any, url: str, queue: Queue) -> None:
    from pyspark.sql.types import StructType

    queue.write(None, shard_key="t")
    queue.write({"a": 1}, shard_key="t")
    columns = StructType.fromDDL(f"payload {schema()} not null")
    rows = load(spark, url, queue, columns, parseMode="DROPMALFORMED").collect()
    assert [row.payload.a for row in rows] == [1]
    with pytest.raises(Exception, match="payload: null is not allowed"):
        load(spark, url, queue, columns, parseMode="FAILFAST").collect()
    with pytest.raises(Exception, match="column payload is NOT NULL"):
        load(spark, url, queue, columns).collect()


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_what_spark_writes_fits_what_it_was(spark: Any, url: str, queue: Queue, codec: str) -> None:
    kind = "struct<x: binary, d: date, t: timestamp, f: float, g: double, s: smallint, l: bigint, o: boolean>"
    sql = """
        select 't' as shard_key, named_struct(
            'x', x'00ff', 'd', date'2024-02-29', 't', timestamp'2024-02-29 01:02:03.4', 'f', cast(0.1 as float),
            'g', 1e300d, 's', 7s, 'l', -9223372036854775808, 'o', true
        ) as payload
    """
    frame = spark.sql(sql)
    frame.write.format("shardq").options(url=url, queue=queue.name, codec=codec).mode("append").save()
    [row] = load(spark, url, queue, f"payload {kind}", parseMode="FAILFAST").collect()
    assert row.payload == frame.collect()[0].payload


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ("payload struct<a: int>", {"parseMode": "LENIENT"}, r"option parseMode must be .* not 'LENIENT'"),
        ("payload struct<a: int>", {"parseMode": "REJECT"}, r"option parseMode must be .* not 'REJECT'"),
        ("payload binary", {"parseMode": "FAILFAST"}, "option parseMode needs a payload that is decoded"),
        ("message_id string", {"parseMode": "FAILFAST"}, "option parseMode needs a payload that is decoded"),
        ("payload binary, _corrupt_record string", {}, "column _corrupt_record needs a payload that is decoded"),
        ("payload string, _corrupt_record int", {}, "column _corrupt_record must be string or binary"),
        ("payload string", {"columnNameOfCorruptRecord": "bad"}, "needs the column bad string"),
        (
            "payload string",
            {"columnNameOfCorruptRecord": "codec"},
            "must be another name than that of the column codec",
        ),
        ("payload string, bad string", {}, "there is no column bad"),
        ("payload map<array<int>, int>", {}, "payloads have no maps with keys of type array<int>"),
    ],
)
def test_what_makes_no_sense_is_refused(
    spark: Any, url: str, queue: Queue, columns: str, options: dict[str, str], why: str
) -> None:
    with pytest.raises(Exception, match=why):
        load(spark, url, queue, columns, **options).collect()

"""What needs no session: options, columns that are no messages, and what travels to tasks."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from shardq.errors import ConfigError
from shardq.spark.columns import Encoding, encoded
from shardq.spark.committing import summary
from shardq.spark.options import Reading, Writing, parsed
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, table_schema
from shardq.spark.sinks import StoredRows
from shardq.spark.stream import StreamReader
from shardq.spark.writer import BatchWriter, StreamWriter

BASE = {"url": "redis://nowhere", "queue": "q"}
READ = {"url": "redis://nowhere", "subscribe": "q"}


def test_options_have_names_as_sparks_have_and_any_case() -> None:
    options = parsed(
        Writing, {**BASE, "MAXBACKLOG": "7", "create": "TRUE", "fullTimeout": "0.5", "checkpointLocation": "x"}
    )
    assert (options.max_backlog, options.create, options.full_timeout) == (7, True, 0.5)


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (Writing, {"queue": "x"}, "option url of format shardq is missing"),
        (
            Writing,
            {**BASE, "queues": "x"},
            "unknown option 'queues' of format shardq; the options here are url, durability",
        ),
        (Writing, {**BASE, "chunkSize": "251"}, "option chunkSize must be a whole number from 1 to 250, not '251'"),
        (Writing, {**BASE, "chunkSize": "many"}, "option chunkSize must be a whole number"),
        (Writing, {**BASE, "fullTimeout": "nan"}, "option fullTimeout must be a number of seconds"),
        (Writing, {**BASE, "create": "yes"}, "option create must be true or false, not 'yes'"),
        (Writing, {**BASE, "codec": "pickle"}, "option codec must be json, msgpack or the letter"),
        (Writing, {**BASE, "errorQueue": "q"}, "errorQueue must be another queue"),
        (Writing, {**BASE, "queue": "a{b}"}, "a queue name may not hold"),
        (Writing, {**BASE, "writeId": "x" * 201}, "option writeId may have at most 200"),
        (Writing, {**BASE, "idempotence": "keys"}, "option idempotence must be row, key or none, not 'keys'"),
        (Writing, {**BASE, "batchId": "3"}, "option batchId counts the batches of one writeId"),
        (Writing, {**BASE, "writeId": "w", "batchId": "-1"}, "option batchId must be a whole number from 0"),
        (Reading, {**READ, "subscribe": "a,a"}, "names a queue twice"),
        (Reading, {**READ, "streams": "1,x"}, "option streams must be numbers"),
    ],
)
def test_a_wrong_option_is_named(kind: Any, given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parsed(kind, given)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


@pytest.mark.parametrize(
    ("columns", "reasons"),
    [
        ({"payload": pa.array([b"a", None, b"c", b"ddddd"])}, {1: "payload is null", 3: "payload has 5 bytes, more"}),
        ({"shard_key": pa.array(["a", "", None, "x" * 1025])}, {1: "has 0 bytes", 2: "is null", 3: "has 1,025 bytes"}),
        ({"shard_key": pa.array(["ü" * 512, "ü" * 513, "a", "b"])}, {1: "has 1,026 bytes"}),
        ({"delay": pa.array([0.0, -1.0, float("nan"), None])}, {1: "delay must be", 2: "delay must be"}),
        (
            {"delay": pa.array([5, 5, None, 0]), "deadline": pa.array([6, 5, 0, 1])},
            {1: "not after delay", 2: "must be"},
        ),
        ({"dedup_key": pa.array(["k", "", None, "x" * 513])}, {1: "dedup_key must have", 3: "dedup_key must have"}),
        (
            {"headers": pa.array([[("a", "b")], [("", "b")], None, [("ü", "b")]], pa.map_(pa.string(), pa.string()))},
            {1: "header key", 3: "header key"},
        ),
        ({"payload": pa.array([b"a", b"b", b"c", b"d"])}, {}),
    ],
)
def test_rows_that_are_no_messages_are_set_aside_with_the_reason(
    columns: dict[str, pa.Array], reasons: dict[int, str]
) -> None:
    whole = {"shard_key": pa.array(["a", "b", "c", "d"]), "payload": pa.array([b"1", b"2", b"3", b"4"])} | columns
    rows, bad = encoded(batch(**whole), Encoding("", 4))
    assert [each.row for each in bad] == list(reasons)
    assert all(text in each.reason for each, text in zip(bad, reasons.values(), strict=True))
    good = [at for at in range(4) if at not in reasons]
    assert rows.bodies == [whole["payload"][at].as_py() for at in good]
    assert [bytes(key) for key in rows.shard_keys] == [whole["shard_key"][at].as_py().encode() for at in good]  # type: ignore[arg-type]


def test_json_is_checked_before_it_is_written() -> None:
    rows, bad = encoded(
        batch(shard_key=pa.array(["a", "b", "c"]), payload=pa.array(['{"a": 1}', "{", None])), Encoding("json", 100)
    )
    assert (rows.tag, rows.bodies) == ("j", [b'{"a": 1}'])
    assert [(each.row, each.reason) for each in bad] == [(1, "payload is not JSON"), (2, "payload is null")]


def test_the_log_says_how_many_rows_are_where() -> None:
    """In one line, however many queues there are."""
    some = [
        StoredRows("a", "0", 1200),
        StoredRows("b", "0", 5),
        StoredRows("a", "1", 34),
        StoredRows("bad", "0 of a", 3),
    ]
    assert summary("", some[:3]) == "rows are stored: 1,234 in 'a', 5 in 'b'"
    assert summary("bad", some) == "rows are stored: 1,234 in 'a', 5 in 'b'; 3 bad rows are in 'bad'"
    assert summary("bad", []) == "rows are stored: none; 0 bad rows are in 'bad'"
    many = [StoredRows(f"queue-{at}", "0", 2000 - at) for at in range(1500)]
    assert summary("", many).endswith("1,991 in 'queue-9', 1,855,795 in 1,490 more queues")
    assert len(summary("", many)) < 300


def test_what_travels_to_tasks_holds_options_only() -> None:
    writing, reading = parsed(Writing, BASE), parsed(Reading, READ)
    schema = arrow_schema(table_schema("live"))
    for each in (
        BatchWriter(writing, "w"),
        StreamWriter(writing),
        BatchReader(reading, schema),
        StreamReader(reading, schema),
    ):
        sent = pickle.dumps(each)
        assert len(sent) < 5000
        assert pickle.loads(sent).options == each.options  # noqa: S301 - just made here


def test_importing_the_package_needs_no_spark() -> None:
    code = "import sys, shardq.spark; assert not {'pyspark', 'pyarrow'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)

"""Payloads of each type of Spark come back as they were written; those that would not are refused before a row is."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from shardq.client import Queue
from shardq.spark.columns import Encoding, encoded
from shardq.spark.shape import RowShape
from tests.spark.rows import write

pa = pytest.importorskip("pyarrow", exc_type=ImportError)
pytestmark = pytest.mark.timeout(300)

SQL = """
    select 't' as shard_key, named_struct(
        'price', cast(-1234567.89 as decimal(20, 2)), 'whole', cast(12345678901234567890123 as decimal(38, 0)),
        'tiny', -128y, 'plain', timestamp_ntz'2024-02-29 01:02:03.000004',
        'long', interval '-3 04:05:06.000007' day to second, 'time', time'23:59:59.999999',
        'name', cast('ab' as varchar(5)), 'code', cast('abc' as char(3)), 'void', null,
        'list', array(cast(0.10 as decimal(5, 2)), null), 'days', map(date'2024-02-29', cast(1 as decimal(3, 1))),
        'nothing', cast(null as decimal(5, 2))
    ) as payload
"""


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_each_type_is_read_as_it_was_written(spark: Any, url: str, queue: Queue, codec: str) -> None:
    frame = spark.sql(SQL)
    write(frame, queue, url, codec=codec)
    kind = frame.schema["payload"].dataType.simpleString()
    reader = spark.read.format("shardq").options(url=url, subscribe=queue.name, parseMode="FAILFAST")
    [row] = reader.schema(f"payload {kind}").load().collect()
    [wanted] = frame.collect()
    assert row.payload == wanted.payload
    assert row.payload.whole == Decimal(12345678901234567890123)
    assert row.payload.long == -datetime.timedelta(days=3, hours=4, minutes=5, seconds=6, microseconds=7)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("value", "column"),
    [
        ("interval '1' year", "payload is interval year"),
        ("named_struct('a', array(interval '1-2' year to month))", "payload.a.element is interval year to month"),
        ("map('a', parse_json('1'))", "payload.value is variant"),
    ],
)
def test_a_type_that_cannot_come_back_is_refused_by_its_column(
    spark: Any, url: str, queue: Queue, value: str, column: str
) -> None:
    with pytest.raises(Exception, match=f"column {column}, which payloads cannot have"):
        write(spark.sql(f"select 't' as shard_key, {value} as payload"), queue, url)
    assert queue.stats().written == 0


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b'{"n": "12.345"}', pa.decimal128(10, 2), r"the number is out of the range of decimal\(10,2\), or has more"),
        (b'{"n": 123456789}', pa.decimal128(10, 2), r"out of the range of decimal\(10,2\)"),
        (b'{"n": "NaN"}', pa.decimal128(10, 2), r"out of the range of decimal\(10,2\)"),
        (b'{"n": "1E+999999999"}', pa.decimal128(10, 2), r"out of the range of decimal\(10,2\)"),
        (b'{"n": "x"}', pa.decimal128(10, 2), r"the text is no decimal\(10,2\)"),
        (b'{"n": true}', pa.decimal128(10, 2), r"a boolean is no decimal\(10,2\)"),
        (b'{"n": 128}', pa.int8(), "the number is out of the range of tinyint"),
        (b'{"n": "2024-02-29T01:02:03Z"}', pa.timestamp("us"), "the text is no timestamp without a time zone"),
        (b'{"n": "2024-02-29T01:02:03"}', pa.timestamp("us", tz="UTC"), "the text is no timestamp with a time zone"),
        (b'{"n": "25:00:00"}', pa.time64("ns"), "the text is no time of day"),
        (b'{"n": "1 day"}', pa.duration("us"), "the text is no interval"),
        (b'{"n": 0}', pa.null(), "a number is no void"),
    ],
)
def test_a_value_that_would_be_changed_is_none_of_the_type(body: bytes, kind: Any, reason: str) -> None:
    shape = RowShape(pa.struct([pa.field("n", kind)]))
    good = b'{"n": null}'
    for tag, raw in (("j", body), ("m", msgspec.msgpack.encode(msgspec.json.decode(body)))):
        column, reasons = shape.column([tag, "j"], [raw, good])
        assert column.to_pylist() == [{"n": None}] * 2
        assert list(reasons) == [0]
        assert re.match(f"payload.n: .*{reason}", reasons[0])


def test_numbers_are_decimals_if_no_digit_is_lost() -> None:
    shape = RowShape(pa.struct([pa.field("n", pa.decimal128(10, 2))]))
    bodies = [b'{"n": 0.1}', b'{"n": 12}', b'{"n": "1.50"}', b'{"n": 0.125}']
    for tag in ("j", "m"):
        raw = bodies if tag == "j" else [msgspec.msgpack.encode(msgspec.json.decode(each)) for each in bodies]
        column, reasons = shape.column([tag] * 4, raw)
        assert [each["n"] for each in column.to_pylist()] == [Decimal("0.10"), Decimal(12), Decimal("1.50"), None]
        assert list(reasons) == [3]


NAN = float("nan")
SOME = [
    (pa.float64(), [NAN, 1.0]),
    (pa.float32(), [float("inf"), 1.0]),
    (pa.struct([("a", pa.float64()), ("b", pa.string())]), [{"a": -float("inf")}, {"a": 1.0}]),
    (pa.list_(pa.float64()), [[1.0, None, NAN], [1.0, None]]),
    (pa.map_(pa.string(), pa.list_(pa.float64())), [[("x", [NAN])], [("x", [0.0]), ("y", None)]]),
]


@pytest.mark.parametrize(("kind", "values"), SOME, ids=str)
def test_nan_is_no_json_and_is_kept_in_messagepack(kind: Any, values: list[Any]) -> None:
    batch = pa.record_batch({"shard_key": ["t"] * 3, "payload": pa.array([*values, None], kind)})
    rows, bad = encoded(batch, Encoding("json", 1000))
    assert [(each.row, each.reason) for each in bad] == [
        (0, "payload has NaN or Infinity, which JSON has not: make it null, or take codec=msgpack"),
        (2, "payload is null"),
    ]
    assert len(rows) == 1
    rows, bad = encoded(batch, Encoding("msgpack", 1000))
    assert [each.row for each in bad] == [2]
    assert (
        (RowShape(kind).column(["m"] * 2, [*rows.bodies])[0]).to_pylist()[1:] == pa.array(values, kind).to_pylist()[1:]
    )
    assert "nan" in str(RowShape(kind).column(["m"] * 2, [*rows.bodies])[0].to_pylist()[0]) or "inf" in str(values[0])

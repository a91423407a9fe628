"""Which payloads fit the type that they are decoded to, what becomes of the others, and how the reason is told."""

from __future__ import annotations

import datetime
import math
import struct
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardq.spark.shape import RowShape
from tests.spark.malformed import Example, examples

TIME = pa.timestamp("us", tz="UTC")
UTC = datetime.UTC
INTS, MAP = pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())
PAGE = pa.struct(
    [
        pa.field("a", pa.int32()),
        pa.field("b", pa.string()),
        pa.field("c", pa.struct([pa.field("d", pa.int32(), nullable=False)])),
        pa.field("e", INTS),
        pa.field("f", MAP),
    ]
)


def seen(kind: pa.DataType, tag: str, body: bytes, *, nullable: bool = True) -> tuple[Any, str]:
    """What becomes of one payload, in a column: the value, and why it does not fit."""
    column, reasons = RowShape(kind, nullable=nullable).column([tag], [body])
    return column.to_pylist(maps_as_pydicts="strict")[0], reasons.get(0, "")


def of_json(kind: pa.DataType, text: str) -> tuple[Any, str]:
    return seen(kind, "j", text.encode())


def of_msgpack(kind: pa.DataType, value: Any) -> tuple[Any, str]:
    return seen(kind, "m", msgspec.msgpack.encode(value))


@pytest.mark.parametrize("example", examples(), ids=lambda each: f"{each.tag}-{each.body!r}")
def test_what_the_page_shows(example: Example) -> None:
    assert seen(PAGE, example.tag, example.body) == (example.wanted, example.reason)


def test_the_page_has_the_payloads_that_were_acked_in_silence() -> None:
    reasons = [example.reason for example in examples()]
    assert len(reasons) == 26
    assert len({*reasons}) >= 11


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int32(), "4.0", 4),
        (pa.int32(), "-0.0", 0),
        (pa.int32(), "1e3", 1000),
        (pa.int32(), "-2147483648", -(2**31)),
        (pa.int16(), "32767", 32767),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.float64(), "4", 4.0),
        (pa.float64(), "9007199254740992", 2.0**53),
        (pa.float64(), "1e300", 1e300),
        (pa.float64(), "0.1", 0.1),
        (pa.float32(), "0.5", 0.5),
        (pa.float32(), "16777216", 2.0**24),
        (pa.bool_(), "true", True),
        (pa.string(), '"5"', "5"),
        (pa.binary(), '"AP8="', b"\x00\xff"),
        (pa.date32(), '"2024-02-29"', datetime.date(2024, 2, 29)),
        (TIME, '"2024-02-29T01:00:00+01:00"', datetime.datetime(2024, 2, 29, tzinfo=UTC)),
        (INTS, "[1, null, 2.0]", [1, None, 2]),
        (MAP, '{"x": 1, "y": null}', {"x": 1, "y": None}),
        (pa.map_(pa.int32(), pa.int32()), '{"-7": 1}', {-7: 1}),
        (pa.map_(pa.float64(), pa.int32()), '{"0.5": 1, "2": 3.0}', {0.5: 1, 2.0: 3}),
        (pa.map_(pa.date32(), pa.int32()), '{"2024-02-29": 1.0}', {datetime.date(2024, 2, 29): 1}),
        (pa.struct([("a", pa.int32())]), '{"z": [1], "a": 1}', {"a": 1}),
        (pa.struct([("a", pa.int32())]), "{}", {"a": None}),
        (pa.struct([("a", pa.int32())]), "null", None),
    ],
)
def test_what_fits_stays_what_it_is(kind: pa.DataType, text: str, value: Any) -> None:
    assert of_json(kind, text) == (value, "")


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.int32(), "4.5", "a number with a fraction is no int"),
        (pa.int32(), "1e10", "the number is out of the range of int"),
        (pa.int16(), "32768", "the number is out of the range of smallint"),
        (pa.int64(), "9223372036854775808", "the number is out of the range of bigint"),
        (pa.int32(), "true", "a boolean is no int"),
        (pa.float64(), "true", "a boolean is no double"),
        (pa.float64(), '"1"', "text is no double"),
        (pa.float64(), "9007199254740993", "the number has more digits than double has"),
        (pa.float32(), "16777217", "the number has more digits than float has"),
        (pa.float32(), "1e39", "the number is out of the range of float"),
        (pa.bool_(), "1", "a number is no boolean"),
        (pa.string(), "5", "a number is no string"),
        (pa.string(), "{}", "a map is no string"),
        (pa.binary(), '"no base64!"', "text that is not base64 is no binary in JSON"),
        (pa.date32(), '"2024-02-30"', "the text is no date as RFC 3339 has it"),
        (pa.date32(), "19782", "a number is no date"),
        (TIME, '"2024-02-29T01:00:00"', "the text is no timestamp with a time zone as RFC 3339 has it"),
        (TIME, "1.5", "a number is no timestamp with a time zone"),
        (INTS, '{"0": 1}', "a map is no array"),
        (MAP, "[1]", "a list is no map"),
    ],
)
def test_what_would_be_changed_is_malformed(kind: pa.DataType, text: str, reason: str) -> None:
    assert of_json(kind, text) == (None, f"payload: {reason}")


def test_messagepack_has_bytes_and_times_and_maps_with_any_keys() -> None:
    now = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789, UTC)
    assert of_msgpack(TIME, now) == (now, "")
    assert of_msgpack(pa.date32(), now) == (None, "payload: a time is no date")
    assert of_msgpack(pa.binary(), b"\xff") == (b"\xff", "")
    assert of_msgpack(pa.binary(), "é") == ("é".encode(), "")
    assert of_msgpack(pa.string(), b"\xc3\xa9") == ("é", "")
    assert of_msgpack(pa.string(), b"\xff") == (None, "payload: binary that is not UTF-8 is no string")
    assert of_msgpack(pa.string(), msgspec.msgpack.Ext(5, b"")) == (
        None,
        "payload: an extension of MessagePack is no string",
    )
    assert of_msgpack(pa.struct([("a", pa.int32())]), {"a": 1, 7: 8}) == ({"a": 1}, "")
    assert of_msgpack(pa.map_(pa.int32(), pa.int32()), {"1": 1, 2: 2}) == ({1: 1, 2: 2}, "")
    assert of_msgpack(MAP, {None: 1}) == (None, "payload.key: null is not allowed")
    assert of_msgpack(MAP, {1: 1}) == (None, "payload.key: a number is no string")
    assert of_msgpack(pa.int32(), math.nan) == (None, "payload: a number is no int")
    assert math.isnan(of_msgpack(pa.float64(), math.nan)[0])


def test_bytes_are_text_where_they_are_utf_8_and_a_codec_of_ones_own_is_not_decoded() -> None:
    assert seen(pa.string(), "b", "é".encode()) == ("é", "")
    assert seen(pa.string(), "b", b"\xff") == (None, "payload: binary that is not UTF-8 is no string")
    assert seen(pa.string(), "X", b"1") == (None, "payload: no codec has the tag 'X'")


def test_null_where_it_is_not_allowed_makes_null_what_is_around_it() -> None:
    number = pa.field("n", pa.int32(), nullable=False)
    inner = pa.struct([number, pa.field("s", pa.string())])
    outer = pa.struct([pa.field("i", inner, nullable=False), pa.field("t", pa.string())])
    whole = pa.struct([pa.field("o", outer), pa.field("u", pa.string())])
    text = '{"o": {"i": {"n": 1.5, "s": "x"}, "t": "x"}, "u": "x"}'
    assert of_json(whole, text) == ({"o": None, "u": "x"}, "payload.o.i.n: a number with a fraction is no int")
    assert of_json(outer, '{"t": "x"}') == (None, "payload.i: null is not allowed")
    strict = pa.list_(pa.field("element", pa.int32(), nullable=False))
    assert of_json(strict, "[1, null]") == (None, "payload.element: null is not allowed")
    assert seen(pa.int32(), "j", b"null", nullable=False) == (None, "payload: null is not allowed")


SECRET = "s3cret"


@pytest.mark.parametrize(
    "kind", [PAGE, pa.struct([("a", pa.struct([("a", pa.int32())]))]), INTS, MAP, TIME, pa.int32()]
)
@pytest.mark.parametrize("text", ['"%s"', '{"a": "%s"}', '{"%s": "x"}', '["%s"]', '{"a": "%s", ', '{"f": {"%s": []}}'])
def test_a_reason_has_nothing_of_the_payload(kind: pa.DataType, text: str) -> None:
    assert SECRET not in of_json(kind, text % SECRET)[1]


def test_one_row_does_not_change_another() -> None:
    bodies = [b'{"a": 1}', b'{"a": 2.5, "b": "x"}', b'{"a": 3.0}', b"[]"]
    column, reasons = RowShape(PAGE).column(["j"] * 4, bodies)
    assert [row and row["a"] for row in column.to_pylist()] == [1, None, 3, None]
    assert reasons.keys() == {1, 3}


KINDS = st.recursive(
    st.sampled_from([pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(),
                     pa.binary(), pa.date32(), TIME]),
    lambda inner: st.one_of(
        st.builds(lambda kind, null: pa.list_(pa.field("element", kind, null)), inner, st.booleans()),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int32(), pa.float64(), pa.date32()]), inner),
        st.builds(
            lambda a, b, null: pa.struct([pa.field("a", a, null), pa.field("b", b)]), inner, inner, st.booleans()
        ),
    ),
    max_leaves=4,
)  # fmt: skip
SINGLE = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.integers(-5, 5),
    st.sampled_from([2**24 + 1, 2**53 + 1, 2**53 - 1, 2**31, 4.0, 4.5, 1e39, 1e300]), st.floats(), st.text(max_size=3),
    st.binary(max_size=3), st.dates(), st.datetimes(timezones=st.just(UTC)), st.datetimes(),
)  # fmt: skip
KEYS = st.one_of(st.sampled_from(["a", "b", "1", "01", "1.5", "-0", "2024-02-29", " 1", "1_0"]), st.text(max_size=2))
VALUES = st.recursive(
    SINGLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def near(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values most of which fit *kind*."""
    found: st.SearchStrategy[Any] = SINGLE
    if pa.types.is_struct(kind):
        found = st.fixed_dictionaries({}, optional={each.name: near(each.type) for each in kind})
    elif pa.types.is_list(kind):
        found = st.lists(near(kind.value_type), max_size=2)
    elif pa.types.is_map(kind):
        found = st.dictionaries(KEYS | st.integers(-9, 9), near(kind.item_type), max_size=2)
    elif pa.types.is_integer(kind):
        found = st.one_of(st.integers(-(2**31), 2**31 - 1), st.just(4.0))
    elif pa.types.is_floating(kind):
        found = st.one_of(st.floats(), st.integers(-5, 5))
    return st.one_of(found, found, found, st.none(), SINGLE)


@pytest.mark.runs_in("test-all")
@given(st.data(), KINDS, st.sampled_from(["j", "m"]))
@settings(max_examples=300, deadline=None)
def test_what_is_decoded_in_one_go_is_what_a_closer_look_says(data: st.DataObject, kind: pa.DataType, tag: str) -> None:
    value = data.draw(st.one_of(near(kind), near(kind), VALUES))
    body = (msgspec.json if tag == "j" else msgspec.msgpack).encode(value)
    shape = RowShape(kind)
    column, reasons = shape.column([tag], [body])
    looked, reason = shape.fit(tag, body)
    assert reasons.get(0, "") == reason
    assert repr(column.to_pylist()) == repr(pa.array([looked], kind).to_pylist())  # repr: NaN is not itself


@given(st.floats(width=32, allow_nan=False))
def test_a_float_that_is_no_double_stays_what_it_is(value: float) -> None:
    [rounded] = struct.unpack("f", struct.pack("f", value))
    assert of_msgpack(pa.float32(), value) == (rounded, "")

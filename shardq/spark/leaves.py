"""Single values of payloads as values of Arrow's types. Values that would have to be changed for that are refused."""

from __future__ import annotations

import datetime
import struct
from binascii import Error as NoBase64
from binascii import a2b_base64
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import msgspec

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.spark.typed import INTEGER_RANGES, PLAIN_TIME, TIME, TIME_OF_DAY

Convert = Callable[[Any], Any]
"""Makes a decoded value one of a type; raises Unfit if it is none."""


class UnfitPlan(Exception):
    """Why a value is none of a type."""


def converter(kind: pa.DataType, *, is_json: bool) -> Convert:
    """Return the function that makes decoded values ones of *kind*, which is not nested."""
    if kind == pa.binary():
        return _base64 if is_json else _binary
    return _decimal(kind) if pa.types.is_decimal(kind) else _LEAVES[kind]


def none_of(value: Any, name: str) -> UnfitPlan:
    """Say that *value* is none of the type called *name*, without showing it."""
    return UnfitPlan(f"{_NAMES.get(type(value), 'an extension of MessagePack')} is no {name}")


_NAMES = {
    bool: "a boolean", int: "a number", float: "a number", str: "text", bytes: "binary", list: "a list", dict: "a map",
    datetime.datetime: "a time",
}  # fmt: skip


def _whole(name: str, most: int) -> Convert:
    def whole(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is float and isfinite(value):
            raise UnfitPlan(f"a number with a fraction is no {name}")
        if type(value) is not int:
            raise none_of(value, name)
        if not -most <= value < most:
            raise UnfitPlan(f"the number is out of the range of {name}")
        return value

    return whole


def _real(name: str, rounded: Callable[[float], float]) -> Convert:
    """*rounded* makes a number one that a float of this size can be; OverflowError if it is too large."""

    def real(value: Any) -> float:
        if type(value) not in (int, float):
            raise none_of(value, name)
        try:
            if type(value) is int and rounded(value) != value:
                raise UnfitPlan(f"the number has more digits than {name} has")
            rounded(value)
        except OverflowError:
            raise UnfitPlan(f"the number is out of the range of {name}") from None
        return float(value)

    return real


def _single(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]


def _decimal(kind: pa.DataType) -> Convert:
    """A float counts as the shortest number that is written so: 0.1 is 0.1."""
    name = f"decimal({kind.precision},{kind.scale})"

    def decimal(value: Any) -> Decimal:
        if type(value) not in (str, int, float):
            raise none_of(value, name)
        try:
            found = Decimal(repr(value) if type(value) is float else value)
        except (InvalidOperation, ValueError):
            raise UnfitPlan(f"the text is no {name}") from None
        try:
            pa.scalar(found, kind)
        except pa.ArrowInvalid:
            raise UnfitPlan(f"the number is out of the range of {name}, or has more digits") from None
        return found

    return decimal


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise none_of(value, "boolean")
    return value


def _string(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UnfitPlan("binary that is not UTF-8 is no string") from None
    if not isinstance(value, str):
        raise none_of(value, "string")
    return value


def _binary(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise none_of(value, "binary")
    return value


def _base64(value: Any) -> bytes:
    if not isinstance(value, str):
        return _binary(value)
    try:
        return a2b_base64(value.encode(), strict_mode=True)
    except NoBase64:
        raise UnfitPlan("text that is not base64 is no binary in JSON") from None


def _nothing(value: Any) -> None:
    raise none_of(value, "void")


def _of_text(name: str, kind: Any, own: type | None = None) -> Convert:
    """*own* is the type of a decoded value that is one already."""

    def of_text(value: Any) -> Any:
        if type(value) is own:
            return value
        if not isinstance(value, str):
            raise none_of(value, name)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise UnfitPlan(f"the text is no {name} as RFC 3339 has it") from None

    return of_text


_LEAVES: dict[pa.DataType, Convert] = {
    pa.int8(): _whole("tinyint", INTEGER_RANGES[pa.int8()]),
    pa.int16(): _whole("smallint", INTEGER_RANGES[pa.int16()]),
    pa.int32(): _whole("int", INTEGER_RANGES[pa.int32()]),
    pa.int64(): _whole("bigint", INTEGER_RANGES[pa.int64()]),
    pa.float32(): _real("float", _single),
    pa.float64(): _real("double", float),
    pa.bool_(): _boolean,
    pa.string(): _string,
    pa.date32(): _of_text("date", datetime.date),
    pa.timestamp("us", tz="UTC"): _of_text("timestamp with a time zone", TIME, datetime.datetime),
    pa.timestamp("us"): _of_text("timestamp without a time zone", PLAIN_TIME),
    pa.time64("ns"): _of_text("time of day", TIME_OF_DAY),
    pa.duration("us"): _of_text("interval", datetime.timedelta),
    pa.null(): _nothing,
}

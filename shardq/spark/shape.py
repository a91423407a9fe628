"""Payloads as values of an Arrow type, and what of them does not fit it.

A value fits if it is one of the type without a change: a number is no text, 4.5 is no int, and 4.0 is one. Text and
bytes are each other where they are UTF-8; in JSON, which has no bytes, these are text in base64. A time is one with a
zone, or text as RFC 3339 has it. Floats and times are rounded to what their type can hold. Keys for which a struct has
no field are left out, and a field that is missing is null.

A value that does not fit is null, as Spark's JSON reader has it: a field of a struct, but a list or a map as a whole.
If null is not allowed there, the value around it is null. Reasons name types and the schema's fields, never a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

from shardq.codec import Codecs
from shardq.errors import CodecError
from shardq.spark.leaves import UnfitPlan, converter, none_of
from shardq.spark.maps import pairing
from shardq.spark.typed import typed

Fit = Callable[[Any, list[str]], Any]
"""A function that makes a decoded value one for Arrow; it adds to the list why it does not fit."""
_NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,3})?", re.ASCII)
_CODECS = Codecs()


class RowShape:
    """The shape to which payloads are decoded. *nullable*: a payload may be null."""

    def __init__(self, kind: pa.DataType, *, nullable: bool = True) -> None:
        hint = typed(kind, nullable=nullable)
        self._kind, self._paired = kind, pairing(kind)
        self._quick: dict[str, Callable[[bytes], Any]] = {
            "j": msgspec.json.Decoder(hint).decode,
            "m": msgspec.msgpack.Decoder(hint).decode,
        }
        if kind == pa.string():
            self._quick["b"] = bytes.decode
        field = pa.field("payload", kind, nullable)
        self._fits = {"j": _child(field, field.name, is_json=True), "": _child(field, field.name, is_json=False)}

    def column(self, tags: Sequence[str], raw: Sequence[bytes]) -> tuple[pa.Array, dict[int, str]]:
        """These payloads, whose codecs are *tags*, as a column; and by its row why one does not fit."""
        try:
            return self._column(tags, raw, self._quick)
        except pa.ArrowInvalid:  # a decimal has more digits than its type
            return self._column(tags, raw, {})

    def _column(
        self, tags: Sequence[str], raw: Sequence[bytes], quick: Mapping[str, Callable[[bytes], Any]]
    ) -> tuple[pa.Array, dict[int, str]]:
        values, reasons = [], {}
        for at, (tag, body) in enumerate(zip(tags, raw, strict=True)):
            try:
                value = quick[tag](body)
                values.append(value if self._paired is None else self._paired(value))
            except Exception:  # noqa: BLE001 - it may fit all the same; why not, is found out below
                value, reason = self.fit(tag, body)
                values.append(value)
                if reason:
                    reasons[at] = reason
        return pa.array(values, self._kind), reasons

    def fit(self, tag: str, body: bytes) -> tuple[Any, str]:
        """Return a payload as Arrow takes it, and why it does not fit; an empty reason if it does."""
        try:
            value = _CODECS.decode(tag, body)
        except CodecError as error:
            return None, f"payload: {str(error).partition(':')[0]}"
        reasons: list[str] = []
        found = self._fits.get(tag, self._fits[""])(value, reasons)
        return found, reasons[0] if reasons else ""


def _fit_of(kind: pa.DataType, path: str, *, is_json: bool) -> Fit:
    if pa.types.is_struct(kind):
        return _struct(kind, path, is_json=is_json)
    if pa.types.is_list(kind):
        return _list(kind, path, is_json=is_json)
    if pa.types.is_map(kind):
        return _map(kind, path, is_json=is_json)
    return _leaf(converter(kind, is_json=is_json), path)


def _child(field: pa.Field, path: str, *, is_json: bool) -> Fit:
    fit = _fit_of(field.type, path, is_json=is_json)
    if field.nullable:
        return fit

    def required(value: Any, reasons: list[str]) -> Any:
        if value is None:
            reasons.append(f"{path}: null is not allowed")
        return fit(value, reasons)

    return required


def _struct(kind: pa.DataType, path: str, *, is_json: bool) -> Fit:
    children = {each.name: _child(each, f"{path}.{each.name}", is_json=is_json) for each in kind}
    required = [each.name for each in kind if not each.nullable]

    def fit(value: Any, reasons: list[str]) -> Any:
        if not isinstance(value, dict):
            return _refused(value, "struct", path, reasons)
        found = {name: child(value.get(name), reasons) for name, child in children.items()}
        return None if any(found[name] is None for name in required) else found

    return fit


def _list(kind: pa.DataType, path: str, *, is_json: bool) -> Fit:
    child = _child(kind.value_field, f"{path}.element", is_json=is_json)

    def fit(value: Any, reasons: list[str]) -> Any:
        if not isinstance(value, list):
            return _refused(value, "array", path, reasons)
        return _all_or_none((child(each, reasons) for each in value), reasons)

    return fit


def _map(kind: pa.DataType, path: str, *, is_json: bool) -> Fit:
    """Keys of JSON are text: where the map's are numbers, they are made numbers again."""
    is_number = pa.types.is_integer(kind.key_type) or pa.types.is_floating(kind.key_type)
    key = _child(kind.key_field, f"{path}.key", is_json=is_json)
    child = _child(kind.item_field, f"{path}.value", is_json=is_json)

    def fit(value: Any, reasons: list[str]) -> Any:
        if not isinstance(value, dict):
            return _refused(value, "map", path, reasons)
        names = map(_numbered, value) if is_number else value
        pairs = zip(names, value.values(), strict=True)
        return _all_or_none(((key(name, reasons), child(each, reasons)) for name, each in pairs), reasons)

    return fit


def _all_or_none(parts: Iterator[Any], reasons: list[str]) -> list[Any] | None:
    """All *parts*; None as soon as one of them, as it is made, adds to *reasons*."""
    before, found = len(reasons), []
    for each in parts:
        found.append(each)
        if len(reasons) > before:
            return None
    return found


def _numbered(key: Any) -> Any:
    """A key of JSON as a number, if it is one."""
    if not isinstance(key, str) or not _NUMBER.fullmatch(key):
        return key
    return float(key) if set(key) & set(".eE") else int(key)


def _leaf(convert: Callable[[Any], Any], path: str) -> Fit:
    def fit(value: Any, reasons: list[str]) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except UnfitPlan as why:
            reasons.append(f"{path}: {why}")
        return None

    return fit


def _refused(value: Any, name: str, path: str, reasons: list[str]) -> None:
    """Note that *value* is none of the type called *name*, unless it is null."""
    if value is not None:
        reasons.append(f"{path}: {none_of(value, name)}")

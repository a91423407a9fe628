"""The fields of a serialized message, counted before it is parsed.

protobuf makes an object of each field, also of an empty one, which takes two bytes on the wire. So a megabyte of them
takes the time and the memory of half a million. Here only as many are looked at as there may be.
"""

from __future__ import annotations

from typing import Any, Final

from shardq.errors import ShardqError

Field = tuple[int, int, int]
"""The number of a field, and from where to where its content goes."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED: Final = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT: Final = 10
"""Bytes of a number."""


class BadFields(ShardqError):
    """A message with too many fields, or with something that is none. Its text shows nothing of the content."""


def fields_in(raw: bytes, most: int, begin: int = 0, end: int | None = None) -> list[Field]:
    """Return the fields of the message that goes from *begin* to *end*. BadFields if it has more than *most*."""
    at, end = begin, len(raw) if end is None else end
    found: list[Field] = []
    while at < end:
        if len(found) == most:
            raise BadFields(f"it has more than {most:,} fields")
        number, content, at = _field(raw, at, end)
        if at > end:
            raise BadFields("a field of it is cut off")
        found.append((number, content, at))
    return found


def numbers_of(kind: Any, *names: str) -> frozenset[int]:
    """Return the numbers of the fields of a message class that have these names."""
    return frozenset(kind.DESCRIPTOR.fields_by_name[name].number for name in names)


def _field(raw: bytes, at: int, end: int) -> Field:
    tag = raw[at]
    if tag < 128 and tag & 7 == BYTES and at + 1 < end and (size := raw[at + 1]) < 128:  # as nearly all are
        return tag >> 3, at + 2, at + 2 + size
    tag, at = _number(raw, at, end)
    kind = tag & 7
    if kind == BYTES:
        size, at = _number(raw, at, end)
        return tag >> 3, at, at + size
    if kind == VARINT:
        return tag >> 3, at, _number(raw, at, end)[1]
    if kind not in _FIXED:  # groups, which no message of this service has
        raise BadFields("it has a field of an unknown kind")
    return tag >> 3, at, at + _FIXED[kind]


def _number(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number that begins at *at*, and where it ends."""
    found = 0
    for place, byte in enumerate(raw[at : min(at + _MAX_VARINT, end)]):
        found |= (byte & 127) << 7 * place
        if byte < 128:
            return found, at + place + 1
    raise BadFields("a number of it is cut off")

"""The types to which msgspec decodes payloads that fit an Arrow type. It checks them while it decodes, in C.

These types take nothing that shardq.spark.shape would not take, and make of it what that makes. They take less: `4.0`
for an int, for example, is left to it. But a decimal may have more digits than its type, which Arrow finds.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Annotated, Any, Required, TypedDict

from msgspec import Meta

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

TIME = Annotated[datetime.datetime, Meta(tz=True)]
PLAIN_TIME = Annotated[datetime.datetime, Meta(tz=False)]
TIME_OF_DAY = Annotated[datetime.time, Meta(tz=False)]
INTEGER_RANGES = {pa.int8(): 2**7, pa.int16(): 2**15, pa.int32(): 2**31, pa.int64(): 2**63}
"""Integers of these types are below this number."""
EXACT_INTEGERS = {pa.float32(): 2**24, pa.float64(): 2**53}
"""Integers up to this number, and not all above it, are numbers of these types."""
_LEAVES: dict[pa.DataType, Any] = {
    **{kind: Annotated[int, Meta(ge=-most, le=most - 1)] for kind, most in INTEGER_RANGES.items()},
    # A larger integer, rounded, is not within these bounds either.
    **{kind: Annotated[float, Meta(ge=1 - most, le=most - 1)] for kind, most in EXACT_INTEGERS.items()},
    pa.bool_(): bool,
    pa.string(): str,
    pa.binary(): bytes,
    pa.date32(): datetime.date,
    pa.timestamp("us", tz="UTC"): TIME,
    pa.timestamp("us"): PLAIN_TIME,
    pa.time64("ns"): TIME_OF_DAY,
    pa.duration("us"): datetime.timedelta,
    pa.null(): type(None),
}


def typed(kind: pa.DataType, *, nullable: bool) -> Any:
    """The type for values of *kind*, or for null, too."""
    found = _type_of(kind)
    return found | None if nullable else found


def _type_of(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        fields = {each.name: typed(each.type, nullable=each.nullable) for each in kind}
        required = {each.name: Required[fields[each.name]] for each in kind if not each.nullable}
        return TypedDict("Struct", fields | required, total=False)  # type: ignore[operator]
    if pa.types.is_list(kind):
        return list[typed(kind.value_type, nullable=kind.value_field.nullable)]  # type: ignore[misc]
    if pa.types.is_map(kind):
        item = typed(kind.item_type, nullable=kind.item_field.nullable)
        return dict[_type_of(kind.key_type), item]  # type: ignore[misc]
    return Decimal if pa.types.is_decimal(kind) else _LEAVES[kind]

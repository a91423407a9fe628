"""The columns of the tables that can be read, and the Arrow types of Spark's types."""

from __future__ import annotations

from collections.abc import Mapping

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        DayTimeIntervalType,
        DecimalType,
        DoubleType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
        TimeType,
    )

from shardq.errors import ConfigError
from shardq.spark.options import Parsing

_TEXT, _WHOLE, _TIME = StringType(), IntegerType(), TimestampType()
_HEADERS = MapType(StringType(), StringType())
_LIVE: dict[str, DataType] = {
    "queue": _TEXT, "message_id": _TEXT, "shard_key": _TEXT, "state": _TEXT, "stream": _WHOLE, "written_at": _TIME,
    "due_at": _TIME, "deadline": _TIME, "lease_until": _TIME, "count": _WHOLE, "last_error": _TEXT, "codec": _TEXT,
    "headers": _HEADERS, "payload": BinaryType(),
}  # fmt: skip
_DEAD: dict[str, DataType] = {
    "queue": _TEXT, "message_id": _TEXT, "shard_key": _TEXT, "reason": _TEXT, "count": _WHOLE, "last_error": _TEXT,
    "written_at": _TIME, "died_at": _TIME, "entry_id": _TEXT, "codec": _TEXT, "headers": _HEADERS,
    "payload": BinaryType(),
}  # fmt: skip
_JOURNAL: dict[str, DataType] = {
    "queue": _TEXT, "queue_id": _TEXT, "partition": _WHOLE, "number": LongType(), "time": _TIME, "kind": _TEXT,
    "message_id": _TEXT, "shard_key": _TEXT, "stream": _WHOLE, "count": _WHOLE, "due": _TIME, "client": _TEXT,
    "by": _TEXT, "note": _TEXT, "task": _TEXT, "charged_ms": DoubleType(), "ran_ms": DoubleType(),
    "values": MapType(StringType(), StringType()), "version": _WHOLE,
}  # fmt: skip
_LEASED: dict[str, DataType] = {
    "queue": _TEXT, "message_id": _TEXT, "shard_key": _TEXT, "count": _WHOLE, "last_error": _TEXT, "written_at": _TIME,
    "codec": _TEXT, "headers": _HEADERS, "payload": BinaryType(), "lease": _TEXT,
}  # fmt: skip
_TABLES = {"live": _LIVE, "dead": _DEAD, "journal": _JOURNAL, "leased": _LEASED}

_TYPES = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
EITHER_TYPE = {"shard_key": (StringType, BinaryType)}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that record batches for *schema* must have, nullability included."""
    return pa.schema([_field(each, each.name) for each in schema])


def _field(field: StructField, path: str) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType, path), field.nullable)


def arrow_type(kind: DataType, path: str) -> pa.DataType:
    """The Arrow type of a Spark type; ConfigError names by *path* a column that payloads cannot have."""
    match kind:
        case StructType():
            return pa.struct([_field(each, f"{path}.{each.name}") for each in kind])
        case ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType, f"{path}.element"), kind.containsNull))
        case MapType():
            if isinstance(kind.keyType, StructType | ArrayType | MapType):
                raise ConfigError(f"payloads have no maps with keys of type {kind.keyType.simpleString()}")
            value = pa.field("value", arrow_type(kind.valueType, f"{path}.value"), kind.valueContainsNull)
            return pa.map_(pa.field("key", arrow_type(kind.keyType, f"{path}.key"), False), value)
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case DayTimeIntervalType():
            return pa.duration("us")
        case TimeType():
            return pa.time64("ns")
    found = _TYPES.get(kind.typeName())
    if found is None:
        raise ConfigError(
            f"column {path} is {kind.simpleString()}, which payloads cannot have: cast it to another type, or take the "
            "payload as binary"
        )
    return found


def table_schema(table: str, *, headers: bool = True) -> StructType:
    """The columns of *table*: live, dead, journal or leased."""
    columns = _TABLES[table].items()
    return StructType([StructField(name, kind) for name, kind in columns if headers or name != "headers"])


def check_schema(table: str, wished: StructType, options: Parsing) -> None:
    """ConfigError unless *wished* has columns of *table* only, with types that they can have.

    Where payloads are decoded, it may also have the column of corrupt records.
    """
    known = _TABLES[table]
    _check_parsing(known, wished, options)
    for each in wished:
        if each.name == options.corrupt:
            continue
        if each.name not in known:
            raise ConfigError(f"there is no column {each.name}; the columns are {', '.join(known)}")
        wanted = known[each.name]
        if each.name == "payload":
            arrow_type(each.dataType, "payload")
        elif each.dataType != wanted and not isinstance(each.dataType, EITHER_TYPE.get(each.name, ())):
            raise ConfigError(f"column {each.name} is {wanted.simpleString()}, not {each.dataType.simpleString()}")


def _check_parsing(known: Mapping[str, DataType], wished: StructType, options: Parsing) -> None:
    """ConfigError for a mode where no payload can be malformed, or malformed ones could not be null."""
    kind = wished["payload"].dataType if "payload" in wished.names else BinaryType()
    decodes = not isinstance(kind, BinaryType)
    _check_corrupt(known, wished, options)
    if not decodes and (options.parse_mode or options.corrupt in wished.names):
        what = f"column {options.corrupt}" if options.corrupt in wished.names else "option parseMode"
        raise ConfigError(f"{what} needs a payload that is decoded: .schema('payload struct<a: int>'), for example")
    if decodes and options.parse_as == "PERMISSIVE" and not wished["payload"].nullable:
        raise ConfigError(
            "column payload is NOT NULL, but with parseMode PERMISSIVE a malformed payload is null: let it be null, or "
            "take another parseMode"
        )


def _check_corrupt(known: Mapping[str, DataType], wished: StructType, options: Parsing) -> None:
    """ConfigError unless the column of corrupt records, if there is one, can have them."""
    name = options.corrupt
    if name in known:
        raise ConfigError(f"option columnNameOfCorruptRecord must be another name than that of the column {name}")
    if name not in wished.names:
        if options.column_name_of_corrupt_record:
            raise ConfigError(f"option columnNameOfCorruptRecord needs the column {name} string in .schema(...)")
        return
    if not wished[name].nullable or not isinstance(wished[name].dataType, StringType | BinaryType):
        raise ConfigError(f"column {name} must be string or binary, and may be null")

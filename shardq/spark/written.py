"""Which DataFrames can be written: the columns of a message, their types, and the options that they need."""

from __future__ import annotations

from collections.abc import Mapping

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        BooleanType,
        DataType,
        MapType,
        NumericType,
        StringType,
        StructType,
    )

from shardq.errors import ConfigError
from shardq.ops.write.outgoing import EXISTING
from shardq.spark.connection import queue_of, whole_queue_of
from shardq.spark.options import Reading, Writing, parsed
from shardq.spark.schema import arrow_type

KINDS: dict[str, tuple[type[DataType], ...]] = {
    "shard_key": (StringType, BinaryType),
    "payload": (DataType,),
    "delay": (NumericType,),
    "deadline": (NumericType,),
    "dedup_key": (StringType,),
    "unique_key": (StringType,),
    "headers": (MapType,),
    "queue": (StringType,),
    "part": (StringType,),
    "task": (StringType,),
    "source": (StructType,),
}
"""The columns that a DataFrame to be written may have, and their types."""
REQUIRED = ("shard_key", "payload")
SOURCE = StructType().add("file", "string").add("line", "integer").add("is_checked", "boolean").add("row", "integer")
"""Where a row comes from: the file; the line of the first row of its part, if rows are lines; whether it is text that
must be UTF-8; and which row of its part it is, where not all of these come."""


def checked_writing(given: Mapping[str, str], schema: StructType) -> Writing:
    """The options of a write whose rows have *schema*; ConfigError, QueueMissing."""
    options = parsed(Writing, given, Reading)
    check_columns(schema, options)
    if not options.queue and "queue" not in schema.names:
        raise ConfigError("option queue of format shardq is missing, and there is no column queue")
    if options.queue and "queue" in schema.names:
        raise ConfigError("give the option queue or the column queue, not both")
    if options.queue:
        queue_of(options, options.queue, create=options.create)
    if options.error_queue:
        whole_queue_of(options, options.error_queue, create=options.create)
    return options


def check_columns(schema: StructType, options: Writing) -> None:
    """ConfigError unless rows of *schema* can be messages."""
    names = ", ".join(KINDS)
    if unknown := [each.name for each in schema if each.name not in KINDS]:
        raise ConfigError(
            f"column {unknown[0]} is not a part of a message ({names}): drop it, or put it into the payload"
        )
    if missing := [name for name in REQUIRED if name not in schema.names]:
        raise ConfigError(f"column {missing[0]} is missing: a message has {names}")
    for each in schema:
        if not isinstance(each.dataType, KINDS[each.name]):
            wanted = " or ".join(kind.typeName() for kind in KINDS[each.name] if kind is not NumericType) or "a number"
            raise ConfigError(f"column {each.name} is {each.dataType.simpleString()}: it must be {wanted}")
    if "headers" in schema.names and schema["headers"].dataType.simpleString() != "map<string,string>":
        raise ConfigError("column headers must be map<string,string>")
    payload = schema["payload"].dataType
    _check_extra(schema, options)
    if options.idempotence == "key" and "dedup_key" not in schema.names:
        raise ConfigError("idempotence=key needs the column dedup_key: rows that have the same key are stored once")
    if len(options.codec) == 1 and not isinstance(payload, BinaryType):
        raise ConfigError(f"codec {options.codec} needs a binary payload, encoded by you")
    check_keys(payload, options.codec)
    arrow_type(payload, "payload")


def _check_extra(schema: StructType, options: Writing) -> None:
    """ConfigError for a column that needs another one, or that another one needs."""
    if "source" in schema.names and schema["source"].dataType.simpleString() != SOURCE.simpleString():
        raise ConfigError(f"column source must be {SOURCE.simpleString()}")
    if "task" in schema.names and not _has_arguments(schema["payload"].dataType):
        raise ConfigError("column payload has the arguments of a task by name: make it a struct, or a map of strings")
    if options.on_conflict != EXISTING and "unique_key" not in schema.names:
        raise ConfigError(f"onConflict={options.on_conflict} needs the column unique_key")


def _has_arguments(kind: DataType) -> bool:
    return isinstance(kind, StructType) or (isinstance(kind, MapType) and isinstance(kind.keyType, StringType))


def check_keys(kind: DataType, codec: str) -> None:
    """ConfigError if a map in values of *kind* has keys that a map in JSON or MessagePack cannot have."""
    if isinstance(kind, MapType):
        unfit = (StructType, ArrayType, MapType, *((BooleanType, BinaryType) if codec == "json" else ()))
        if isinstance(kind.keyType, unfit):
            raise ConfigError(
                f"a map in column payload has keys of type {kind.keyType.simpleString()}, which {codec or 'msgpack'} "
                "has not: make them text or numbers"
            )
        check_keys(kind.valueType, codec)
    elif isinstance(kind, ArrayType):
        check_keys(kind.elementType, codec)
    elif isinstance(kind, StructType):
        for each in kind:
            check_keys(each.dataType, codec)

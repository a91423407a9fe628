"""The data source "shardq", as Spark sees it. Its objects have only options, so they can be sent to other processes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import DataSource
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
from shardq.spark.connection import queue_of, server_ms_of, whole_queue_of
from shardq.spark.options import Consuming, Reading, Writing, of_one_queue, parsed
from shardq.spark.reader import BatchReader
from shardq.spark.schema import arrow_schema, arrow_type, check_schema, table_schema
from shardq.spark.subscription import Subscription
from shardq.spark.tables import is_table, options_in, table_columns
from shardq.spark.versions import check_streams
from shardq.spark.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from shardq.spark.consume.stream import ConsumingReader
    from shardq.spark.stream import StreamReader

T = TypeVar("T", Reading, Consuming)
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
SOURCE = StructType().add("file", "string").add("line", "integer").add("is_checked", "boolean")
"""Where a row comes from: the file; the line of the first row of its part, if rows are lines; and whether it is text
that must be UTF-8."""


class ShardqDataSource(DataSource):
    """format("shardq"): docs/spark.md has options and columns."""

    parts: ClassVar[int] = 0
    """The option `partitions` where it is not given; `register` knows the cluster's cores. 0: by the driver's."""
    defaults: ClassVar[Mapping[str, str]] = {}
    """The options that the session's settings give, as `register` has read them."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "shardq"

    def schema(self) -> StructType | str:
        """The columns of the table that the options name."""
        if is_table(self.options):
            return table_columns(self.options)
        if self._consumes:
            return table_schema("leased", headers=self._parsed(Consuming).include_headers)
        options = self._parsed(Reading)
        return table_schema(options.table, headers=options.include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of `spark.read`; with `.schema(...)` it makes only these columns. ConfigError, QueueMissing."""
        if self._consumes:
            raise ConfigError(
                "mode=consume is for spark.readStream: a batch job holds messages in a block of "
                "shardq.spark.consuming(spark, url=..., queue=...), at whose end they are acked"
            )
        options = self._parsed(Reading, schema)
        check_schema(options.table, schema, options)
        Subscription(options).check()
        return BatchReader(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> StreamReader | ConsumingReader:
        """The reader of `spark.readStream`: of a journal, of dead letters, or a consumer. ConfigError."""
        check_streams()
        from shardq.spark.consume.stream import ConsumingReader  # these two need a PySpark that has streams
        from shardq.spark.stream import StreamReader

        if self._consumes:
            leasing = self._parsed(Consuming)
            check_schema("leased", schema, leasing)
            return ConsumingReader(leasing, arrow_schema(schema))
        options = self._parsed(Reading, schema)
        if options.table == "live":
            raise ConfigError(
                "a stream is read with state=journal or state=dead, since what a queue holds comes and goes; with "
                "mode=consume it leases the messages"
            )
        check_schema(options.table, schema, options)
        return StreamReader(options, arrow_schema(schema))

    @property
    def _consumes(self) -> bool:
        return "mode" in self.options

    def _given(self, schema: StructType | None = None) -> dict[str, str]:
        """The options in lower case: of the settings, and of this use, else of the table with this *schema*."""
        own = self.options or options_in(schema or ())
        if not own and (schema is None or "queue" not in schema.names):
            raise ConfigError(
                "there are no options: Spark keeps those of CREATE TABLE to itself if that has columns or AS SELECT; "
                "leave out the columns and say payloadType (docs/spark.md), or take CREATE TEMPORARY VIEW"
            )
        return {name.lower(): value for some in (self.defaults, own) for name, value in some.items()}

    def _parsed(self, kind: type[T], schema: StructType | None = None) -> T:
        given = self._given(schema)
        is_filled = kind is Reading and "queue" in given
        options = parsed(kind, of_one_queue(given) if is_filled else given, Writing if is_filled else None)
        return options if options.partitions else replace(options, partitions=self.parts)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """The writer of `df.write`. Raises ConfigError and QueueMissing before any task runs."""
        if overwrite:
            raise ConfigError(
                "a queue cannot be overwritten, as workers may hold its messages: use mode('append'); to remove the "
                f"messages that wait, run `shardq purge {self.options.get('queue', 'QUEUE')}` first"
            )
        options = checked_writing(self._given(schema), schema)
        write_id = options.write_id or f"{options.queue or 'write'}-{secrets.token_hex(8)}"
        return BatchWriter(options, write_id, server_ms_of(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """The writer of `df.writeStream`."""
        if overwrite:
            raise ConfigError("rows can only be added to a queue: use outputMode('append') or 'update'")
        options = checked_writing(self._given(schema), schema)
        if options.batch_id >= 0:
            raise ConfigError("option batchId is for df.write in foreachBatch: a writeStream counts its batches itself")
        return StreamWriter(options, server_ms_of(options))


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

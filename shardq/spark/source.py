"""The data source "shardq", as Spark sees it. Its objects have only options, so they can be sent to other processes.

Spark starts a Python for each streaming query, and others to plan reads and writes. So each use imports what it needs.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

from shardq.errors import ConfigError
from shardq.spark.connection import server_ms_of
from shardq.spark.options import Consuming, Reading, Writing, of_one_queue, parsed
from shardq.spark.schema import arrow_schema, check_schema, table_schema
from shardq.spark.subscription import Subscription
from shardq.spark.tables import is_table, options_in, table_columns
from shardq.spark.versions import check_streams

if TYPE_CHECKING:
    from shardq.spark.consume.stream import ConsumingReader
    from shardq.spark.reader import BatchReader
    from shardq.spark.stream import StreamReader
    from shardq.spark.writer import BatchWriter, StreamWriter

T = TypeVar("T", Reading, Consuming)


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
        from shardq.spark.reader import BatchReader

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
        from shardq.spark.writer import BatchWriter
        from shardq.spark.written import checked_writing

        options = checked_writing(self._given(schema), schema)
        write_id = options.write_id or f"{options.queue or 'write'}-{secrets.token_hex(8)}"
        return BatchWriter(options, write_id, server_ms_of(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """The writer of `df.writeStream`."""
        if overwrite:
            raise ConfigError("rows can only be added to a queue: use outputMode('append') or 'update'")
        from shardq.spark.writer import StreamWriter
        from shardq.spark.written import checked_writing

        options = checked_writing(self._given(schema), schema)
        if options.batch_id >= 0:
            raise ConfigError("option batchId is for df.write in foreachBatch: a writeStream counts its batches itself")
        return StreamWriter(options, server_ms_of(options))

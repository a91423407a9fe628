"""Where PySpark finds format("shardq") by itself: it imports each top-level package whose name begins with `pyspark_`.

In a wheel this package is at the top level. It is imported for the queries of every source that is written in Python,
also of others. So its import loads nothing of shardq, and never raises.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shardq.spark.reader import BatchReader
    from shardq.spark.source import ShardqDataSource
    from shardq.spark.stream import StreamReader
    from shardq.spark.writer import BatchWriter, StreamWriter

with suppress(ImportError):  # then Spark is not here, so nobody looks for its formats
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):
        """Stands for `ShardqDataSource`, which is loaded when it is used."""

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return "shardq"

        def _source(self) -> ShardqDataSource:
            from shardq.spark import check_install

            check_install()
            from shardq.spark.source import ShardqDataSource

            return ShardqDataSource(self.options)

        def schema(self) -> StructType:
            """The columns of the table that the options name."""
            return self._source().schema()

        def reader(self, schema: StructType) -> BatchReader:
            """The reader of `spark.read`."""
            return self._source().reader(schema)

        def streamReader(self, schema: StructType) -> StreamReader:
            """The reader of `spark.readStream`."""
            return self._source().streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            """The writer of `df.write`."""
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            """The writer of `df.writeStream`."""
            return self._source().streamWriter(schema, overwrite)

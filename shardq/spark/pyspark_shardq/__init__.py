"""Where PySpark finds format("shardq") by itself: it imports each top-level package whose name begins with `pyspark_`.

In a wheel this package is at the top level. It is imported for the queries of every source that is written in Python,
also of others. So its import loads nothing of shardq, and never raises.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

with suppress(ImportError):  # then Spark is not here, so nobody looks for its formats
    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):
        """Stands for `ShardqDataSource`, which is loaded when one is made."""

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return "shardq"

        def __new__(cls, options: dict[str, str]) -> Any:
            """A `ShardqDataSource`."""
            from shardq.spark import check_install

            check_install()
            from shardq.spark.source import ShardqDataSource

            return ShardqDataSource(options)

"""Spark reads and writes queues: `spark.read.format("shardq")`, `df.write.format("shardq")`, and both as streams.

`register(spark)` once per session makes the name known. docs/spark.md has the options and the columns. Importing this
package needs no Spark; what does is in `shardq.spark.source` (extra `spark`: PySpark 4.2 or newer, and PyArrow).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

OLDEST = (4, 2)


def register(spark: SparkSession) -> None:
    """Let *spark* know the format "shardq". ConfigError when PySpark or PyArrow is missing or too old.

    Spark looks formats up in the session of the calling thread, so each thread that writes or loads calls this.
    """
    check_install()
    from shardq.spark.source import ShardqDataSource

    spark.dataSource.register(ShardqDataSource)
    if (jvm := getattr(spark, "_jvm", None)) is not None:  # there is none on the client's side of Spark Connect
        jvm.SparkSession.setActiveSession(spark._jsparkSession)


def check_install() -> None:
    """ConfigError that says what to install, unless a fitting PySpark and PyArrow are here."""
    try:
        import pyarrow
        import pyspark
    except ImportError as missing:
        raise ConfigError(f"{missing.name} is missing: pip install 'shardq[spark]'") from None
    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if not OLDEST <= found < (5,):
        raise ConfigError(f"PySpark {pyspark.__version__} is here, 4.2 up to 5 is needed: pip install 'shardq[spark]'")
    if int(pyarrow.__version__.partition(".")[0]) < 18:
        raise ConfigError(f"PyArrow {pyarrow.__version__} is here, 18 or newer is needed: pip install 'shardq[spark]'")

"""Spark reads and writes queues: `spark.read.format("shardq")`, `df.write.format("shardq")`, and both as streams.

Call `register(spark)` once per session to register the format; where shardq is installed from a wheel, PySpark finds it
by itself. `lag` tells how far a streaming query is behind. docs/spark.md has the options and the columns. This
package can be imported without Spark, but `shardq.spark.source` needs it (extra `spark`: PySpark 4, and PyArrow).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardq.errors import ConfigError
from shardq.extras import extra, install
from shardq.later import names_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardq.spark.consume.block import consuming
    from shardq.spark.consume.settling import Settlement, ack, nack, reject, settle_failed, settle_last
    from shardq.spark.lags import Lag, lag

__all__ = [
    "Lag",
    "Settlement",
    "ack",
    "consuming",
    "lag",
    "nack",
    "register",
    "reject",
    "settle_failed",
    "settle_last",
]

_SETTLING = "shardq.spark.consume.settling"
__getattr__ = names_from(
    __name__,
    {
        "Lag": "shardq.spark.lags",
        "Settlement": _SETTLING,
        "ack": _SETTLING,
        "consuming": "shardq.spark.consume.block",
        "lag": "shardq.spark.lags",
        "nack": _SETTLING,
        "reject": _SETTLING,
        "settle_failed": _SETTLING,
        "settle_last": _SETTLING,
    },
)
"""The Python that Spark starts for a streaming query needs none of these."""

OLDEST_VERSION = (4, 0)


def register(spark: SparkSession) -> None:
    """Register the format "shardq" with *spark*. ConfigError when PySpark or PyArrow is missing or too old.

    By default a queue is read by two tasks for each core that the cluster has now. The settings `spark.shardq.url`,
    `spark.shardq.timeout` and `spark.shardq.durability`, as they are now, are the defaults of these options.
    ConfigError also when the executors that it has now cannot import shardq, or have another version.

    Spark looks formats up in the session of the calling thread, so each thread that writes or loads must call this.

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost:6379")
    >>> ids = client.queue("jobs", create=True).write_many([(b"hello", "acme"), (b"", "umbrella")])
    >>> register(spark)
    >>> rows = spark.read.format("shardq").options(url="redis://localhost:6379", subscribe="jobs").load()
    >>> rows.count()
    2
    """
    check_install()
    from shardq.spark.privates import jvm_of, make_active
    from shardq.spark.shipped import check_executors, ship
    from shardq.spark.source import ShardqDataSource
    from shardq.spark.tables import settings
    from shardq.spark.versions import register_source

    known: dict[str, object] = {"defaults": settings(spark.conf.get)}
    if jvm_of(spark) is None:
        register_source(spark, type("ShardqDataSource", (ShardqDataSource,), known))
        return
    ship(spark.sparkContext)
    check_executors(spark.sparkContext)
    known["parts"] = 2 * spark.sparkContext.defaultParallelism
    register_source(spark, type("ShardqDataSource", (ShardqDataSource,), known))
    make_active(spark)


def check_install() -> None:
    """ConfigError that says what to install, unless PySpark and PyArrow are installed in versions that fit."""
    with extra("spark"):
        import pyarrow
        import pyspark
    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if not OLDEST_VERSION <= found < (5,):
        raise ConfigError(f"PySpark {pyspark.__version__} is installed, but 4.0 up to 5 is needed: {install('spark')}")
    if int(pyarrow.__version__.partition(".")[0]) < 18:
        raise ConfigError(f"PyArrow {pyarrow.__version__} is installed, but 18 or newer is needed: {install('spark')}")

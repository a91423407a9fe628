"""How many partitions Spark makes: as many as the data needs, also of tables that are kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
}
"""By default a kept table has as many partitions as a shuffle (200), however few rows it has, and so has all that is
made of it. The second setting makes a partition for each core of more than 1 MB; tasks without Python are cheap."""


@contextmanager
def sized(spark: SparkSession) -> Iterator[None]:
    """Have what is run and kept in this context divided by its size; the session's settings are restored at its end."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, found in before.items():
            spark.conf.set(name, str(found))

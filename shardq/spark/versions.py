"""The differences between versions of PySpark.

4.0 has no base for a stream's writer that gets Arrow. 4.0 and 4.1 do not say to a stream's reader where it stands, nor
how much it may read.
"""

from __future__ import annotations

from typing import Any

from shardq.errors import ConfigError
from shardq.extras import extra

with extra("spark"):
    import pyspark
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession, datasource


class _BothWriters(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
    """In PySpark 4.0 a stream's writer gets Arrow if it is a batch's writer, too."""


ArrowStreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", _BothWriters)
"""The base of a stream's writer that gets Arrow."""


def register_source(spark: SparkSession, source: type[datasource.DataSource]) -> None:
    """Register a format. Where PySpark 4.0 has found it by itself, in a wheel, it keeps what it has found."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def check_streams() -> None:
    """ConfigError unless this PySpark can read streams of shardq."""
    try:
        from pyspark.sql.streaming import datasource as streaming
    except ImportError:
        streaming = None
    if streaming is None:
        raise ConfigError(
            f"spark.readStream of format shardq needs PySpark 4.2 or newer, and this is {pyspark.__version__}: install "
            "a newer one, or read by spark.read, and consume by shardq.spark.consuming"
        )

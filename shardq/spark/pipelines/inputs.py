"""Where DataFrames come from and go to: Parquet, JSON, CSV and tables, and what their columns must be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from shardq.arguments import shown
from shardq.errors import ConfigError

FORMATS: Final = ("parquet", "json", "csv", "orc", "table")
SUFFIXES: Final = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".orc": "orc"}


def format_of(path: str, given: str | None = None) -> str:
    """The format *given*, else that of the path's suffix (also of `x.csv.gz`), else Parquet. ConfigError."""
    if given is not None:
        if given not in FORMATS:
            raise ConfigError(f"format {shown(given)} is unknown: choose one of {', '.join(FORMATS)}")
        return given
    suffixes = [suffix for suffix in PurePosixPath(path.rstrip("/*")).suffixes if suffix in SUFFIXES]
    return SUFFIXES[suffixes[-1]] if suffixes else "parquet"


def read_table(spark: SparkSession, path: str, *, form: str | None = None, schema: str | None = None) -> DataFrame:
    """The rows of a folder, file, glob or (format "table") table of the catalog.

    *schema* is as Spark writes it, `key string, at timestamp`; without it that of the files is taken, which JSON and
    CSV are read once more for. CSV files have a header. Spark raises AnalysisException where there is nothing.
    """
    form = format_of(path, form)
    if form == "table":
        return spark.table(path)
    reader = spark.read.format(form)
    if schema:
        reader = reader.schema(schema)
    if form == "csv":
        reader = reader.option("header", True)
        reader = reader if schema else reader.option("inferSchema", True)
    if form in ("csv", "json"):
        reader = reader.option("mode", "FAILFAST")  # a line that cannot be parsed must not become a row of nulls
    return reader.load(path)


def read_journal(spark: SparkSession, url: str, queue: str, **options: str) -> DataFrame:
    """The events that the journal of *queue* holds now."""
    reader = spark.read.format("shardq").options(url=url, subscribe=queue, state="journal", **options)
    return reader.option("failOnDataLoss", "false").load()


def follow_journal(spark: SparkSession, url: str, queue: str, **options: str) -> DataFrame:
    """The events of the journal of *queue* as a stream, from the oldest on; it fails when some were gone unread."""
    reader = spark.readStream.format("shardq").options(url=url, subscribe=queue, state="journal", **options)
    return reader.option("startingOffsets", "earliest").load()


def check_columns(schema: StructType, wanted: Mapping[str, tuple[type[DataType], ...]], what: str) -> None:
    """ConfigError unless *schema* has the *wanted* columns, each of one of its types; *what* names the rows."""
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        there = ", ".join(schema.names) or "none"
        raise ConfigError(f"{what} need the column {', '.join(missing)}; the columns there are: {there}")
    for name, kinds in wanted.items():
        if not isinstance(schema[name].dataType, kinds):
            fits = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigError(f"column {name} of {what} is {schema[name].dataType.simpleString()}: it must be {fits}")

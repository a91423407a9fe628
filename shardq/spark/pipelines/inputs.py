"""Where DataFrames come from and go to: Parquet, JSON, CSV and tables, and what their columns must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import DataType, StringType, StructType

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.spark.pipelines.files import overridden

FORMATS: Final = ("parquet", "json", "csv", "orc", "table")
SUFFIXES: Final = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".orc": "orc"}
NO_OPTIONS: Final[Mapping[str, str]] = {}

STRICT_OPTIONS: Final = {
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
"""CSV files have a header, and one with other columns than the first file fails instead of being read by position. A
line that cannot be parsed must not become a row of nulls."""

LANDING: Final = {"maxFilesPerTrigger": "1000", "maxFileAge": "36500d"}
"""Of a landing folder a batch has at most so many files; Spark leaves out files that were a week older than the newest
when they came, unless it is told another age."""

AS_TEXT: Final = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}


def format_of(path: str, given: str | None = None) -> str:
    """The format *given*, else that of the path's suffix (also of `x.CSV.gz`), else Parquet. ConfigError."""
    if given is not None:
        if given not in FORMATS:
            raise ConfigError(f"format {shown(given)} is unknown: choose one of {', '.join(FORMATS)}")
        return given
    suffixes = [each.lower() for each in PurePosixPath(path.rstrip("/*")).suffixes if each.lower() in SUFFIXES]
    return SUFFIXES[suffixes[-1]] if suffixes else "parquet"


def read_table(
    spark: SparkSession,
    path: str,
    *,
    form: str | None = None,
    schema: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    typed: Iterable[str] = (),
) -> DataFrame:
    """The rows of a folder, file, glob or (format "table") table of the catalog.

    *schema* is as Spark writes it, `key string, at timestamp`; without it that of the files is taken, which JSON and
    CSV are read once more for. CSV and the names of folders (`tenant=007`) have no types: there all is text, so that a
    shard key 007 stays what it is, apart from the columns *typed*, whose types Spark finds out. *options* are those of
    Spark's reader for the format. Spark raises AnalysisException where there is nothing.
    """
    form = format_of(path, form)
    if form == "table":
        return spark.table(path)

    def load(**more: str) -> DataFrame:
        try:
            return _prepared(spark.read, form, schema, {**options, **more}).load(path)
        except AnalysisException as error:
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                raise
            raise ConfigError(f"there are no files in {path} that tell the columns: give their --schema") from None

    with overridden(spark, AS_TEXT):
        rows = load()
    wanted = {name for name in typed if name in rows.columns and isinstance(rows.schema[name].dataType, StringType)}
    if schema or not wanted:
        return rows
    found = load(inferSchema="true").schema
    kinds = (
        f"`{each.name}` {(found if each.name in wanted else rows.schema)[each.name].dataType.simpleString()}"
        for each in rows.schema
    )
    return read_table(spark, path, form=form, schema=", ".join(kinds), options=options)


def follow_files(
    spark: SparkSession,
    path: str,
    *,
    form: str | None = None,
    schema: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
) -> DataFrame:
    """The rows of the files that lie in a folder and of those that will, as a stream which has each file once.

    The columns are those of *schema*, else those of the files there now. ConfigError for a table of the catalog.
    """
    form = format_of(path, form)
    if form == "table":
        raise ConfigError("a table of the catalog cannot be followed: name a folder of files")
    place = spark._jvm.org.apache.hadoop.fs.Path(path)
    if place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).isFile(place):
        raise ConfigError(f"{path} is a file and cannot be followed: name its folder, or load it without --follow")
    kinds = read_table(spark, path, form=form, schema=schema, options=options).schema
    with overridden(spark, AS_TEXT):
        return _prepared(spark.readStream, form, None, {**LANDING, **options}).schema(kinds).load(path)


def _prepared(reader: Any, form: str, schema: str | None, options: Mapping[str, str]) -> Any:
    """A reader of Spark for files of the format *form*; what would change rows in silence fails instead."""
    if named := next((name for name in options if name.lower() in ("path", "paths")), None):
        raise ConfigError(f"the option {named} would name other files than the rows that are given: leave it out")
    reader = reader.format(form).schema(schema) if schema else reader.format(form)
    return reader.options(**{**STRICT_OPTIONS.get(form, NO_OPTIONS), **options})


def following(
    rows: DataFrame, store: Callable[[DataFrame, int], None], name: str, checkpoint: str, every: float | None
) -> StreamingQuery:
    """A query that gives *store* the micro-batches of *rows*: of all that is there, or one *every* *every* seconds."""
    trigger: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}
    writer = rows.writeStream.foreachBatch(store).option("checkpointLocation", checkpoint)
    return writer.queryName(name).trigger(**trigger).start()


def wait(query: StreamingQuery) -> None:
    """Wait until *query* has ended; interrupted, stop it."""
    try:
        query.awaitTermination()
    finally:
        query.stop()


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

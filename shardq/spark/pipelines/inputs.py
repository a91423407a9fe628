"""Where DataFrames come from and go to: Parquet, JSON, CSV and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from shardq.arguments import shown
from shardq.errors import ConfigError, PipelineFailed
from shardq.spark.pipelines.errors import CUT_LINE, line_of
from shardq.spark.pipelines.files import NO_LINES, SPLIT_SETTINGS, TextLines, overridden
from shardq.spark.privates import file_system, hadoop_path

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
"""The most files of a landing folder in a batch. Spark leaves out files that were a week older than the newest
when they came, unless `maxFileAge` says another age."""

ROW_OF_PIECE: Final = re.compile(r"row ([\d,]+) of partition [0-9A-F]{1,16}-(\d+) of (\S+)")
"""A row in an error of shardq, by its number in a piece of a file, the first byte of this, and the file."""

CUT: Final = "shardq_cut_line"
"""The column of what cannot be parsed."""

WHOLE_FILES: Final = {"spark.sql.files.maxPartitionBytes": str(2**50), "spark.sql.files.openCostInBytes": str(2**50)}
"""Each file is one partition."""

AS_TEXT: Final = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}


def format_of(path: str, given: str | None = None) -> str:
    """The format *given*, else that of the path's suffix (also of `x.CSV.gz`), else Parquet. ConfigError."""
    if given is not None:
        if given not in FORMATS:
            raise ConfigError(f"format {shown(given)} is unknown: choose one of {', '.join(FORMATS)}")
        return given
    suffixes = [each.lower() for each in PurePosixPath(path.rstrip("/*")).suffixes if each.lower() in SUFFIXES]
    return SUFFIXES[suffixes[-1]] if suffixes else "parquet"


def text_lines(path: str, form: str | None, options: Mapping[str, str]) -> TextLines:
    """How rows lie in the files of *path*, which are read as `read_table` reads them."""
    form, given = format_of(path, form), {name.lower(): value.lower() for name, value in options.items()}
    if form not in STRICT_OPTIONS:
        return NO_LINES
    header = form == "csv" and given.get("header", "true") == "true"
    first = None if given.get("multiline") == "true" else 1 + header
    return TextLines(first, not given.keys() & {"encoding", "charset"})


def read_table(
    spark: SparkSession,
    path: str,
    *,
    form: str | None = None,
    schema: str | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
) -> DataFrame:
    """The rows of a folder, file, glob or (format "table") table of the catalog.

    *schema* is as Spark writes it, `key string, at timestamp`; without it that of the files is taken, which JSON and
    CSV are read once more for. CSV and the names of folders (`tenant=007`) have no types: there all is text, so that a
    shard key 007 stays what it is. *options* are those of Spark's reader for the format. Spark raises AnalysisException
    where there is nothing.
    """
    form = format_of(path, form)
    if form == "table":
        return spark.table(path)
    try:
        with overridden(spark, AS_TEXT):
            return _prepared(spark.read, form, schema, options).load(path)
    except AnalysisException as error:
        if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
            raise
        raise ConfigError(f"there are no files in {path} that tell the columns: give their --schema") from None


@contextmanager
def located(
    spark: SparkSession, path: str, *, form: str | None, schema: str | None, options: Mapping[str, str]
) -> Iterator[None]:
    """Within this context an error about a line names its file and number, also where they are not known at once."""
    try:
        yield
    except Exception as error:
        told, where = line_of(error), None
        unknown = ROW_OF_PIECE.search(told)
        with suppress(PySparkException, Py4JError):  # what failed first is the better error
            if CUT_LINE in told:
                where = _first_cut(spark, path, format_of(path, form), schema, options)
            elif unknown is not None:
                where = _line_of_row(spark, path, format_of(path, form), schema, options, unknown)
        if where is None:
            raise
        raise PipelineFailed(told.replace(CUT_LINE if unknown is None else unknown[0], where)) from error


def _first_cut(spark: SparkSession, path: str, form: str, schema: str | None, options: Mapping[str, str]) -> str | None:
    """Name the first line that cannot be parsed. Spark reads the files once more for it, each in one piece."""
    more = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CUT}
    with overridden(spark, {**AS_TEXT, **WHOLE_FILES}):
        kinds = _prepared(spark.read, form, schema, more).load(path).schema
        kinds = kinds if CUT in kinds.names else kinds.add(CUT, "string")
        kinds = kinds if len(kinds) > 1 else kinds.add("other", "string")  # Spark refuses to read the one column alone
        rows = _prepared(spark.read, form, kinds, more).load(path)
        number = F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1).alias("number")
        found = rows.select(F.col("_metadata.file_path").alias("file"), number, F.struct("*").alias("row"))
        first = found.where(F.col(f"row.{CUT}").isNotNull()).first()
    if first is None:
        return None
    line, text = text_lines(path, form, options).first, first["row"][CUT]
    place = f"line {line + first['number']:,} of {first['file']}" if line else f"a row of {first['file']}"
    return f"{place}, which is no UTF-8 (name its encoding)" if "\N{REPLACEMENT CHARACTER}" in text else place


def _line_of_row(
    spark: SparkSession, path: str, form: str, schema: str | None, options: Mapping[str, str], found: re.Match[str]
) -> str | None:
    """Name the line of a row in a later piece of a file. Spark counts the rows of the pieces before it, once."""
    first, (row, start, file) = text_lines(path, form, options).first, found.groups()
    if first is None:
        return None
    if schema is None and form == "json":
        schema = "found string"  # what the columns are is not asked for here, which takes reading all files
    with overridden(spark, {**AS_TEXT, **SPLIT_SETTINGS}):
        rows = _prepared(spark.read, form, schema, {"mode": "PERMISSIVE", **options}).load(path)
        is_before = (F.col("_metadata.file_path") == file) & (F.col("_metadata.file_block_start") < int(start))
        any_column = F.col("`{}`".format(rows.columns[0].replace("`", "``")))  # where none is read, blank lines count
        before = rows.where(is_before).select(F.count(any_column) + F.count_if(any_column.isNull())).first()
    return f"line {first + before[0] + int(row.replace(',', '')):,} of {file}" if before is not None else None


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
    place = hadoop_path(spark, path)
    if file_system(spark, place).isFile(place):
        raise ConfigError(f"{path} is a file and cannot be followed: name its folder, or load it without --follow")
    kinds = read_table(spark, path, form=form, schema=schema, options=options).schema
    with overridden(spark, AS_TEXT):
        return _prepared(spark.readStream, form, None, {**LANDING, **options}).schema(kinds).load(path)


def _prepared(reader: Any, form: str, schema: str | StructType | None, options: Mapping[str, str]) -> Any:
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

"""The files that rows come from: which versions of them, and how their rows are numbered, whatever reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shardq.spark.privates import analyzed, file_system, hadoop_path

SPLIT: Final = 8 * 1024 * 1024
"""The greatest size of the pieces that a file is cut into, in bytes: it takes a second or less to store one."""

SPLIT_SETTINGS: Final = {"spark.sql.files.maxPartitionBytes": str(SPLIT), "spark.sql.files.openCostInBytes": str(SPLIT)}
"""Spark makes splits of openCostInBytes at least and maxPartitionBytes at most. Where the two are the same, neither the
other files nor the number of cores has a say in where a file is cut."""

PER_TASK: Final = 16
"""Pieces that a task reads where there are many, so that a hundred thousand of them are not as many tasks."""

NARROW_STEPS: Final = frozenset({"LogicalRelation", "StreamingRelation", "SubqueryAlias", "Project", "Filter"})
"""The steps of a query that leave the rows of a piece together and in order. Views do, but they hide `_metadata`."""

MAX_FILES_ONE_BY_ONE: Final = 8
"""Files of one folder whose sizes are asked for one by one; of more the whole folder is listed."""


@dataclass(frozen=True, slots=True)
class TextLines:
    """How rows lie in files: the line of the `first` one, if each line is one row; if they must be UTF-8, `is_checked`.

    Lines that have no row, because they are blank, are not counted.
    """

    first: int | None = None
    is_checked: bool = False


NO_LINES: Final = TextLines()


@contextmanager
def overridden(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give the session other *settings* while the block runs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def piece(rows: DataFrame) -> Column | None:
    """Name the piece of a file that each of *rows* comes from; None where its rows are not together and in order.

    The name is short, since Redis keeps one for each piece: a hash of the file's path, and where the piece begins.
    """
    if not _steps(rows) <= NARROW_STEPS or "_metadata" in rows.columns:
        return None
    path, start = F.col("_metadata.file_path"), F.col("_metadata.file_block_start")
    return F.concat(_name(path), F.lit("-"), start.cast("string"))


def source(lines: TextLines) -> Column:
    """Where each row of files comes from, as shardq.spark.written.SOURCE says it."""
    is_first = F.col("_metadata.file_block_start") == 0
    line = F.when(is_first, F.lit(lines.first)).cast("int")
    names = ("file", "line", "is_checked", "row")
    columns = (F.col("_metadata.file_path"), line, F.lit(lines.is_checked), F.lit(None).cast("int"))
    return F.struct(*(column.alias(name) for name, column in zip(names, columns, strict=True)))


def _name(path: Column) -> Column:
    return F.hex(F.xxhash64(path))


def named(spark: SparkSession, files: Sequence[str]) -> list[str]:
    """Return what the names of the pieces of *files* begin with, up to the dash.

    Spark writes the URL of a local file with three slashes among the files of a DataFrame, and with one beside a row.
    """
    paths = spark.createDataFrame([(each.replace("file:///", "file:/", 1),) for each in files], "path string")
    return [row[0] for row in paths.select(_name(F.col("path"))).collect()]


def _steps(rows: DataFrame) -> set[str]:
    """Return the names of the steps of the query that makes *rows*."""
    found, left = set(), [analyzed(rows)]
    while left:
        step = left.pop()
        name = step.getClass().getSimpleName()
        if name == "LogicalRelation" and step.relation().getClass().getSimpleName() != "HadoopFsRelation":
            name = "another relation"
        found.add(name)
        below = step.children()
        left += [below.apply(at) for at in range(below.size())]
    return found


def bundled(made: DataFrame) -> DataFrame:
    """*made* in fewer tasks where many small files make many: pieces that follow each other go into one task."""
    spark = made.sparkSession
    with overridden(spark, SPLIT_SETTINGS):
        pieces = made.rdd.getNumPartitions()
    return made.coalesce(max(4 * spark.sparkContext.defaultParallelism, -(-pieces // PER_TASK)))


def versions(rows: DataFrame) -> list[str]:
    """The files of *rows*, sorted, each with its size and the time of its last change.

    Each call into the JVM takes a third of a millisecond, so there are few for each file.
    """
    spark = rows.sparkSession
    folders: dict[str, list[str]] = defaultdict(list)
    for name in rows.inputFiles():
        folders[name.rpartition("/")[0]].append(name)
    found = []
    for names in folders.values():
        paths = [hadoop_path(spark, name, is_url=True) for name in names[:MAX_FILES_ONE_BY_ONE]]
        system = file_system(spark, paths[0])
        if len(names) <= MAX_FILES_ONE_BY_ONE:
            found += [_version(status, status.getPath().toString()) for status in map(system.getFileStatus, paths)]
        else:
            wanted = {unquote(name.rpartition("/")[2]) for name in names}
            listed = ((status, status.getPath().toString()) for status in system.listStatus(paths[0].getParent()))
            found += [_version(status, path) for status, path in listed if path.rpartition("/")[2] in wanted]
    return sorted(found)


def _version(status: Any, path: str) -> str:
    return f"{path} {status.getLen()} {status.getModificationTime()}"

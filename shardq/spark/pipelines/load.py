"""The pipeline "load": each row of a table becomes one message of a queue, also if the load is run again."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, DataType, IntegralType, MapType, StringType, StructType

from shardq.arguments import shown
from shardq.client import Queue
from shardq.errors import ConfigError, PipelineFailed, QueueMissing
from shardq.spark.ops.bulk import LOST_OFFSETS
from shardq.spark.pipelines.earlier import Diverted, client_of
from shardq.spark.pipelines.files import (
    NO_LINES,
    SPLIT_SETTINGS,
    TextLines,
    bundled,
    overridden,
    piece,
    source,
    versions,
)
from shardq.spark.pipelines.report import PipelineProgress
from shardq.spark.pipelines.session import explained


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """Which column of a table becomes which part of a message. Without `payload` the payload is all other columns.

    `delay` and `deadline` are seconds from the write.
    """

    shard_key: str
    payload: str | None = None
    delay: str | None = None
    deadline: str | None = None
    dedup_key: str | None = None
    headers: str | None = None

    def given(self) -> dict[str, str]:
        """The columns by part of a message, without the payload."""
        names = ("shard_key", "delay", "deadline", "dedup_key", "headers")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def messages(rows: DataFrame, columns: LoadColumns, lines: TextLines = NO_LINES, **beside: Column) -> DataFrame:
    """*rows* as format("shardq") takes them. ConfigError names a column that is missing or has a wrong type.

    Rows of files get the column `part`, by which they are numbered: so any tasks may read them. By the
    column `source` errors name them; *lines* says how they lie in the files. *beside* are columns that are wanted, too.
    """
    given = columns.given()
    for part, name in {**given, **({"payload": columns.payload} if columns.payload else {})}.items():
        if name not in rows.columns:
            there = ", ".join(rows.columns) or "none: there are no rows"
            raise ConfigError(f"{part}: there is no column {shown(name)}; the columns are {there}")
    chosen = {
        part: SHAPED_COLUMNS[part](F.col(f"`{name}`"), name, rows.schema[name].dataType) for part, name in given.items()
    }
    chosen["payload"] = _payload(rows, columns)
    where = piece(rows)
    if where is not None:
        chosen |= {"part": where, "source": source(lines)}
    made = rows.select(*(column.alias(part) for part, column in (chosen | beside).items()))
    return made if where is None or rows.isStreaming else bundled(made)


def _payload(rows: DataFrame, columns: LoadColumns) -> Column:
    if columns.payload:
        return F.col(f"`{columns.payload}`")
    used = set(columns.given().values()) - {columns.shard_key}
    return F.struct(*(F.col(f"`{name}`") for name in rows.columns if name not in used))


def _key(column: Column, name: str, kind: DataType) -> Column:
    if isinstance(kind, IntegralType):
        return column.cast("string")
    if not isinstance(kind, (StringType, BinaryType)):
        raise ConfigError(f"shard_key: column {name} is {kind.simpleString()}: it must be text or whole numbers")
    return column


def _seconds(column: Column, name: str, kind: DataType) -> Column:
    """Seconds of text, as CSV has them, are numbers here; other text is NaN, which no message may have."""
    if not isinstance(kind, StringType):
        return column
    return F.when(column.isNotNull(), F.coalesce(column.try_cast("double"), F.lit(math.nan)))


def _headers(column: Column, name: str, kind: DataType) -> Column:
    """Headers may be a map, or an object, as JSON has them; a field without a value is none."""
    if isinstance(kind, MapType):
        return column.cast(HEADERS)
    if not isinstance(kind, StructType):
        raise ConfigError(f"headers: column {name} is {kind.simpleString()}: it must be a map or an object")
    pairs = (half for field in kind for half in (F.lit(field.name), column.getField(field.name).cast("string")))
    return F.map_filter(F.create_map(*pairs).cast(HEADERS), lambda _, value: value.isNotNull())


HEADERS: Final = MapType(StringType(), StringType())
SHAPED_COLUMNS: Final[Mapping[str, Callable[[Column, str, DataType], Column]]] = {
    "shard_key": _key,
    "delay": _seconds,
    "deadline": _seconds,
    "dedup_key": lambda column, _name, _kind: column.cast("string"),
    "headers": _headers,
}
"""How a column becomes a part of a message."""


def identity(rows: DataFrame, target: str, *how: object) -> str:
    """The id of writing *rows* to *target* in the way that *how* says (the columns, a reader's options, and so on).

    It is the same when the same files are written again in the same way. A file with another size or time of change is
    another file. ConfigError when the rows come from no files; then the caller has to choose an id.
    """
    files = versions(rows)
    if not files:
        raise ConfigError(
            "these rows come from no files, so a second run of this load looks like a new load: give it an id"
        )
    text = "\n".join((target, *map(repr, how), rows.schema.simpleString(), *files))
    return f"load-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load(made: DataFrame, queue: str, write_id: str, options: Mapping[str, str], progress: PipelineProgress) -> int:
    """Write the rows *made* by `messages` into *queue* under *write_id*; returns how many rows there were.

    *options* are those of format("shardq"), `url` among them.
    """
    seen = Observation()
    counted = made.observe(seen, F.count(F.lit(1)).alias("rows"))
    progress.report.figures |= {"queue": queue, "id": write_id}
    diverted = Diverted(write_id, options)
    with progress.step(f"loading into {queue} as {write_id}"), client_of(options) as client:
        progress.sofar = _growth(client.queue(queue))
        save(counted, write_id, {**options, "queue": queue})
    rows = int(seen.get["rows"])
    progress.report.figures["rows"] = rows
    where = queue if "errorQueue" not in options else f"{queue}, or if they are no messages in {options['errorQueue']}"
    progress.report.remarks.append(
        f"{rows:,} rows are in {where}, each once; run again, {write_id} stores only what is missing"
    )
    diverted.tell(made, progress)
    return rows


def save(made: DataFrame, write_id: str, options: Mapping[str, str]) -> None:
    """Write the rows *made* by `messages` under *write_id*. PipelineFailed says how to continue when it fails."""
    with overridden(made.sparkSession, SPLIT_SETTINGS):
        try:
            with explained():
                made.write.format("shardq").options(**options).option("writeId", write_id).mode("append").save()
        except PipelineFailed as error:
            if LOST_OFFSETS in str(error):
                raise
            raise PipelineFailed(
                f"{error}. Stored rows stay; mend the cause and run it again with the id {write_id}, even if that "
                "changes a file: then only what is missing is stored"
            ) from error


def _growth(queue: Queue) -> Callable[[], str]:
    """A function that returns how many messages the queue got since now, from all writers, as text."""
    before = _written(queue)
    return lambda: f"{_written(queue) - before:,} messages more in {queue.name}"


def _written(queue: Queue) -> int:
    """How many messages the queue ever got; none while there is no such queue, as the write may create it."""
    try:
        return queue.stats().written
    except QueueMissing:
        return 0

"""The pipeline "load": each row of a table becomes one message of a queue, also if the load is run again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegralType, StringType

from shardq.arguments import shown
from shardq.client import Client, Queue
from shardq.errors import ConfigError
from shardq.spark.pipelines.report import Progress

PARTITIONS: Final = 16
"""Files are split into at least so many partitions: the same on every machine, since rows are numbered by partition."""


@dataclass(frozen=True, slots=True)
class Columns:
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


def messages(rows: DataFrame, columns: Columns) -> DataFrame:
    """*rows* as format("shardq") takes them. ConfigError names a column that is missing or has a wrong type."""
    given = columns.given()
    for part, name in {**given, **({"payload": columns.payload} if columns.payload else {})}.items():
        if name not in rows.columns:
            raise ConfigError(f"{part}: there is no column {shown(name)}; the columns are {', '.join(rows.columns)}")
    chosen = {part: F.col(f"`{name}`") for part, name in given.items()}
    kind = rows.schema[columns.shard_key].dataType
    if isinstance(kind, IntegralType):
        chosen["shard_key"] = chosen["shard_key"].cast("string")
    elif not isinstance(kind, (StringType, BinaryType)):
        raise ConfigError(
            f"shard_key: column {columns.shard_key} is {kind.simpleString()}: it must be text or whole numbers"
        )
    if "dedup_key" in chosen:
        chosen["dedup_key"] = chosen["dedup_key"].cast("string")
    chosen["payload"] = _payload(rows, columns)
    return rows.select(*(column.alias(part) for part, column in chosen.items()))


def _payload(rows: DataFrame, columns: Columns) -> Column:
    if columns.payload:
        return F.col(f"`{columns.payload}`")
    used = set(columns.given().values()) - {columns.shard_key}
    return F.struct(*(F.col(f"`{name}`") for name in rows.columns if name not in used))


def identity(rows: DataFrame, queue: str, columns: Columns) -> str:
    """The id of this load: a load of the same columns of the same files into the same queue has the same id.

    ConfigError when the rows come from no files; then the caller has to choose an id.
    """
    files = sorted(rows.inputFiles())
    if not files:
        raise ConfigError(
            "these rows come from no files, so a load that is run again cannot be told from a new one: give it an id"
        )
    text = "\n".join((queue, repr(columns), *files))
    return f"load-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load(made: DataFrame, queue: str, write_id: str, options: Mapping[str, str], progress: Progress) -> int:
    """Write the rows *made* by `messages` into *queue* under *write_id*; returns how many rows there were.

    *options* are those of format("shardq"), `url` among them.
    """
    seen = Observation()
    counted = made.observe(seen, F.count(F.lit(1)).alias("rows"))
    progress.report.figures |= {"queue": queue, "id": write_id}
    with progress.step(f"loading into {queue} as {write_id}"), Client.from_url(options["url"]) as client:
        progress.sofar = _growth(client.queue(queue))
        writer = counted.write.format("shardq").options(**options).option("queue", queue).option("writeId", write_id)
        writer.mode("append").save()
    rows = int(seen.get["rows"])
    progress.report.figures["rows"] = rows
    progress.report.remarks.append(
        f"{rows:,} rows are in {queue}, each once; run again, {write_id} stores only what is missing"
    )
    return rows


def _growth(queue: Queue) -> Callable[[], str]:
    """A function that returns how many messages the queue got since now, from all writers, as text."""
    before = queue.stats().written
    return lambda: f"{queue.stats().written - before:,} messages more in {queue.name}"

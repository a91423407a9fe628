"""The folders of an archive of journals (docs/spark.md), read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

from shardq.errors import ConfigError
from shardq.jobs.arrays import one, whole
from shardq.jobs.ranges import ranges_of, uncovered
from shardq.jobs.schema import EVENTS

Points = Mapping[tuple[str, int], int]
"""Up to which number events were read, by the id of their queue and their partition."""


class ArchiveStep(NamedTuple):
    """Events of a day in a batch, and which number the batch has."""

    events: pa.Table
    batch: int


def steps(path: Path, names: Sequence[str], batch: int = -1) -> Iterator[ArchiveStep]:
    """Read what is archived of some queues (of all, if none is named) behind a *batch*. ConfigError for no archive."""
    folder = path if path.name == "journal" else path / "journal"
    if not folder.is_dir():
        raise ConfigError(f"there is no archive of a journal in {path}: `shardq pipeline archive` makes one")
    ranges = ranges_of("batch", [each.name for each in folder.iterdir()])
    for name in uncovered(ranges):
        if ranges[name][1] > batch:
            for day in _days(folder / name, names):
                yield ArchiveStep(_read(day), ranges[name][1])


def _days(batch: Path, names: Sequence[str]) -> list[list[Path]]:
    """The folders of one batch with events of these queues, those of each day together, in the order of days."""
    found: dict[str, list[Path]] = {}
    for each in batch.glob("queue=*/day=*"):
        if not names or unquote(each.parent.name.removeprefix("queue=")) in names:
            found.setdefault(each.name, []).append(each)
    return [found[day] for day in sorted(found)]


def _read(folders: Sequence[Path]) -> pa.Table:
    tables = [EVENTS.empty_table()]
    for each in folders:
        try:
            table = ds.dataset(each, format="parquet").to_table()
            tables.append(events_of(table, unquote(each.parent.name.removeprefix("queue="))))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # all of these are how PyArrow tells damage
            raise ConfigError(f"{each} is no part of an archive, or is damaged: {str(error)[:200]}") from error
    return pa.concat_tables(tables).sort_by([("time", "ascending"), ("queue_id", "ascending"), ("number", "ascending")])


def events_of(table: pa.Table, queue: str | None = None) -> pa.Table:
    """Return a table of the journal's columns, as Spark has it, as events. ConfigError if it lacks some."""
    if queue is not None:
        table = table.append_column("queue", pa.repeat(pa.scalar(queue), len(table)))
    if missing := [each for each in EVENTS.names if each not in table.schema.names]:
        raise ConfigError(
            f"the archive lacks the column {missing[0]}: an earlier version of shardq made it, without what a row of a "
            "job must say; archive the journal to a new folder"
        )
    table = table.select(EVENTS.names)
    name = one(table["message_id"])
    name = pc.if_else(pc.equal(name, ""), pa.scalar(None, name.type), name)
    return table.set_column(EVENTS.get_field_index("message_id"), "message_id", name).cast(EVENTS)


def unread(events: pa.Table, points: Points) -> pa.Table:
    """Return the events behind *points*."""
    found = np.ones(len(events), bool)
    number, queue_id, partition = whole(one(events["number"])), one(events["queue_id"]), one(events["partition"])
    for (life, part), point in points.items():
        here = pc.and_(pc.equal(queue_id, life), pc.equal(partition, part)).fill_null(False)
        found &= ~(here.to_numpy(zero_copy_only=False) & (number <= point))
    return events.filter(pa.array(found))


def points_of(events: pa.Table) -> dict[tuple[str, int], int]:
    """Return the number of the last event of each queue and partition."""
    newest = events.group_by(["queue_id", "partition"]).aggregate([("number", "max")]).to_pylist()
    return {(row["queue_id"], row["partition"]): row["number_max"] for row in newest}

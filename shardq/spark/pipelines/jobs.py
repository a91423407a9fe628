"""The pipeline "jobs": the table of jobs, made by many tasks. The folder is the one that `shardq jobs` makes.

Spark spreads the two heavy parts of `shardq.jobs.step`: the pivot by message, then what was blocked by tenant. A run
reads up to where the journals were when it began, writes its rows to folders of its own, and last the file that says
that it is done. So a run that was killed is made once more, over what it left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from shardq.errors import ConfigError
from shardq.jobs.archive import events_of
from shardq.jobs.blocked import BUCKETS, Blocking, bucket_table, buckets_of, with_blocked
from shardq.jobs.folder import DAY, REWRITTEN, FolderRun
from shardq.jobs.gone import RunQueues
from shardq.jobs.live import server_ms
from shardq.jobs.making import Seen, Totals
from shardq.jobs.pivot import ENDED, ROWS, pivot
from shardq.jobs.schema import CAPACITY, EVENTS, JOBS, OPEN, SETTINGS
from shardq.jobs.step import ORDER, Around, Life, MadeJobs, State, around, without_lost
from shardq.jobs.tables import TABLES, run_name
from shardq.model.event import packed
from shardq.spark.connection import client_of, seen_partitions
from shardq.spark.options import Reading, parsed
from shardq.spark.pipelines.archive import Archive
from shardq.spark.pipelines.files import overridden
from shardq.spark.pipelines.folder import Folder
from shardq.spark.tracks import JournalTrack

MICROS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.session.timeZone": "UTC"}
"""Spark would write times in a format that others read as of no time zone."""
PER_TASK: Final = 250_000
"""Events that one task pivots, about: some 100 MB."""
PER_FILE: Final = 2_000_000
"""Jobs in one file, about."""
MIN_TASKS: Final = 16
"""Tasks where there are few events."""
BUCKET: Final = "bucket"
"""The state of a row that is no job's: in `wait_s` it says when the bucket of its parent is full, in ms."""
DONE: Final = pa.schema([*OPEN, ("day", pa.string())])


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of a run, and how far queues are read with them; None: as far as these go."""

    events: DataFrame
    queues: Mapping[str, Any] | None = None


class JobsFolder:
    """A folder of the tables of jobs, on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.folder = spark, Folder(spark, path)

    def newest(self) -> FolderRun:
        """Return the newest run that is done; one with the number -1 if none is."""
        self.folder.mend("runs")
        names = [each.removesuffix(".json") for each in self.folder.names("runs") if each.endswith(".json")]
        number = max((int(each) for each in names if each.isdecimal()), default=-1)
        if number < 0:
            return FolderRun()
        return FolderRun.told(number, "\n".join(self.folder.lines("runs", f"{number:012d}.json")))

    def begin(self, number: int) -> None:
        """Remove what a run with this number left that was not done."""
        name = run_name(number)
        for table in (*TABLES, *REWRITTEN):
            self.folder.delete(table, name)
        for day in self.folder.names("jobs"):
            self.folder.delete("jobs", day, name)

    def read(self, schema: pa.Schema, *parts: str) -> DataFrame:
        """Return the rows that are there; none if nothing is."""
        kinds = from_arrow_schema(schema)
        if not self.folder.has(*parts):
            return self.spark.createDataFrame([], kinds)
        return self.spark.read.schema(kinds).parquet(self.folder.to(*parts))

    def state(self, run: FolderRun) -> State:
        """Return the state of the next run, but for the open jobs and the dead letters: these may be many."""
        name = run_name(run.number)
        return State(
            controls=self._small(SETTINGS, "state", name, "controls.parquet"),
            present=self._small(CAPACITY, "present", name),
            buckets=buckets_of(self._small(BUCKETS, "state", name, "buckets.parquet")),
            until=run.until,
            names=run.names,
        )

    def _small(self, schema: pa.Schema, *parts: str) -> pa.Table:
        return self.read(schema, *parts).toArrow().cast(schema)

    def carried(self, run: FolderRun) -> DataFrame:
        """Return the open jobs and the dead letters."""
        name = run_name(run.number)
        return self.read(OPEN, "open", name).unionByName(self.read(OPEN, "state", name, "letters.parquet"))

    def write_small(self, table: pa.Table, *parts: str) -> None:
        """Write a table as one file."""
        kinds = from_arrow_schema(table.schema)
        self.spark.createDataFrame(table, kinds).coalesce(1).write.parquet(self.folder.to(*parts))

    def write(self, number: int, rows: DataFrame, made: MadeJobs, jobs: int) -> None:
        """Write what a run adds."""
        name = run_name(number)
        keys = [each for each, _ in ORDER]
        ended = rows.where(F.col("state") == ENDED).select(*JOBS.names, "day", F.lit(name[4:]).alias("run"))
        ended = ended.repartitionByRange(max(1, -(-jobs // PER_FILE)), "day", *keys).sortWithinPartitions("day", *keys)
        ended.write.mode("append").partitionBy("day", "run").parquet(self.folder.to("jobs"))
        opened = rows.where(~F.col("state").isin(ENDED, "dead", BUCKET)).select(*OPEN.names)
        opened.sortWithinPartitions("queue", "shard_key").write.parquet(self.folder.to("open", name))
        letters = rows.where(F.col("state") == "dead").select(*OPEN.names)
        letters.write.parquet(self.folder.to("state", name, "letters.parquet"))
        for table in ("settings", "capacity", "lost"):
            if len(found := getattr(made, table)):
                self.write_small(found, table, name)

    def finish(self, run: FolderRun, state: State) -> None:
        """Write the rest of the state for the next run, then that this one is done."""
        name = run_name(run.number)
        self.write_small(state.present, "present", name)
        self.write_small(state.controls, "state", name, "controls.parquet")
        self.write_small(bucket_table(state.buckets), "state", name, "buckets.parquet")
        self.folder.write_json(run.fields(), "runs", f"{run.number:012d}.json")
        for said in self.folder.names("runs"):
            if said.removesuffix(".json").isdecimal() and int(said.removesuffix(".json")) < run.number - 1:
                self.folder.delete("runs", said)
        for table in REWRITTEN:
            for each in self.folder.names(table):
                if int(each.removeprefix("run=")) < run.number - 1:
                    self.folder.delete(table, each)


# --- where events come from -----------------------------------------------------------------------------------------


def live_batches(
    spark: SparkSession, options: Mapping[str, str], queues: RunQueues, run: FolderRun, most: int
) -> Iterator[EventBatch]:
    """The events of journals behind a run, up to where they are now, about *most* in a batch.

    QueueMissing if there is none of the *queues*.
    """
    is_last = False
    while not is_last:
        share = max(1, most // len(queues.names))
        asked = {
            name: queues.ask(name, partial(_span, options, name, run.queues.get(name), share)) for name in queues.names
        }
        queues.check()
        spans = {name: span for name, span in asked.items() if span is not None}
        is_last = all(each.is_last for each in spans.values())
        reader = spark.read.format("shardq").options(
            **options, subscribe=",".join(spans), state="journal", failOnDataLoss="false", markDataLoss="true",
            startingOffsets=json.dumps({name: packed(each.begin) for name, each in spans.items()}),
            endingOffsets=json.dumps({name: packed(each.end) for name, each in spans.items()}),
        )  # fmt: skip
        told = {name: {"id": each.life, "points": each.end, "upto": each.upto} for name, each in spans.items()}
        run = replace(run, queues={**run.queues, **told})
        yield EventBatch(reader.load(), run.queues)


@dataclass(frozen=True, slots=True)
class _Span:
    """From where and up to where each partition of a queue is read, the queue's id, and whether that is all.

    It is read `upto` that time, in ms.
    """

    begin: list[int]
    end: list[int]
    life: str
    is_last: bool
    upto: int


def _span(options: Mapping[str, str], name: str, told: Mapping[str, Any] | None, most: int) -> _Span:
    reading = parsed(Reading, {**options, "subscribe": name, "state": "journal"})
    client, states = client_of(reading), seen_partitions(reading, name)
    life = states[0].view.id
    now = min(server_ms(client, each) for each in states)
    before = told["points"] if told is not None and told["id"] == life else []
    begin, end, is_last = [], [], True
    for at, state in enumerate(states):
        track = JournalTrack(client, state, reading)
        last = track.last()
        begin.append(before[at] if at < len(before) and before[at] else min(last, track.anew()))
        if begin[at] > last:
            raise ConfigError(
                f"the journal of queue {name!r} was read up to event {begin[at]}, and its newest is {last}: Redis lost "
                "data, or it is another server; begin another folder"
            )
        end.append(min(last, begin[at] + max(1, most // len(states))))
        is_last = is_last and end[at] == last
    return _Span(begin, end, life, is_last, now if is_last else told["upto"] if told is not None else 0)


def archived_batch(spark: SparkSession, path: str, names: Sequence[str], run: FolderRun) -> EventBatch:
    """The archived part behind a run, for some queues or all."""
    events = Archive(spark, path).table("journal")
    if "queue_id" not in events.columns:
        raise ConfigError("the archive lacks the column queue_id: archive the journal to a new folder")
    if names:
        events = events.where(F.col("queue").isin(*names))
    read = [
        (F.col("queue_id") == told["id"]) & (F.col("partition") == part) & (F.col("number") <= point)
        for told in run.queues.values()
        for part, point in enumerate(told["points"])
    ]
    return EventBatch(events.where(~reduce(or_, read)) if read else events)


# --- a run ----------------------------------------------------------------------------------------------------------


def add(folder: JobsFolder, batch: EventBatch, seen: Seen) -> Totals:
    """Add to a folder the jobs that ended in a batch, as one run."""
    with overridden(folder.spark, MICROS):
        return _add(folder, batch, seen)


def _add(folder: JobsFolder, batch: EventBatch, seen: Seen) -> Totals:
    before = folder.newest()
    number = before.number + 1
    folder.begin(number)
    events = batch.events.select(*EVENTS.names).persist()
    told = _told(events, before)
    few = events_of(events.where("message_id is null or message_id = ''").orderBy("time", "number").toArrow())
    state = folder.state(before)
    new = [(life.name, each) for each, life in told.lives.items() if each not in state.until]
    rows = [seen(name, queue_id, _first(few, queue_id, told.begins[queue_id])) for name, queue_id in new]
    found = around(state, few, _joined(rows), told.lives)
    made = spread(events, folder.carried(before), found, told.count).persist()
    counts = {row["state"]: row["count"] for row in made.groupBy("state").count().collect()}
    folder.write(number, made, found.made, counts.get(ENDED, 0))
    full = {(row["queue_id"], row["parent"]): row["wait_s"] for row in made.where(F.col("state") == BUCKET).collect()}
    state = replace(found.state, buckets=full)
    run = replace(before, queues=batch.queues or {**before.queues, **told.queues})
    folder.finish(run.done(number, state), state)
    made.unpersist()
    events.unpersist()
    opened = sum(count for name, count in counts.items() if name not in (ENDED, "dead", BUCKET))
    return Totals(told.count, counts.get(ENDED, 0), opened, pc.sum(found.made.lost["events"]).as_py() or 0)


@dataclass(frozen=True, slots=True)
class _Told:
    """The origin of a run's events: queues by their ids, when these begin, how far they are read; and how many."""

    lives: dict[str, Life]
    begins: dict[str, Any]
    queues: dict[str, Any]
    count: int


def _told(events: DataFrame, before: FolderRun) -> _Told:
    rows = (
        events.groupBy("queue", "queue_id", "partition")
        .agg(
            F.min("time").alias("begin"), F.unix_millis(F.max("time")).alias("until"),
            F.max("number").alias("number"), F.count(F.lit(1)).alias("events"),
        )
        .orderBy("queue_id", "partition")
        .collect()
    )  # fmt: skip
    lives: dict[str, Life] = {}
    begins: dict[str, Any] = {}
    queues: dict[str, Any] = {}
    for row in rows:
        life = lives.get(row.queue_id, Life(row.queue, 0))
        lives[row.queue_id] = Life(row.queue, max(life.until, row.until))
        begins[row.queue_id] = min(begins.get(row.queue_id, row.begin), row.begin)
        found = queues.get(row.queue) or before.queues.get(row.queue, {"id": row.queue_id, "points": []})
        points = [] if found["id"] != row.queue_id else [*found["points"]]
        points += [0] * (row.partition + 1 - len(points))
        points[row.partition] = row.number
        upto = max(row.until, found.get("upto", 0))
        queues[row.queue] = {"id": row.queue_id, "points": points, "upto": upto}
    return _Told(lives, begins, queues, sum(row.events for row in rows))


def _first(few: pa.Table, queue_id: str, begin: Any) -> pa.Table:
    """The events of no message of a queue, with one at the time of its first event."""
    row = {**dict.fromkeys(EVENTS.names), "queue_id": queue_id, "time": begin.astimezone(UTC), "kind": "", "values": []}
    own = few.filter(pc.equal(few["queue_id"], queue_id))
    return pa.concat_tables([pa.Table.from_pylist([row], schema=EVENTS), own])


def _joined(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    found = [each for each in tables if each is not None]
    return pa.concat_tables(found) if found else None


def spread(events: DataFrame, carried: DataFrame, found: Around, count: int) -> DataFrame:
    """Return the rows of jobs, open ones, dead letters and buckets that events make, made by many tasks."""
    tasks = max(MIN_TASKS, -(-count // PER_TASK))
    own = events.where("message_id is not null and message_id != ''")
    by_message = own.groupBy(_task(tasks, "queue_id", "message_id"))
    of_before = carried.groupBy(_task(tasks, "queue_id", "message_id"))
    blocking = found.blocking

    def pivoted(events: pa.Table, carried: pa.Table) -> pa.Table:  # Spark goes by these types
        return _pivoted(found, events, carried)

    def blocked(rows: pa.Table) -> pa.Table:
        return _blocked(blocking, rows)

    rows = by_message.cogroup(of_before).applyInArrow(pivoted, _spark_schema(ROWS))
    return rows.groupBy(_task(tasks, "queue_id", "parent")).applyInArrow(blocked, _spark_schema(DONE))


def _task(tasks: int, *columns: str) -> Column:
    return F.pmod(F.xxhash64(*columns), F.lit(tasks)).alias("_task")


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def _pivoted(found: Around, events: pa.Table, carried: pa.Table) -> pa.Table:
    """Change the rows of some messages by their events; runs in a task."""
    rows = pivot(events_of(events), carried.select(OPEN.names).cast(OPEN), found.losses, found.parents)
    return without_lost(rows, found)


def _blocked(blocking: Blocking, rows: pa.Table) -> pa.Table:
    """The rows of some tenants with how long each was blocked, and their buckets; runs in a task."""
    tenants = set(zip(rows["queue_id"].to_pylist(), rows["parent"].to_pylist(), strict=True))
    own = {tenant: full_at for tenant, full_at in blocking.buckets.items() if tenant in tenants}
    done, buckets = with_blocked(rows.select(ROWS.names).cast(ROWS), blocking._replace(buckets=own))
    done = done.append_column("day", pc.strftime(done["ended_at"], DAY))
    told = [
        {**dict.fromkeys(DONE.names), "queue_id": tenant[0], "parent": tenant[1], "state": BUCKET, "wait_s": full_at}
        for tenant, full_at in buckets.items()
    ]
    return pa.concat_tables([done.cast(DONE), pa.Table.from_pylist(told, schema=DONE)])

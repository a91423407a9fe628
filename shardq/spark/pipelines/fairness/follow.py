"""The pipeline "fairness" as a streaming query: tallies of closed windows are kept, and the report is made anew."""

from __future__ import annotations

import json
from os import fspath
from typing import Any, Final

from pyspark.sql import DataFrame

from shardq.arguments import shown
from shardq.errors import ConfigError
from shardq.spark.pipelines.fairness.pipeline import SIZED, Request, judge
from shardq.spark.pipelines.fairness.removed import corrections, kept
from shardq.spark.pipelines.fairness.tallies import tallied
from shardq.spark.pipelines.files import overridden
from shardq.spark.pipelines.folder import Folder
from shardq.spark.pipelines.inputs import following, wait
from shardq.spark.pipelines.report import Progress, Report

CLAIM: Final = "_follows.json"
CHECKPOINT: Final = "_checkpoint"
BATCH: Final = "batch="
FORM: Final = 2
"""The form of tallies: since 2 they keep what `corrections` needs. A checkpoint goes with one form only."""
NEWEST: Final = 1000
"""How many folders of tallies a report covers; each has at least one window."""


def follow(
    events: DataFrame, request: Request, progress: Progress, *, lateness: int = 60, every: float | None = None
) -> int:
    """Keep the report in `request.out` up to date with *events*; return how many tallies came too late.

    *events* is a streaming DataFrame of one queue's journal. A window is closed when there are events *lateness*
    seconds newer than its end. Later events of the window are dropped; Spark counts them after it has added up those of
    one task with the same shard key and delay bucket. The tallies are stored in `tallies/batch=…`, each once, also
    after a crash. Without *every* (seconds) the query ends when it has read all events; the next run continues there.

    ConfigError unless *request* has a queue, its streams, and a folder in which the same was followed before, if any,
    with a checkpoint that goes on behind its tallies.
    """
    if request.queue is None or request.dealt is None or request.out is None:
        raise ConfigError("to follow a queue, its name, its streams and a folder must be given")
    out = Folder(events.sparkSession, fspath(request.out))
    _claim(out, request)
    _check_checkpoint(out)
    stored, late = _StoredTallies(out, request), _Late()

    def store(batch: DataFrame, number: int) -> None:
        late.note(query)
        if stored.add(batch, number):
            stored.report(progress)
            progress.say(f"batch {number}: the report is new; {late.count:,} tallies came too late so far")

    closed = tallied(events, request.window, lateness=lateness, apart=kept())
    query = following(closed, store, f"fairness of {request.queue}", out.to(CHECKPOINT), every)
    try:
        wait(query)
    finally:
        late.note(query)
        progress.report.figures["late"] = late.count
    return late.count


def _claim(out: Folder, request: Request) -> None:
    """Write down what is followed in this folder. ConfigError if it is something else: their tallies do not add up."""
    out.mend()
    if not out.has(CLAIM):
        if out.names("tallies"):
            raise ConfigError(f"{out.path} has tallies, but no {CLAIM} that says of what: name another folder")
        out.write_json({"queue": request.queue, "window": request.window, "form": FORM}, CLAIM)
    queue, window, form = _claimed(out)
    if form != FORM:
        raise ConfigError(f"{out.path} was begun by another version of shardq: name another folder")
    if (queue, window) != (request.queue, request.window):
        raise ConfigError(
            f"{out.path} follows {shown(queue)} with windows of {shown(window)} s, not "
            f"{shown(request.queue)} with windows of {request.window} s: ask for the same, or name another folder"
        )


def _claimed(out: Folder) -> tuple[str, int, object]:
    """The queue, the window and the form of tallies that are written down. ConfigError if that is not what is there."""
    try:
        found = json.loads("".join(out.lines(CLAIM)))
    except ValueError:
        found = None
    match found:
        case {"queue": str(queue), "window": int(window), **more}:
            return queue, window, more.get("form", 1)
    raise ConfigError(f"{out.to(CLAIM)} does not say what is followed there: it was changed; name another folder")


def _check_checkpoint(out: Folder) -> None:
    """ConfigError if there are tallies of events that the query would read again, and count twice."""
    newest = max((int(name.removeprefix(BATCH)) for name in _stored(out)), default=-1)
    if newest > max(out.numbers(CHECKPOINT, "offsets"), default=-1):
        raise ConfigError(
            f"{out.to('tallies')} has batches up to {newest}, but the checkpoint {out.to(CHECKPOINT)} is gone or "
            f"older: remove {out.to('tallies')} and the checkpoint, and what the journal still has is counted anew; "
            f"or name another folder"
        )


def _stored(out: Folder) -> list[str]:
    """The names of the folders of tallies, the newest last."""
    return [name for name in out.names("tallies") if name.startswith(BATCH) and name[len(BATCH) :].isdecimal()]


class _StoredTallies:
    """The stored tallies of closed windows, in a folder for each micro-batch that closed any."""

    def __init__(self, out: Folder, request: Request) -> None:
        self._out, self._request = out, request

    def add(self, batch: DataFrame, number: int) -> bool:
        """Write the windows that a micro-batch closed over those of an earlier try; False if it closed none."""
        batch.persist()
        try:
            if batch.isEmpty():
                return False
            batch.write.mode("overwrite").parquet(self._out.to("tallies", f"{BATCH}{number:012d}"))
        finally:
            batch.unpersist()
        return True

    def report(self, progress: Progress) -> None:
        """Make the report from the newest tallies; earlier ones are not in it."""
        tallies = self._tallies().repartition("queue", "shard_key").persist()
        progress.report.remarks.clear()
        own = Progress(Report(progress.report.name))  # its steps are not those of the query
        with overridden(self._out.spark, SIZED):
            judge(tallies, [str(self._request.queue)], None, self._request, own)
        tallies.unpersist()
        progress.report.figures |= own.report.figures
        progress.report.remarks += own.report.remarks

    def _tallies(self) -> DataFrame:
        """The newest tallies, set right where a removed message had not been waiting."""
        newest = (self._out.to("tallies", name) for name in _stored(self._out)[-NEWEST:])
        stored = self._out.spark.read.parquet(*newest)
        events = stored.where("apart is not null").select("queue", "shard_key", "apart.*")
        return stored.drop("apart").unionByName(corrections(events, self._request.window))


class _Late:
    """Counts the tallies that Spark dropped because they came after their window was closed."""

    def __init__(self) -> None:
        self._dropped: dict[tuple[str, int], int] = {}

    def note(self, query: Any) -> None:
        """Add what Spark says of the last micro-batches."""
        for each in query.recentProgress:
            dropped = sum(int(state["numRowsDroppedByWatermark"]) for state in each["stateOperators"])
            self._dropped[each["runId"], each["batchId"]] = dropped

    @property
    def count(self) -> int:
        return sum(self._dropped.values())

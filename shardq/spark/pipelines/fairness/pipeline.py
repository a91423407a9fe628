"""The pipeline "fairness": journal events in; tables, a picture, a page and a report out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shardq.errors import ConfigError
from shardq.spark.pipelines import shards
from shardq.spark.pipelines.fairness.findings import Findings, findings
from shardq.spark.pipelines.fairness.service import Fairness, fairness
from shardq.spark.pipelines.fairness.tallies import tallied
from shardq.spark.pipelines.report import Progress, Report

MAX_QUEUES = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted: windows of so many seconds, and the queue's streams and streams per shard where known.

    `out`: the folder for tables, pictures and pages; None for none. `queue`: only this one.
    """

    window: int = 60
    dealt: tuple[int, int] | None = None
    queue: str | None = None
    out: Path | None = None


def run(events: DataFrame, asked: Asked, progress: Progress) -> list[Findings]:
    """Findings for each queue in *events*, journal events as of `tallies`; its tables and pages go to `asked.out`.

    ConfigError when there are none, or the DataFrame is no journal.
    """
    if asked.queue is not None and "queue" in events.columns:
        events = events.where(F.col("queue") == asked.queue)
    with progress.step("counting events by window and shard key"):
        tallies = tallied(events, asked.window).persist()
        names = [row.queue for row in tallies.select("queue").distinct().limit(MAX_QUEUES + 1).collect()]
    if len(names) > MAX_QUEUES:
        raise ConfigError(f"there are more than {MAX_QUEUES} queues in the events: name one")
    with progress.step("fair shares"):
        found = fairness(tallies, asked.window)
        found.by_key.count()
    told = []
    for name in sorted(names):
        with progress.step(f"findings on {name}"):
            told.append(findings(found, tallies, _shards(events, found, name, asked), name, asked.window))
    if asked.out is not None:
        with progress.step(f"writing to {asked.out}"):
            _write(found, told, asked.out)
    _figure(progress.report, told)
    found.by_key.unpersist()
    tallies.unpersist()
    return told


def _shards(events: DataFrame, found: Fairness, queue: str, asked: Asked) -> DataFrame:
    """Dealt where N and M are known, else what the journal shows."""
    if asked.dealt is None:
        return shards.seen(events)
    keys = found.by_key.where(F.col("queue") == queue).select("queue", "shard_key").distinct()
    return shards.dealt(keys, *asked.dealt)


def _write(found: Fairness, told: list[Findings], out: Path) -> None:
    """The tables as Parquet; a picture and a page for each queue."""
    for name, table in (("by_window", found.by_window), ("keys", found.keys), ("by_key", found.by_key)):
        table.write.mode("overwrite").parquet(str(out / name))
    try:
        from shardq.spark.pipelines.fairness.pictures import png
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'shardq[plan]'") from None
    from shardq.spark.pipelines.fairness.page import page

    for each in told:
        picture = png(each)
        stem = each.queue.replace("/", "_").replace(":", "_")
        (out / f"{stem}.png").write_bytes(picture)
        (out / f"{stem}.html").write_text(page(each, picture), encoding="utf-8")


def _figure(report: Report, told: list[Findings]) -> None:
    report.figures["queues"] = [each.figures() for each in told]
    report.remarks += [f"{each.queue}: {remark}" for each in told for remark in each.remarks()]

"""The texts of the reports give the same rows on Spark SQL as on DuckDB."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from shardq.jobs.schema import CAPACITY, JOBS, LOST, SETTINGS
from shardq.reports.catalog import REPORTS
from shardq.reports.folder import Files
from shardq.reports.tables import LEFT_OUT, RENAMED, Tables, text_of
from tests.reports.rows import DAY, Row, folder_of, job, setting, waiting, worker

pytestmark = pytest.mark.runs_in("test-all")
ASKED: dict[str, Any] = {
    "objective": 0.99, "within": 5.0, "price": 0.001, "currency": "EUR", "weeks": 3.0,
}  # fmt: skip
"""What any report is asked."""


def random_folder(path: Path) -> Path:
    """Weeks of jobs of a few tenants, of which some wait together; weights, pauses and plans; workers."""
    rng = random.Random(11)
    jobs: list[Row] = []
    for number in range(600):
        key = f"t{rng.randrange(6)}/{rng.randrange(3)}"
        at = rng.randrange(20) * DAY + rng.random() * 600
        took = round(rng.expovariate(0.2), 3) + 0.001
        wait = round(rng.expovariate(0.02), 3)
        jobs.append(
            job(key, round(at, 3), took, wait=wait, task=rng.choice(["a", "b", None]), plan=rng.choice(["gold", None]),
                attempts=rng.choice([1, 1, 1, 3]), work_s=took if number % 7 else 0.0,
                ran_s=took if number % 11 else None,
                outcome=rng.choice(["acked", "acked", "dead"]), blocked_rate_s=0.5 if number % 13 == 0 else 0.0)
        )  # fmt: skip
    jobs += [waiting(f"t{number}/0", 19 * DAY + number) for number in range(3)]
    settings = [
        setting(0, "key", "t1", weight=3.0), setting(5 * DAY, "key", "t1", weight=5.0),
        setting(2 * DAY + 100, "key", "t2/1", paused=True), setting(2 * DAY + 200, "key", "t2/1", paused=False),
        setting(3 * DAY + 100, "queue", None, paused=True), setting(3 * DAY + 150, "queue", None, paused=False),
        setting(0, "plan", "gold", weight=2.0), setting(0, "key", "t3", plan="gold"),
    ]  # fmt: skip
    stays = [worker("w1", 0, 9 * DAY, 3), worker("w2", 3 * DAY, None, 2, silent_s=None)]
    return folder_of(path, jobs, settings=settings, capacity=stays)


def viewed(spark: Any, folder: Path, asked: dict[str, Any]) -> None:
    """Make the views of `shardq.reports.tables` in Spark."""
    files = Files(folder)
    tables = {
        "jobs": (JOBS, ("jobs", "open")), "settings": (SETTINGS, ("settings",)),
        "capacity": (CAPACITY, ("capacity", "present")), "lost": (LOST, ("lost",)),
    }  # fmt: skip
    for name, (schema, kinds) in tables.items():
        found = None
        for kind in kinds:
            some = spark.read.parquet(*files.of(kind)).selectExpr(*_columns(schema))
            found = some if found is None else found.unionByName(some)
        assert found is not None
        found.createOrReplaceTempView(name)
    spark.sql("SELECT queue_id, max(queue) AS queue FROM jobs GROUP BY queue_id").createOrReplaceTempView("names")
    spark.createDataFrame([asked]).createOrReplaceTempView("asked")


def _columns(schema: Any) -> list[str]:
    return [
        f"unix_micros(`{field.name}`) / 1e6 AS {RENAMED.get(field.name, field.name)}"
        if str(field.type).startswith("timestamp")
        else f"`{field.name}` AS {RENAMED.get(field.name, field.name)}"
        for field in schema
        if field.name not in LEFT_OUT
    ]


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-5)
    return bool(one == other)


def run(spark: Any, text: str) -> list[dict[str, Any]]:
    """Run a text step by step, each a table of its own: Spark would work out a step again wherever it is named."""
    text = re.sub(r"--[^\n]*", "", text)
    while found := re.match(r"\s*(?:WITH|,)\s*(\w+) AS \(", text):
        depth, at = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        spark.sql(text[found.end() : at - 1]).localCheckpoint().createOrReplaceTempView(found[1])
        text = text[at:]
    return [row.asDict() for row in spark.sql(text).collect()]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by what names them: the order of those that are equal in it is nobody's promise."""
    told = ("begins", "ChargePeriodStart")
    names = [name for name in rows[0] if name in told or any(isinstance(row[name], str) for row in rows)]
    return sorted(rows, key=lambda row: [str(row[name]) for name in names])


@pytest.mark.parametrize("name", [*REPORTS, "lost"])
def test_spark_gives_the_rows_of_duckdb(spark: Any, tmp_path: Path, name: str) -> None:
    folder = random_folder(tmp_path / "jobs")
    tables = Tables(Files(folder))
    ours = in_order([dict(row) for row in tables.rows(name, **ASKED)])
    asked = {"since": tables.span.since, "until": tables.span.until, **ASKED}
    tables.close()
    viewed(spark, folder, asked)
    theirs = in_order(run(spark, text_of(name)))
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert {key for key in one if not alike(one[key], other[key])} == set(), (one, other)

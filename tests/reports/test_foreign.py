"""Folders that something else wrote to: what no table of jobs can hold is refused in one line, by each reader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardq.errors import ConfigError
from shardq.reports.catalog import REPORTS, made
from shardq.whatif.tables import recorded
from tests.reports.rows import folder_of, job, setting, waiting, worker

pytestmark = pytest.mark.runs_in("test-all")
Change = Callable[[pa.Table], pa.Table]


def with_value(name: str, value: object, kind: pa.DataType | None = None) -> Change:
    """All rows have this *value* in a column."""

    def changed(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, pa.array([value] * len(table), kind or table.schema.field(name).type))

    return changed


def without(name: str) -> Change:
    return lambda table: table.drop([name])


TIME: Final = pa.timestamp("us", tz="UTC")
CHANGES: Final[dict[str, Change]] = {
    "NaN": with_value("wait_s", float("nan")),
    "an infinity": with_value("ran_s", float("inf")),
    "less than all": with_value("work_s", float("-inf")),
    "more than any": with_value("held_s", 1e300),
    "a year beyond 9999": with_value("ended_at", 200_000 * 365 * 86_400 * 1_000_000, TIME),
    "the last time": with_value("written_at", 2**63 - 1, TIME),
    "the first time": with_value("ready_at", -(2**63) + 1, TIME),
    "a time before all": with_value("first_at", -1_000_000, TIME),
    "a text for a number": with_value("attempts", "many", pa.string()),
    "a text for a time": with_value("ready_at", "soon", pa.string()),
    "a list for a text": with_value("shard_key", ["a"], pa.list_(pa.string())),
    "bytes that are no text": with_value("shard_key", b"\xff\xfe", pa.binary()),
    "no wait": without("wait_s"),
    "no end": without("ended_at"),
}


ACCEPTED: Final = {"less than all", "bytes that are no text", "more than any"}
"""What a replay can read, or does not read, and a report refuses."""


TOLD: Final = {"the last time", "the first time", "bytes that are no text"}
"""What a report shows as no time, or as escapes."""


def is_one_line(error: BaseException) -> bool:
    return "\n" not in str(error) and len(str(error)) < 500 and "is no table of jobs, or is damaged" in str(error)


def refused(folder: Path, report: str) -> bool:
    """Whether a report is refused in one line; else it is made."""
    try:
        made(report, folder).html.encode()
    except ConfigError as error:
        return is_one_line(error) or pytest.fail(str(error))
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jobs = [*(job(key, at, wait=1.0) for at in range(5) for key in ("a", "b")), waiting("a", 9)]
    return folder_of(tmp_path, jobs, settings=[setting(0, "key", "a", weight=2.0)], capacity=[worker("w", 0, 60, 2)])


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_job_can_have_is_refused_in_one_line_or_told(folder: Path, name: str) -> None:
    for path in folder.glob("jobs/*/*/*.parquet"):
        pq.write_table(CHANGES[name](pq.read_table(path, partitioning=None)), path)
    found = [refused(folder, report) for report in REPORTS]
    assert name in TOLD or True in found
    if name not in ACCEPTED:
        with pytest.raises(ConfigError, match="is no table of jobs, or is damaged") as raised:
            recorded(folder)
        assert is_one_line(raised.value)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_weight_that_is_none_is_refused_or_told(folder: Path, weight: float) -> None:
    [path] = folder.glob("settings/*/*.parquet")
    pq.write_table(with_value("weight", weight)(pq.read_table(path, partitioning=None)), path)
    assert [*map(partial(refused, folder), REPORTS)]


def test_columns_that_are_of_others_count_for_nothing(folder: Path) -> None:
    before = {report: made(report, folder).told.rows for report in REPORTS}
    for path in folder.glob("jobs/*/*/*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.append_column("mood", pa.array(["good"] * len(table))), path)
    assert {report: made(report, folder).told.rows for report in REPORTS} == before

"""A folder of tables of jobs, written row by row: what a test does not say of a job is as it mostly is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from shardq.jobs.folder import FolderRun
from shardq.jobs.schema import CAPACITY, JOBS, LOST, OPEN, SETTINGS
from shardq.jobs.tables import run_name

Row = Mapping[str, Any]

BEGIN: Final = 1_795_996_800.0
"""2026-11-30 00:00 UTC."""
DAY: Final = 86_400.0
RUN: Final = run_name(0)
_NUMBERS = count()


def job(key: str, at: float, took: float = 1.0, *, wait: float = 0.0, **more: Any) -> Row:
    """A job that was acked: written so many seconds after BEGIN, and delivered after so long a wait."""
    written = BEGIN + at
    parent = key.partition("/")[0]
    return {
        "queue": "jobs", "queue_id": "1-a", "message_id": f"{written * 1000:.0f}-{next(_NUMBERS)}-0", "redriven": 0,
        "shard_key": key, "parent": parent, "written_at": written, "ready_at": written, "first_at": written + wait,
        "last_at": written + wait, "ended_at": written + wait + took, "outcome": "acked", "attempts": 1, "uncounted": 0,
        "replaced": 0, "client": "host-1", "wait_s": wait, "held_s": took, "work_s": took, "ran_s": took,
        "blocked_pause_s": 0.0, "blocked_rate_s": 0.0, "blocked_cap_s": 0.0, "whole": True, **more,
    }  # fmt: skip


def waiting(key: str, at: float) -> Row:
    """A job that was never delivered."""
    nothing = dict.fromkeys(("first_at", "last_at", "ended_at", "outcome", "client", "ran_s"))
    return {**job(key, at), **nothing, "attempts": 0, "held_s": 0.0, "work_s": 0.0}


def worker(name: str, since: float, until: float | None, slots: int, **more: Any) -> Row:
    """A stay of a worker, in seconds after BEGIN."""
    ends = None if until is None else BEGIN + until
    return {"queue": "jobs", "queue_id": "1-a", "worker": name, "client": name, "from_at": BEGIN + since, "to_at": ends,
            "slots": slots, **more}  # fmt: skip


def setting(at: float, scope: str, key: str | None, **values: Any) -> Row:
    """What is known of a key, a plan or the queue from so many seconds after BEGIN on."""
    return {"queue": "jobs", "queue_id": "1-a", "at": BEGIN + at, "kind": "seen", "scope": scope, "key": key, **values}


def folder_of(
    path: Path,
    jobs: Sequence[Row],
    *,
    settings: Sequence[Row] = (),
    capacity: Sequence[Row] = (),
    lost: Sequence[Row] = (),
    upto: float | None = None,
) -> Path:
    """Write the tables of one run, which read the journal up to so many seconds after BEGIN."""
    days: dict[str, list[Row]] = {}
    for row in jobs:
        if row["ended_at"] is not None:
            days.setdefault(f"{datetime.fromtimestamp(row['ended_at'], UTC):%Y-%m-%d}", []).append(row)
    for day, rows in days.items():
        _write(path / "jobs" / f"day={day}" / RUN, JOBS, rows)
    _write(path / "open" / RUN, OPEN, [row for row in jobs if row["ended_at"] is None])
    _write(path / "settings" / RUN, SETTINGS, settings)
    _write(path / "capacity" / RUN, CAPACITY, [row for row in capacity if row["to_at"] is not None])
    _write(path / "present" / RUN, CAPACITY, [row for row in capacity if row["to_at"] is None])
    _write(path / "lost" / RUN, LOST, lost)
    queues = {} if upto is None else {"jobs": {"id": "1-a", "points": [9], "upto": round((BEGIN + upto) * 1000)}}
    runs = path / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    (runs / f"{RUN.removeprefix('run=')}.json").write_text(json.dumps(FolderRun(0, queues).fields()))
    return path


def _write(path: Path, schema: Any, rows: Sequence[Row]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    columns = [_column(field, [row.get(field.name) for row in rows]) for field in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path / "part-00000.parquet")


def _column(field: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_timestamp(field.type):
        values = [None if each is None else datetime.fromtimestamp(each, UTC) for each in values]
    return pa.array(values, field.type)

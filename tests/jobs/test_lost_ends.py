"""Jobs whose end may be lost stay open for 90 days after they were last heard of, and no longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from shardq.jobs.schema import EVENTS, OPEN
from shardq.jobs.step import SILENT_MS, State, advance

NOW = datetime(2026, 11, 30, tzinfo=UTC)
LONG_AGO, LATELY = NOW - timedelta(milliseconds=SILENT_MS + 1), NOW - timedelta(milliseconds=SILENT_MS - 1)
QUEUE = f"{(NOW - timedelta(days=365)).timestamp() * 1000:.0f}-a"


def opened(name: str, since: datetime, *, whole: bool, state: str = "waiting") -> dict[str, Any]:
    usual = {"queue": "q", "queue_id": QUEUE, "shard_key": "t", "parent": "t", "redriven": 0, "number": 1, "count": 0}
    zeros = dict.fromkeys(("attempts", "uncounted", "replaced"), 0) | {
        each: 0.0 for each in OPEN.names if each.endswith("_s")
    }
    times = {"written_at": since, "ready_at": since, "since": since}
    return {**dict.fromkeys(OPEN.names), **usual, **zeros, **times, "message_id": name, "whole": whole, "state": state}


def rows(*told: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([*told], schema=OPEN)


def event() -> pa.Table:
    """Something that happens now, to none of them."""
    told = {"queue": "q", "queue_id": QUEUE, "partition": 0, "number": 9, "time": NOW, "kind": "written"}
    usual = dict.fromkeys(EVENTS.names) | {"message_id": "new", "shard_key": "t", "count": 0, "values": []}
    return pa.Table.from_pylist([{**usual, **told}], schema=EVENTS)


def test_only_what_is_not_whole_and_was_silent_for_long_vanishes() -> None:
    jobs = rows(
        opened("lost", LONG_AGO, whole=False),
        opened("waits", LONG_AGO, whole=True),
        opened("young", LATELY, whole=False),
        opened("delayed", NOW + timedelta(days=900), whole=False),
    )
    letters = rows(
        opened("lost letter", LONG_AGO, whole=False, state="dead"),
        opened("letter", LONG_AGO, whole=True, state="dead"),
    )
    state, made = advance(State(open=jobs, letters=letters, names={QUEUE: "q"}), event())
    [ended] = made.jobs.to_pylist()
    assert (ended["message_id"], ended["outcome"], ended["ended_at"], ended["whole"]) == (
        "lost",
        "vanished",
        NOW,
        False,
    )
    assert {*state.open["message_id"].to_pylist()} == {"waits", "young", "delayed", "new"}
    assert state.letters["message_id"].to_pylist() == ["letter"]

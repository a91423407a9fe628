"""The pivot makes of any history what a loop over its events makes of it, in one step or many, whole or spread."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardq.jobs.lost import LostEvents
from shardq.jobs.pivot import pivot
from shardq.jobs.schema import JOBS, OPEN
from shardq.jobs.step import State, advance, around, lives_of
from tests.jobs.histories import Event, histories, table
from tests.jobs.naive import Job, Model

Row = dict[str, Any]
OF_A_JOB = (
    "message_id", "redriven", "shard_key", "task", "written_at", "ready_at", "first_at", "last_at", "ended_at",
    "outcome", "attempts", "uncounted", "replaced", "client", "whole",
)  # fmt: skip


def in_ms(time: Any) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def of_model(job: Job) -> Row:
    """What a row says of this job; times in ms, seconds in ms or tenths."""

    def length(stretches: Sequence[tuple[int, int | None]]) -> int:
        return sum(end - start for start, end in stretches if end is not None)

    row = {name: getattr(job, name) for name in OF_A_JOB}
    row |= {"parent": job.shard_key, "wait": length(job.waited), "held": length(job.held)}
    return row | {"work": job.work, "ran": job.ran, **job.blocked}


def of_rows(rows: pa.Table) -> list[Row]:
    found = []
    for row in rows.to_pylist():
        made = {name: row[name] for name in JOBS.names if not name.endswith(("_at", "_s"))}
        made |= {name: in_ms(row[name]) for name in JOBS.names if name.endswith("_at")}
        made |= {"wait": round(row["wait_s"] * 1000), "held": round(row["held_s"] * 1000)}
        made |= {"work": round(row["work_s"] * 10_000), "ran": row["ran_s"] and round(row["ran_s"] * 10_000)}
        made |= {name: round(row[f"blocked_{name}_s"] * 1000) for name in ("pause", "rate", "cap")}
        made["ran"] = None if row["ran_s"] is None else round(row["ran_s"] * 10_000)
        found.append({name: value for name, value in made.items() if name not in ("queue", "queue_id", "plan")})
    return sorted(found, key=key)


def key(row: Row) -> tuple[Any, ...]:
    return row["message_id"], row["redriven"], str(sorted(map(str, row.items())))


def modelled(events: Sequence[Event]) -> Model:
    model = Model()
    for event in events:
        model.read(event)
    model.finish([*events])
    return model


def made(steps: Iterable[Sequence[Event]]) -> tuple[list[Row], list[Row], State]:
    """The rows that ended and that are open after these steps."""
    state, ended = State(), [JOBS.empty_table()]
    for events in steps:
        state, found = advance(state, table(events))
        ended.append(found.jobs)
    return of_rows(pa.concat_tables(ended)), of_rows(state.open), state


def check(events: Sequence[Event], steps: Iterable[Sequence[Event]]) -> None:
    model, (ended, opened, state) = modelled(events), made(steps)
    assert ended == sorted(map(of_model, model.ended), key=key)
    assert opened == sorted(map(of_model, model.open.values()), key=key)
    assert sorted(state.letters["message_id"].to_pylist()) == sorted(model.letters)
    states = zip(state.open["message_id"].to_pylist(), state.open["state"].to_pylist(), strict=True)
    assert dict(states) == {name: job.state for name, job in model.open.items()}


@given(histories())
@settings(max_examples=60)
def test_one_step_makes_what_a_loop_makes(events: list[Event]) -> None:
    check(events, [events])


@given(histories(), st.lists(st.integers(0, 40), max_size=4))
@settings(max_examples=60)
def test_any_number_of_steps_makes_the_same(events: list[Event], cuts: list[int]) -> None:
    check(events, steps_of(events, cuts))


def steps_of(events: list[Event], cuts: Iterable[int]) -> list[list[Event]]:
    """Events cut between two ms, as a journal is read."""
    found: list[list[Event]] = [[]]
    for at, event in enumerate(events):
        if at and event["time"] > events[at - 1]["time"] and any(at >= cut > at - 3 for cut in cuts):
            found.append([])
        found[-1].append(event)
    return found


@given(histories(), st.integers(2, 4))
@settings(max_examples=50)
def test_it_may_be_spread_by_messages(events: list[Event], tasks: int) -> None:
    told = table(events)
    around_it = around(State(), told, None, lives_of(told))
    whole = pivot(told, OPEN.empty_table(), LostEvents(told), frozenset())
    parts = [
        pivot(told.filter(pc.equal(task_of(told, tasks), task)), OPEN.empty_table(), around_it.losses, frozenset())
        for task in range(tasks)
    ]
    order = [(name, "ascending") for name in ("message_id", "redriven", "state")]
    assert pa.concat_tables(parts).sort_by(order) == whole.sort_by(order)


def task_of(events: pa.Table, tasks: int) -> pa.Array:
    return pa.array([zlib.crc32((each or "").encode()) % tasks for each in events["message_id"].to_pylist()])


@pytest.mark.runs_in("test-all")
@given(histories(most=120), st.lists(st.integers(0, 120), max_size=8))
@settings(max_examples=400)
def test_long_histories_too(events: list[Event], cuts: list[int]) -> None:
    check(events, steps_of(events, cuts))

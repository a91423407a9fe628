"""One step from the state that an earlier one left to the next: events make rows of all tables.

In plain Python a step is of some pages of a journal. Spark makes the two heavy parts of it, `pivot` and `with_blocked`,
in many tasks, and the rest on its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.arrays import NONE, ms_of, one, times_of, whole
from shardq.jobs.blocked import BlockedSpan, Blocking, Tenant, with_blocked
from shardq.jobs.capacity import Capacity
from shardq.jobs.controls import JobControls
from shardq.jobs.lost import LostEvents, lost_of
from shardq.jobs.pivot import ENDED, pivot
from shardq.jobs.rules import Rules, rules_of
from shardq.jobs.schema import CAPACITY, JOBS, OPEN, SETTINGS
from shardq.protocol.replies import created_ms

ORDER: Final = [
    (name, "ascending") for name in ("queue", "shard_key", "ended_at", "queue_id", "message_id", "redriven")
]
"""In which the rows of a file lie."""


SILENT_MS: Final = 90 * 24 * 3_600_000
"""Milliseconds for which a silent job stays open if events of it may be lost."""


@dataclass(frozen=True, slots=True)
class State:
    """The state from which a step continues: open jobs, dead letters, the newest settings, workers that are there.

    `buckets` are those of tenants with a rate. By the ids of queues, `until` are the times of their last events, in ms,
    and `names` their names.
    """

    open: pa.Table = field(default_factory=OPEN.empty_table)
    letters: pa.Table = field(default_factory=OPEN.empty_table)
    controls: pa.Table = field(default_factory=SETTINGS.empty_table)
    present: pa.Table = field(default_factory=CAPACITY.empty_table)
    buckets: Mapping[Tenant, float] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


class MadeJobs(NamedTuple):
    """The rows that a step added to each table."""

    jobs: pa.Table
    settings: pa.Table
    capacity: pa.Table
    lost: pa.Table


class Around(NamedTuple):
    """A step's rows from events without a message, which are few; and the facts that the pivot must know of them.

    `former` are queues that were deleted and recreated, and when that was, in ms.
    """

    state: State
    made: MadeJobs
    rules: Mapping[str, Rules]
    losses: LostEvents
    spans: Mapping[str, BlockedSpan]
    former: Mapping[str, int]

    @property
    def parents(self) -> frozenset[str]:
        """The queues in which shard keys count under parents."""
        return frozenset(queue_id for queue_id, rules in self.rules.items() if rules.parents)

    @property
    def blocking(self) -> Blocking:
        """The facts that `with_blocked` must know."""
        return Blocking(self.rules, self.spans, self.state.buckets)


def advance(state: State, events: pa.Table, seen: pa.Table | None = None) -> tuple[State, MadeJobs]:
    """Return the state after *events*, and what they add. Rows *seen* say how queues were when their tables began."""
    found = around(state, events, seen, lives_of(events))
    rows = pivot(events, pa.concat_tables([state.open, state.letters]), found.losses, found.parents)
    rows, buckets = with_blocked(without_lost(rows, found), found.blocking)
    jobs = ended_of(rows).sort_by(ORDER)
    state = replace(found.state, open=open_of(rows), letters=letters_of(rows), buckets=buckets)
    return state, found.made._replace(jobs=jobs)


class Life(NamedTuple):
    """A queue from its making to its deletion: its name, and the time of the last event that was read, in ms."""

    name: str
    until: int


def lives_of(events: pa.Table) -> dict[str, Life]:
    """Return the queues of *events* by their ids."""
    newest = events.group_by(["queue_id", "queue"]).aggregate([("time", "max")])
    columns = newest["queue_id"].to_pylist(), newest["queue"].to_pylist(), ms_of(one(newest["time_max"])).tolist()
    return {queue_id: Life(name, until) for queue_id, name, until in zip(*columns, strict=True)}


def around(state: State, events: pa.Table, seen: pa.Table | None, lives: Mapping[str, Life]) -> Around:
    """Return what a step makes of all but the messages. *events* need not have those of messages.

    *lives* are the queues of all events. The state has neither its open jobs nor its dead letters.
    """
    former = _former(state, lives)
    state, gone = _without(state, former)
    controls, capacity, before = JobControls(state.controls), Capacity(state.present), state.controls
    new = SETTINGS.empty_table()
    if seen is not None:
        new = seen.filter(pa.array([not controls.knows(each) for each in seen["queue_id"].to_pylist()], pa.bool_()))
        controls = JobControls(pa.concat_tables([before, new]))
    settings = pa.concat_tables([new, controls.add(events)])
    left = pa.concat_tables([gone, capacity.add(events)])
    after = {queue_id: max(life.until, state.until.get(queue_id, 0)) for queue_id, life in lives.items()}
    spans = {queue_id: BlockedSpan(ms, ms) for queue_id, ms in (*state.until.items(), *former.items())}
    spans |= {queue_id: BlockedSpan(state.until.get(queue_id, 0), ms) for queue_id, ms in after.items()}
    rules = rules_of(pa.concat_tables([before, settings]))
    state = State(
        controls=controls.table(), present=capacity.present(), buckets=state.buckets, until={**state.until, **after},
        names={**state.names, **{queue_id: life.name for queue_id, life in lives.items()}},
    )  # fmt: skip
    made = MadeJobs(JOBS.empty_table(), settings, left, lost_of(events))
    return Around(state, made, rules, LostEvents(events), spans, former)


def _former(state: State, lives: Mapping[str, Life]) -> dict[str, int]:
    """The queues that were deleted, since there are others with their names; and when these were made, in ms."""
    newest: dict[str, str] = {}
    for queue_id, name in [*state.names.items(), *((each, life.name) for each, life in lives.items())]:
        newest[name] = max(queue_id, newest.get(name, queue_id), key=created_ms)
    names = {**state.names, **{queue_id: life.name for queue_id, life in lives.items()}}
    return {
        queue_id: created_ms(newest[name])
        for queue_id, name in names.items()
        if created_ms(queue_id) < created_ms(newest[name])
    }


def without_lost(rows: pa.Table, found: Around) -> pa.Table:
    """Return *rows* of the pivot without open ones and dead letters whose end nobody will hear."""
    return without_silent(without_former(rows, found.former), found.spans)


def without_silent(rows: pa.Table, spans: Mapping[str, BlockedSpan]) -> pa.Table:
    """Return *rows* of the pivot without open ones that vanished unheard: events of theirs are lost.

    Nothing was heard of them for `SILENT_MS`, so what is lost may be their end. Dead letters of this kind are left out.
    """
    heard = ms_of(one(pc.coalesce(*(rows[each] for each in ("since", "last_at", "ready_at", "written_at")))))
    of_queue = one(pc.index_in(rows["queue_id"], value_set=pa.array([*spans], pa.string())))
    until = whole(pa.array([span.until for span in spans.values()], pa.int64()).take(of_queue))
    is_over = one(pc.or_(rows["whole"], pc.equal(rows["state"], ENDED))).to_numpy(zero_copy_only=False)
    silent = ~is_over & (heard != NONE) & (heard < until - SILENT_MS)
    if not silent.any():
        return rows
    vanished = silent & ~one(pc.equal(rows["state"], "dead")).to_numpy(zero_copy_only=False)
    ended = _vanished(rows.filter(pa.array(vanished)), until[vanished])
    return pa.concat_tables([rows.filter(pa.array(~silent)), ended])


def without_former(rows: pa.Table, former: Mapping[str, int]) -> pa.Table:
    """Return *rows* of the pivot without open ones of former queues: those vanished when others were made.

    Their fate since the last events that were read is lost with their journals.
    """
    for queue_id, ms in former.items():
        is_of = pc.equal(rows["queue_id"], queue_id)
        rest, left = rows.filter(pc.invert(is_of)), rows.filter(is_of)
        ended, opened = left.filter(pc.equal(left["state"], ENDED)), open_of(left)
        rows = pa.concat_tables([rest, ended, _vanished(opened, np.full(len(opened), ms))])
    return rows


def _vanished(opened: pa.Table, ms: Any) -> pa.Table:
    """Return open rows as they are if their messages vanished at these times."""
    count = len(opened)
    values = {
        "ended_at": times_of(ms), "outcome": pa.repeat(pa.scalar("vanished"), count),
        "whole": pa.repeat(pa.scalar(False), count), "state": pa.repeat(pa.scalar(ENDED), count),
    }  # fmt: skip
    return _with(opened, values)


def ended_of(rows: pa.Table) -> pa.Table:
    """Return the rows of jobs that have ended, as JOBS."""
    return rows.filter(pc.equal(rows["state"], ENDED)).select(JOBS.names).cast(JOBS)


def open_of(rows: pa.Table) -> pa.Table:
    """Return the rows of jobs that have not ended."""
    return rows.filter(pc.invert(pc.is_in(rows["state"], value_set=pa.array([ENDED, "dead"]))))


def letters_of(rows: pa.Table) -> pa.Table:
    """Return the rows of dead letters."""
    return rows.filter(pc.equal(rows["state"], "dead"))


def _without(state: State, former: Mapping[str, int]) -> tuple[State, pa.Table]:
    """Leave former queues: return the state without them, and the stays of their workers, which are over."""
    gone = [CAPACITY.empty_table()]
    for queue_id, ms in former.items():
        left = state.present.filter(pc.equal(state.present["queue_id"], queue_id))
        gone.append(_with(left, {"to_at": times_of(np.full(len(left), ms))}))
    is_former = pa.array([*former], pa.string())

    def rest(table: pa.Table) -> pa.Table:
        return table.filter(pc.invert(pc.is_in(table["queue_id"], value_set=is_former)))

    kept = replace(
        state, controls=rest(state.controls), present=rest(state.present),
        buckets={tenant: full_at for tenant, full_at in state.buckets.items() if tenant[0] not in former},
        until={each: ms for each, ms in state.until.items() if each not in former},
        names={each: name for each, name in state.names.items() if each not in former},
    )  # fmt: skip
    return kept, pa.concat_tables(gone)


def _with(table: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in values.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table

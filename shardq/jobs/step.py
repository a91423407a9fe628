"""One step from the state that an earlier one left to the next: events make rows of all tables.

In plain Python a step is of some pages of a journal. Spark makes the two heavy parts of it, `pivot` and `with_blocked`,
in many tasks, and the rest on its driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.arrays import ms_of, one, times_of
from shardq.jobs.blocked import Blocking, Span, Tenant, with_blocked
from shardq.jobs.capacity import Capacity
from shardq.jobs.controls import Controls
from shardq.jobs.lost import Losses, lost_of
from shardq.jobs.pivot import ENDED, pivot
from shardq.jobs.rules import Rules, rules_of
from shardq.jobs.schema import CAPACITY, JOBS, OPEN, SETTINGS
from shardq.protocol.replies import created_ms

ORDER: Final = [
    (name, "ascending") for name in ("queue", "shard_key", "ended_at", "queue_id", "message_id", "redriven")
]
"""In which the rows of a file lie."""


@dataclass(frozen=True, slots=True)
class State:
    """What a step goes on from: open jobs, dead letters, the newest settings, workers that are there.

    `buckets` are those of tenants with a rate, `until` the times of the last events by queue id, in ms.
    """

    open: pa.Table = field(default_factory=OPEN.empty_table)
    letters: pa.Table = field(default_factory=OPEN.empty_table)
    controls: pa.Table = field(default_factory=SETTINGS.empty_table)
    present: pa.Table = field(default_factory=CAPACITY.empty_table)
    buckets: Mapping[Tenant, float] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)


class Made(NamedTuple):
    """What a step added to each table."""

    jobs: pa.Table
    settings: pa.Table
    capacity: pa.Table
    lost: pa.Table


class Around(NamedTuple):
    """What a step makes of events that are of no message, which are few; and what the pivot must know of them."""

    state: State
    made: Made
    rules: Mapping[str, Rules]
    losses: Losses
    spans: Mapping[str, Span]

    @property
    def parents(self) -> frozenset[str]:
        """The queues in which shard keys count under parents."""
        return frozenset(queue_id for queue_id, rules in self.rules.items() if rules.parents)

    @property
    def blocking(self) -> Blocking:
        """What `with_blocked` must know."""
        return Blocking(self.rules, self.spans, self.state.buckets)


def advance(state: State, events: pa.Table, seen: pa.Table | None = None) -> tuple[State, Made]:
    """Return the state after *events*, and what they add. Rows *seen* say how queues were when their tables began."""
    found = around(state, events, seen, untils_of(events))
    state, made = found.state, found.made
    rows = pivot(events, pa.concat_tables([state.open, state.letters]), found.losses, found.parents)
    rows, buckets = with_blocked(rows, found.blocking)
    jobs = pa.concat_tables([made.jobs, ended_of(rows)]).sort_by(ORDER)
    state = replace(state, open=open_of(rows), letters=letters_of(rows), buckets=buckets)
    return state, made._replace(jobs=jobs)


def around(state: State, events: pa.Table, seen: pa.Table | None, until: Mapping[str, int]) -> Around:
    """Return what a step makes of all but the messages. *events* need not have those of messages.

    *until* are the times of the last events, by queue id.
    """
    state, jobs, gone = _without_former(state, until, events)
    controls, capacity = Controls(state.controls), Capacity(state.present)
    before = state.controls
    new = SETTINGS.empty_table()
    if seen is not None:
        new = seen.filter(pa.array([not controls.knows(each) for each in seen["queue_id"].to_pylist()], pa.bool_()))
        controls = Controls(pa.concat_tables([before, new]))
    settings = pa.concat_tables([new, controls.add(events)])
    left = pa.concat_tables([gone, capacity.add(events)])
    after = {queue_id: max(ms, state.until.get(queue_id, 0)) for queue_id, ms in until.items()}
    spans = {queue_id: Span(state.until.get(queue_id, 0), ms) for queue_id, ms in after.items()}
    spans = {queue_id: Span(ms, ms) for queue_id, ms in state.until.items()} | spans
    rules = rules_of(pa.concat_tables([before, settings]))
    state = replace(state, controls=controls.table(), present=capacity.present(), until={**state.until, **after})
    return Around(state, Made(jobs, settings, left, lost_of(events)), rules, Losses(events), spans)


def untils_of(events: pa.Table) -> dict[str, int]:
    """Return the time of the last event of each queue, in ms, by its id."""
    newest = events.group_by("queue_id").aggregate([("time", "max")])
    return dict(zip(newest["queue_id"].to_pylist(), ms_of(one(newest["time_max"])).tolist(), strict=True))


def ended_of(rows: pa.Table) -> pa.Table:
    """Return the rows of jobs that have ended, as JOBS."""
    return rows.filter(pc.equal(rows["state"], ENDED)).select(JOBS.names).cast(JOBS)


def open_of(rows: pa.Table) -> pa.Table:
    """Return the rows of jobs that have not ended."""
    return rows.filter(pc.invert(pc.is_in(rows["state"], value_set=pa.array([ENDED, "dead"]))))


def letters_of(rows: pa.Table) -> pa.Table:
    """Return the rows of dead letters."""
    return rows.filter(pc.equal(rows["state"], "dead"))


def _without_former(state: State, until: Mapping[str, int], events: pa.Table) -> tuple[State, pa.Table, pa.Table]:
    """Leave queues that were deleted and made anew: their open jobs vanished, their workers left.

    What happened to them since the last events that were read is lost with their journals.
    """
    newest: dict[str, str] = {}
    names = events.group_by(["queue", "queue_id"]).aggregate([])
    for name, queue_id in zip(names["queue"].to_pylist(), names["queue_id"].to_pylist(), strict=True):
        newest[name] = max(queue_id, newest.get(name, queue_id), key=created_ms)
    jobs, left = [], []
    for name, queue_id in newest.items():
        former = [each for each in state.until if each != queue_id and _is_former(each, name, state, queue_id)]
        for each in former:
            jobs.append(_vanished(_of(state.open, each), created_ms(queue_id)))
            left.append(_gone(_of(state.present, each), created_ms(queue_id)))
            state = _without(state, each)
    return state, pa.concat_tables([JOBS.empty_table(), *jobs]), pa.concat_tables([CAPACITY.empty_table(), *left])


def _is_former(queue_id: str, name: str, state: State, newest: str) -> bool:
    tables = (state.open, state.letters, state.controls, state.present)
    names = {each for table in tables for each in _of(table, queue_id)["queue"].slice(0, 1).to_pylist()}
    return name in names and created_ms(queue_id) < created_ms(newest)


def _of(table: pa.Table, queue_id: str) -> pa.Table:
    return table.filter(pc.equal(table["queue_id"], queue_id))


def _without(state: State, queue_id: str) -> State:
    def rest(table: pa.Table) -> pa.Table:
        return table.filter(pc.not_equal(table["queue_id"], queue_id))

    return State(
        rest(state.open), rest(state.letters), rest(state.controls), rest(state.present),
        {tenant: full_at for tenant, full_at in state.buckets.items() if tenant[0] != queue_id},
        {each: ms for each, ms in state.until.items() if each != queue_id},
    )  # fmt: skip


def _vanished(rows: pa.Table, ms: int) -> pa.Table:
    values = {"ended_at": times_of(np.full(len(rows), ms)), "outcome": pa.repeat("vanished", len(rows))}
    values["whole"] = pa.repeat(False, len(rows))
    return _with(rows.select(JOBS.names), values).cast(JOBS)


def _gone(rows: pa.Table, ms: int) -> pa.Table:
    return _with(rows, {"to_at": times_of(np.full(len(rows), ms))}).cast(CAPACITY)


def _with(table: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in values.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table

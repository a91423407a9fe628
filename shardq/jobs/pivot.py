"""The pivot: events of messages become jobs. It stands once, over Arrow, for plain Python and for each task of Spark.

The times that a message waited and was held are sums of the time between two events of it, whichever they are:

    written ........ delivered -------- nacked (due later)    ....... delivered ---- acked
            waits               held              delay        waits            held
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs import kinds
from shardq.jobs.arrays import NONE, is_null, ms_of, one, scaled, taken, times_of, whole
from shardq.jobs.histories import Histories
from shardq.jobs.lost import LostEvents
from shardq.jobs.schema import OPEN

STRETCHES: Final = pa.list_(pa.int64())
"""Stretches of time in ms: from, to, from, to, and so on. One that is not over ends with `NONE`."""
ROWS: Final = pa.schema([*OPEN, ("waited", STRETCHES), ("held", STRETCHES)])
"""The pivot's rows for events: jobs that ended (state "ended"), open ones, and dead letters (state "dead").

Each says when it waited and was held: `blocked` looks at that, and takes it away.
"""
ENDED: Final = "ended"


def pivot(events: pa.Table, carried: pa.Table, losses: LostEvents, parents: Set[str]) -> pa.Table:
    """Return the rows that *events* make of the rows that are *carried* from earlier runs, which have all columns OPEN.

    *parents* are the ids of queues in which shard keys count under parents. All events of a message must be among
    these, those of other messages need not.
    """
    return _Pivot(Histories(events, carried), losses, parents).rows()


class _Pivot:
    def __init__(self, histories: Histories, losses: LostEvents, parents: Set[str]) -> None:
        self.of, self.losses, self.parents = histories, losses, parents
        of = histories
        self.is_event = of.base == NONE
        self.base = of.base[of.start] if len(of) else np.zeros(0, np.int64)
        self.delivered = of.kind == kinds.number_of("delivered")
        self.acts = np.zeros(len(of.row), bool)
        self.acts[of.acts] = True
        self.last_act = of.last(self.acts)
        self.last_kind = of.at(of.kind, self.last_act)
        self.is_known = of.last(of.kind != kinds.number_of("deleted")) >= 0  # not of a letter that nobody knows
        # That it ended is lost where it was redriven anyway: it had become a dead letter.
        self.has_end = (self.last_act >= 0) & kinds.ends(self.last_kind)
        self.has_ended = self.has_end | (self.is_known & ~of.is_last)
        self._chain()
        self.first_delivery = of.first(self.delivered)
        self.first_at = self._kept("first_at", of.at(of.time, self.first_delivery))
        self._since()

    def _chain(self) -> None:
        """Find which jobs are of a message whose dead letter was taken back, and the first one of each such chain."""
        of = self.of
        deleted = of.last(of.kind == kinds.number_of("deleted")) > self.last_act
        left = np.where(self.has_end, kinds.leaves_letter(self.last_kind), self.has_ended)
        self.has_letter = left & ~deleted
        self.follows = np.zeros(len(of), bool)
        self.follows[1:] = ~of.is_first[1:] & self.has_letter[:-1]
        self.first_in_chain = np.maximum.accumulate(np.where(self.follows, 0, np.arange(len(of))))

    def _inherited(self, value: Any) -> Any:
        """Return for each job its value, or that of the job before in its chain where it is `NONE`."""
        source = np.maximum.accumulate(np.where(value == NONE, NONE, np.arange(len(value))))
        return np.where(source < self.first_in_chain, NONE, self.of.at(value, source))

    # --- of each job --------------------------------------------------------------------------------------------

    def _carried(self, values: Any, otherwise: Any) -> Any:
        """Return for each job what its carried row says, else *otherwise*; *values* are those of the carried rows."""
        found = np.where(self.base < 0, otherwise, self.of.at(values, self.base)) if len(values) else otherwise
        return found.astype(otherwise.dtype)

    def _had(self, name: str) -> Any:
        """Return which jobs have a carried row in which this column is not null."""
        return self._carried(~is_null(self.of.carried[name]), np.zeros(len(self.of), bool))

    def _kept(self, name: str, found: Any) -> Any:
        """Return times that are kept once they are known: from the carried row, else those *found*."""
        before = self._carried(ms_of(self.of.carried[name]), np.full(len(self.of), NONE))
        return np.where(before == NONE, found, before)

    def _newest(self, name: str, found: Any) -> Any:
        """Return times that are replaced by later ones: those *found*, else of the carried row."""
        before = self._carried(ms_of(self.of.carried[name]), np.full(len(self.of), NONE))
        return np.where(found == NONE, before, found)

    def _more(self, name: str, found: Any, scale: int = 1) -> Any:
        """Return sums that continue those of the carried row."""
        column = one(self.of.carried[name])
        values = whole(column) if scale == 1 else scaled(column, scale)
        return found + np.maximum(self._carried(values, np.zeros(len(self.of), np.int64)), 0)

    # --- times --------------------------------------------------------------------------------------------------

    def _since(self) -> None:
        """Find for each event since when its message waits or is held, and for each job the event that made it ready.

        That is the last by which it waits before its first delivery. Its wait before (until a write with its unique key
        replaced it) was that of another payload.
        """
        of = self.of
        self.waits, self.holds = kinds.waits(of.kind), kinds.holds(of.kind)
        self.since = np.where(self.waits, np.maximum(of.time, of.due), of.time)
        first = np.where(self.first_delivery < 0, len(of.row), self.first_delivery)
        is_before = np.arange(len(of.row)) < first[of.job] if len(of.row) else np.zeros(0, bool)
        self.readied = of.last(self.waits & is_before)
        ready = of.at(self.since, self.readied)
        was_delivered = self._had("first_at")
        before = self._newest("ready_at", np.full(len(of), NONE))
        self.ready_at = np.where(was_delivered | (ready == NONE), before, ready)
        self.readied = np.where(was_delivered, NONE, self.readied)

    def _stretches(self, which: Any) -> tuple[Any, Any, Any]:
        """Return stretches of time that begin with the acts *which*: for which job, from when, and until when."""
        of = self.of
        acts = np.flatnonzero(which[of.acts])
        at = of.acts[acts]
        start = self.since[at]
        goes_on = of.goes_on[acts]
        after = of.acts[np.minimum(acts + 1, max(0, len(of.acts) - 1))]
        end = np.where(goes_on, np.maximum(of.time[after], start), NONE)
        is_kept = (start != NONE) & (goes_on | ~self.has_ended[of.job[at]])
        return of.job[at][is_kept], start[is_kept], end[is_kept]

    def _waited(self) -> tuple[Any, Any, Any]:
        counts = self.waits & (np.arange(len(self.of.row)) >= self.readied[self.of.job]) if len(self.of) else self.waits
        return self._stretches(counts)

    # --- the table ----------------------------------------------------------------------------------------------

    def rows(self) -> pa.Table:
        """Return the table of rows."""
        of = self.of
        waited, held = self._waited(), self._stretches(self.holds)
        state = self._states()
        columns = {
            **self._names(),
            **self._times(),
            **self._sums(waited, held),
            "outcome": self._outcomes(),
            "whole": pa.array(self._whole()),
            "state": state,
            "number": pa.array(of.at(of.number, of.last(of.number >= 0))),
            "since": times_of(self._open_since()),
            "count": pa.array(self._count(), pa.int32()),
            "waited": _listed(*waited, len(of)),
            "held": _listed(*held, len(of)),
        }
        table = pa.table([columns[each.name].cast(each.type) for each in ROWS], schema=ROWS)
        is_row = self.is_known & ~self._is_carried_letter()
        letters = table.filter(pa.array(self._is_letter()))
        # The times that were waited and held are in the row of the job: here they would count twice.
        of_letters = {"state": pa.repeat(pa.scalar("dead"), len(letters))}
        of_letters |= {name: pa.array([[]] * len(letters), STRETCHES) for name in ("waited", "held")}
        for name, column in of_letters.items():
            letters = letters.set_column(ROWS.get_field_index(name), name, column)
        return pa.concat_tables([table.filter(pa.array(is_row)), letters.cast(ROWS)])

    def _is_carried_letter(self) -> Any:
        return self.last_kind == kinds.number_of(kinds.CARRIED["dead"])

    def _is_letter(self) -> Any:
        """Return which jobs left a dead letter that is still there."""
        of = self.of
        return self.has_letter & of.is_last

    def _states(self) -> pa.Array:
        holds = (self.last_act < 0) | kinds.holds(self.last_kind)
        waits = (self.last_act >= 0) & kinds.waits(self.last_kind)
        found = np.where(holds, "in flight", np.where(waits, "waiting", "no room"))
        return pa.array(np.where(self.has_ended, ENDED, found).tolist(), pa.string())

    def _outcomes(self) -> pa.Array:
        names = np.array([each if each in kinds.ENDS else None for each in kinds.KINDS], object)
        dead = kinds.number_of("dead")
        found: Any = np.where(self.has_end, names[self.last_kind], np.where(self.has_ended, names[dead], None))
        is_letter = self._is_carried_letter()
        if not is_letter.any():
            return pa.array(found.tolist(), pa.string())
        before = taken(self.of.carried["outcome"], np.where(is_letter, self.base, NONE)).to_pylist()
        return pa.array([each or other for each, other in zip(found.tolist(), before, strict=True)], pa.string())

    def _open_since(self) -> Any:
        is_open = ~self.has_ended & (self.last_act >= 0)
        return np.where(is_open, self.of.at(self.since, self.last_act), NONE)

    def _count(self) -> Any:
        of = self.of
        return np.maximum(of.at(of.count, of.last(self.holds)), 0)

    def _names(self) -> dict[str, pa.Array]:
        of, names = self.of, self.of.names
        start = of.row[of.start] if len(of) else of.row
        of_key = self._inherited(of.at(of.row, of.last(~is_null(names["shard_key"])[of.row])))
        of_task = self._inherited(of.at(of.row, of.last(~is_null(names["task"])[of.row])))
        client = of.at(of.row, of.last(self.delivered))
        before = np.where(self.base >= 0, self.base, NONE)
        key = taken(names["shard_key"], of_key)
        queue_id = taken(names["queue_id"], start)
        return {
            "queue": taken(names["queue"], start),
            "queue_id": queue_id,
            "message_id": taken(names["message_id"], start),
            "shard_key": key,
            "parent": parents_of(key, queue_id, self.parents),
            "task": taken(names["task"], of_task),
            "plan": pa.nulls(len(of), pa.string()),
            "client": taken(names["client"], np.where(client == NONE, before, client)),
            "redriven": pa.array(self._redriven(), pa.int32()),
        }

    def _redriven(self) -> Any:
        """Return how many jobs of its message were before each."""
        of = self.of
        begins_late = (of.kind[of.start] == kinds.number_of("redriven")).astype(np.int64)
        first = self._carried(whole(of.carried["redriven"]), begins_late)
        return first[self.first_in_chain] + np.arange(len(of)) - self.first_in_chain

    def _times(self) -> dict[str, pa.Array]:
        of = self.of
        written = of.at(of.time, of.first(of.kind == kinds.number_of("written")))
        following = of.start[np.minimum(np.arange(1, len(of) + 1), len(of) - 1)] if len(of) else of.start
        ended = np.where(self.has_ended, of.at(of.time, np.where(self.has_end, self.last_act, following)), NONE)
        is_letter = self._is_carried_letter()
        ended = np.where(is_letter, self._carried(ms_of(of.carried["ended_at"]), ended), ended)
        is_late = self.has_ended & (self.ready_at > ended)
        return {
            "written_at": times_of(self._inherited(self._kept("written_at", written))),
            "ready_at": times_of(np.where(is_late, NONE, self.ready_at)),
            "first_at": times_of(self.first_at),
            "last_at": times_of(self._newest("last_at", of.at(of.time, of.last(self.delivered)))),
            "ended_at": times_of(ended),
        }

    def _sums(self, waited: tuple[Any, Any, Any], held: tuple[Any, Any, Any]) -> dict[str, pa.Array]:
        of, size = self.of, len(self.of)
        kept = ~self._was_replaced()
        blocked = {
            name: pa.array(self._more(name, np.zeros(size, np.int64), 1000) * kept / 1000)
            for name in ("blocked_pause_s", "blocked_rate_s", "blocked_cap_s")
        }
        ran = self._more("ran_s", of.total(of.ran), 10_000)
        is_told = of.counts(of.ran >= 0) > 0
        return {
            "attempts": pa.array(self._more("attempts", of.counts(self.delivered))),
            "uncounted": pa.array(self._more("uncounted", of.counts(self._uncounts()))),
            "replaced": pa.array(self._more("replaced", of.counts(of.kind == kinds.number_of("replaced")))),
            "wait_s": pa.array(self._more("wait_s", _lengths(*waited, size), 1000) / 1000),
            "held_s": pa.array(self._more("held_s", _lengths(*held, size), 1000) / 1000),
            "work_s": pa.array(self._more("work_s", of.total(of.charged), 10_000) / 10_000),
            "ran_s": pa.array(ran / 10_000, mask=~(is_told | self._had("ran_s"))),
            **blocked,
        }

    def _was_replaced(self) -> Any:
        """Return which carried jobs became ready by another event now: how they were blocked before does not count."""
        return (self.base >= 0) & (self.readied >= 0) & (self.readied != self.of.start)

    def _uncounts(self) -> Any:
        """Return which events say that the delivery before them does not count."""
        of = self.of
        found = np.zeros(len(of.row), bool)
        if len(of.acts):
            before, after = of.acts[:-1], of.acts[1:]
            says = kinds.holds(of.kind[before]) & kinds.uncounts(of.kind[after]) & (of.count[after] < of.count[before])
            found[after] = says & of.goes_on[:-1]
        return found

    def _whole(self) -> Any:
        """Return which jobs have all of their events."""
        of = self.of
        if not len(of):
            return np.zeros(0, bool)
        kind = of.kind[of.start]
        begun = (kind == kinds.number_of("written")) | ((kind == kinds.number_of("redriven")) & self.follows)
        found = self._carried(of.carried["whole"].to_numpy(), begun)
        upto = np.where(self.has_end, of.at(of.number, self.last_act), np.iinfo(np.int64).max)
        start = of.row[of.start]
        return (
            found
            & (self.has_end | self.of.is_last)
            & ~self.losses.within(of.names.take(pa.array(start)), of.number[of.start], upto)
        )


def parents_of(keys: pa.Array, queue_ids: pa.Array, parents: Set[str]) -> pa.Array:
    """Return under whom *keys* count: in the queues that have *parents* what stands before the first slash."""
    if not parents:
        return keys
    first = pc.list_element(pc.split_pattern(keys, "/", max_splits=1), 0)
    return pc.if_else(pc.is_in(queue_ids, value_set=pa.array(sorted(parents), pa.string())), first, keys)


def _lengths(job: Any, start: Any, end: Any, size: int) -> Any:
    """Return for each of *size* jobs for how many ms its stretches last that are over."""
    return np.bincount(job, np.where(end == NONE, 0, end - start), size).astype(np.int64)


def _listed(job: Any, start: Any, end: Any, size: int) -> pa.Array:
    """Return for each of *size* jobs its stretches, as a list."""
    ends = np.cumsum(np.bincount(job, minlength=size)) * 2
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.stack([start, end], 1).ravel()))

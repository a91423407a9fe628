"""Events put in the order of each message, and cut where a job of it begins: the ground of the pivot.

A message has one job after the other where it was taken back out of the dead letters. Each array has a value for each
event, or is named after what else it has a value of. `at` are positions of events, `job` those of jobs.
"""

from __future__ import annotations

from typing import Any

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs import kinds
from shardq.jobs.arrays import NONE, ms_of, numbered, one, scaled, whole

_NAMES = ("queue", "queue_id", "message_id", "shard_key", "task", "client")


class Histories:
    """The events of some messages, in the order of each: *events*, and the *carried* state from before these.

    A row that is carried stands in as an event: that by which the message came to be what it is.
    """

    def __init__(self, events: pa.Table, carried: pa.Table) -> None:
        events = events.filter(pc.is_in(events["kind"], value_set=pa.array(kinds.KINDS)))
        events = events.filter(pc.is_valid(events["message_id"]))
        self.carried, first = carried, len(carried)
        self.names = pa.concat_tables([carried.select(_NAMES), events.select(_NAMES)])
        message = numbered(self.names["queue_id"], self.names["message_id"])
        number = np.concatenate([whole(carried["number"]), whole(events["number"])])
        is_event = np.arange(len(number)) >= first
        order = np.lexsort((number, is_event, message))
        self.row, self.number = order, number[order]
        self.base = np.where(order < first, order, NONE)

        def column(of_carried: Any, of_events: Any) -> Any:
            return np.concatenate([of_carried, of_events])[order]

        states = pc.binary_join_element_wise("carried", one(carried["state"]), " ") if first else carried["state"]
        self.kind = column(kinds.numbers_of(one(states)), kinds.numbers_of(one(events["kind"])))
        self.time = column(ms_of(carried["since"]), ms_of(events["time"]))
        self.due = column(np.full(first, NONE), ms_of(events["due"]))
        self.count = column(whole(carried["count"]), whole(events["count"]))
        self.charged = column(np.full(first, NONE), scaled(one(events["charged_ms"]), 10))
        self.ran = column(np.full(first, NONE), scaled(one(events["ran_ms"]), 10))
        self._cut(message[order])

    def __len__(self) -> int:
        """How many jobs there are."""
        return len(self.start)

    def _cut(self, message: Any) -> None:
        """Find where jobs begin: with a message, a redrive, or what comes after an end though it is none."""
        size = len(self.row)
        is_first = np.ones(size, bool)
        is_first[1:] = message[1:] != message[:-1]
        begins = is_first.copy()
        self.acts = np.flatnonzero(~kinds.is_passive(self.kind))
        act = self.kind[self.acts]
        same = np.zeros(len(act), bool)
        same[1:] = message[self.acts][1:] == message[self.acts][:-1]
        after_end = np.zeros(len(act), bool)
        after_end[1:] = same[1:] & kinds.ends(act[:-1])
        begins[self.acts] |= (act == kinds.number_of("redriven")) | after_end
        self.start = np.flatnonzero(begins)
        self.job = np.cumsum(begins) - 1
        self.is_first = is_first[self.start]
        self.is_last = np.ones(len(self.start), bool)
        self.is_last[:-1] = self.is_first[1:]
        self.act_job = self.job[self.acts]
        # Whether one more act of the same job follows an act.
        self.goes_on = np.zeros(len(act), bool)
        self.goes_on[:-1] = self.act_job[1:] == self.act_job[:-1]

    def counts(self, of: Any) -> Any:
        """Return for each job how many of its events are *of* those."""
        return np.bincount(self.job[of], minlength=len(self)).astype(np.int64)

    def total(self, values: Any) -> Any:
        """Return for each job the sum of *values*, without what is `NONE`."""
        return np.bincount(self.job, np.maximum(values, 0), len(self)).astype(np.int64)

    def first(self, of: Any) -> Any:
        """Return for each job the position of its first event *of* those; `NONE` if it has none."""
        size = len(self.row)
        if not size:
            return np.zeros(0, np.int64)
        found = np.minimum.reduceat(np.where(of, np.arange(size), size), self.start)
        return np.where(found == size, NONE, found)

    def last(self, of: Any) -> Any:
        """Return for each job the position of its last event *of* those; `NONE` if it has none."""
        if not len(self.row):
            return np.zeros(0, np.int64)
        return np.maximum.reduceat(np.where(of, np.arange(len(self.row)), NONE), self.start)

    def at(self, values: Any, at: Any) -> Any:
        """Return the value at each position, `NONE` where there is no position."""
        if not len(values):
            return np.full(len(at), NONE)
        return np.where(at < 0, NONE, values[np.maximum(at, 0)])

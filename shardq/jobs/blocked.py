"""How long jobs waited while their tenant was blocked: paused, out of tokens of its rate, or at its cap in flight.

For a tenant there are three measures, each the time for which it was blocked so until a moment. The difference of two
of their values is the time for which a job was blocked while it waited. Their steps are found from the rules that were
in force, from when its jobs were held, and from when they were delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from shardq.jobs.arrays import NONE, ms_of, numbered, one, scaled
from shardq.jobs.rules import ALWAYS, Rule, Rules
from shardq.jobs.schema import OPEN

LATE_MS: Final = 50
"""Ms by which a token may be taken late without being lost, as in lua/base.lua."""
COLUMNS: Final = ("blocked_pause_s", "blocked_rate_s", "blocked_cap_s")
Tenant = tuple[str, str]
"""The id of a queue, and a shard key or parent."""


class BlockedSpan(NamedTuple):
    """The time that the events of a run are of, in ms: after the run before, up to its last event."""

    after: int
    until: int


class Blocking(NamedTuple):
    """The known facts of some queues, by their ids, and when the buckets of tenants are full, in ms."""

    rules: Mapping[str, Rules]
    spans: Mapping[str, BlockedSpan]
    buckets: Mapping[Tenant, float]


def with_blocked(rows: pa.Table, given: Blocking) -> tuple[pa.Table, dict[Tenant, float]]:
    """Return *rows* of the pivot with how long each was blocked, and its plan; and when the buckets are full now.

    All rows of a tenant must be among these, those of other tenants need not.
    """
    added = np.zeros((len(COLUMNS), len(rows)))
    plans = np.full(len(rows), None, object)
    buckets = dict(given.buckets)
    waited, held = _stretches(rows, "waited"), _stretches(rows, "held")
    ended = ms_of(one(rows["ended_at"]))
    for (queue_id, name), at in _tenants(rows, given.rules):
        rules, span = given.rules[queue_id], given.spans[queue_id]
        if name is None:
            continue
        tenant = _Tenant(rules.of(name), span, held.of(at), given.buckets.get((queue_id, name), 0))
        added[:, at] = tenant.blocked(waited, at)
        _keep(buckets, (queue_id, name), tenant.full_at, span)
        if any(rule.plan for rule in rules.of(name)):
            plans[at] = [rules.plan_at(name, span.until if each < 0 else each) for each in ended[at].tolist()]
    table = rows.select(OPEN.names)
    for number, name in enumerate(COLUMNS):
        before = scaled(one(rows[name]), 1000)
        table = table.set_column(OPEN.get_field_index(name), name, pa.array((before + added[number]) / 1000))
    is_dead = pc.equal(rows["state"], "dead")
    plan = pc.if_else(is_dead, one(rows["plan"]), pa.array(plans.tolist(), pa.string()))
    return table.set_column(OPEN.get_field_index("plan"), "plan", plan).cast(OPEN), buckets


def _keep(buckets: dict[Tenant, float], tenant: Tenant, full_at: float, span: BlockedSpan) -> None:
    buckets.pop(tenant, None)
    if full_at > span.until:
        buckets[tenant] = full_at


def _tenants(rows: pa.Table, rules: Mapping[str, Rules]) -> Iterator[tuple[tuple[str, str | None], Any]]:
    """The tenants that may have been blocked by something, with the positions of their rows."""
    if not len(rows):
        return
    number = numbered(rows["queue_id"], rows["parent"])
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(number[order]) != 0])
    firsts = rows.select(["queue_id", "parent"]).take(pa.array(order[starts])).to_pylist()
    named = {queue_id: each.named() for queue_id, each in rules.items()}
    for start, end, first in zip(starts, [*starts[1:], len(order)], firsts, strict=True):
        queue_id, name = first["queue_id"], first["parent"]
        if queue_id in rules and (rules[queue_id].are_for_all() or name in named[queue_id]):
            yield (queue_id, name), order[start:end]


class _Stretches(NamedTuple):
    """Stretches of time of rows: those of row 3 are from offsets[3] to offsets[4]."""

    offsets: Any
    start: Any
    end: Any

    def of(self, rows: Any) -> tuple[Any, Any]:
        """Return from when and until when the stretches of these rows were."""
        _, where = self.numbered(rows)
        return self.start[where], self.end[where]

    def numbered(self, rows: Any) -> tuple[Any, Any]:
        """Return of each stretch of these rows which of them it is of, and its position."""
        sizes = self.offsets[rows + 1] - self.offsets[rows]
        which = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return which, self.offsets[rows][which] + within


def _stretches(rows: pa.Table, name: str) -> _Stretches:
    column = one(rows[name])
    offsets = np.asarray(column.offsets) // 2
    values = np.asarray(column.values, np.int64) if len(column.values) else np.zeros(0, np.int64)
    return _Stretches(offsets, values[0::2], values[1::2])


class _Tenant:
    """When one tenant was blocked, by what was delivered to it and held."""

    def __init__(self, rules: list[Rule], span: BlockedSpan, held: tuple[Any, Any], full_at: float) -> None:
        self.span, self.full_at = span, full_at
        start, end = held
        end = np.where(end == NONE, ALWAYS, end)
        self.pieces = _pieces(rules, span)
        edges = [[span.after, span.until], [piece.since for piece, _ in self.pieces], start, end]
        delivered = np.sort(start[start > span.after])
        empty = self._empty(delivered)
        moments = np.concatenate([*edges, *empty]).astype(float)
        self.edges = np.unique(moments[(moments >= span.after) & (moments <= span.until)])
        left = self.edges[:-1]
        is_paused, is_full = self._paused(left), self._at_cap(left, np.sort(start), np.sort(end))
        is_empty = _within(left, *empty)
        flags = (is_paused, is_empty & ~is_paused, is_full & ~is_paused & ~is_empty)
        lengths = np.diff(self.edges)
        self.measures = [np.concatenate([[0.0], np.cumsum(lengths * flag)]) for flag in flags]

    def _rule(self, moments: Any) -> Any:
        """Return the number of the piece that each moment is in."""
        return np.searchsorted([piece.since for piece, _ in self.pieces], moments, "right") - 1

    def _paused(self, moments: Any) -> Any:
        return np.array([piece.paused for piece, _ in self.pieces])[self._rule(moments)]

    def _at_cap(self, moments: Any, starts: Any, ends: Any) -> Any:
        flight = np.searchsorted(starts, moments, "right") - np.searchsorted(ends, moments, "right")
        caps = np.array([piece.cap for piece, _ in self.pieces])[self._rule(moments)]
        return (caps > 0) & (flight + 1 > caps)

    def _empty(self, delivered: Any) -> tuple[Any, Any]:
        """Return from when and until when there was no token: a bucket is one moment, when it is full (lua/limits.lua).

        It is full after a token is taken: an interval after it was to be full, or after now, whichever is later.
        """
        starts, ends = [], []
        for piece, until in self.pieces:
            if not piece.rate:
                self.full_at = 0.0
                continue
            interval = 1000 / piece.rate
            late, spare = min(LATE_MS, interval), (piece.burst - 1) * interval
            self.full_at = min(self.full_at, piece.since + piece.burst * interval)
            taken = delivered[(delivered >= piece.since) & (delivered < until)]
            steps = np.arange(len(taken)) * interval
            first = np.maximum.accumulate(np.maximum(taken - late - steps, self.full_at))
            full = first + steps + interval
            starts.append(np.r_[piece.since, taken])
            ends.append(np.minimum(np.ceil(np.r_[self.full_at, full] - spare), until))
            self.full_at = float(full[-1]) if len(full) else self.full_at
        return (np.concatenate(starts), np.concatenate(ends)) if starts else (np.zeros(0), np.zeros(0))

    def blocked(self, waited: _Stretches, rows: Any) -> Any:
        """Return for how many ms each of these rows was blocked, by pause, rate and cap."""
        which, where = waited.numbered(rows)
        span = self.span
        end = np.where(waited.end[where] == NONE, span.until, waited.end[where])
        start, end = (np.clip(each, span.after, span.until) for each in (waited.start[where], end))
        found = [np.interp(end, self.edges, each) - np.interp(start, self.edges, each) for each in self.measures]
        return np.stack([np.bincount(which, np.rint(each), len(rows)) for each in found])


def _pieces(rules: list[Rule], span: BlockedSpan) -> list[tuple[Rule, int]]:
    """The rules that were in force in a span, and until when each was; the first begins with the span."""
    ends = [*(rule.since for rule in rules[1:]), ALWAYS]
    found = [(rule, end) for rule, end in zip(rules, ends, strict=True) if end > span.after]
    first, end = found[0]
    return [(first._replace(since=max(first.since, span.after)), end), *found[1:]]


def _within(moments: Any, starts: Any, ends: Any) -> Any:
    """Return which moments are in one of some intervals."""
    starts, ends = np.sort(starts), np.sort(np.maximum(starts, ends))
    return np.searchsorted(starts, moments, "right") > np.searchsorted(ends, moments, "right")


def buckets_of(table: pa.Table) -> dict[Tenant, float]:
    """Return when buckets are full, by their tenants."""
    return {(row["queue_id"], row["key"]): row["full_at"] for row in table.to_pylist()}


BUCKETS: Final = pa.schema([("queue_id", pa.string()), ("key", pa.string()), ("full_at", pa.float64())])
"""When the bucket of a tenant with a rate is full again, in ms, where that is after the run."""


def bucket_table(buckets: Mapping[Tenant, float]) -> pa.Table:
    """Return them as a table."""
    rows = [{"queue_id": key[0], "key": key[1], "full_at": full_at} for key, full_at in sorted(buckets.items())]
    return pa.Table.from_pylist(rows, schema=BUCKETS)

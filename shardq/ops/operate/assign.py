"""Store shards for named shard keys with the queue, so that any two of these shards share few streams.

`shardq.assignment.Assignment` chooses the shards in this process. One script then stores them, if the queue still has
the epoch that they were chosen for. If another client resized the queue or assigned shards meanwhile, nothing is
stored, and the shards are chosen again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from shardq.assignment import Assignment
from shardq.errors import BackendTimeout, ConfigError
from shardq.ops.queue.change import check_replicas
from shardq.ops.queue.opening import new_epoch, reopen, require_queue
from shardq.ops.queue.outcome import in_doubt, told_after
from shardq.ops.queue.retry import Same, always, retry_replicated, retry_until
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op, Sleep
from shardq.ops.queue.view import QueueView
from shardq.protocol.bodies import text_or_bytes
from shardq.protocol.replies import stored_assignment
from shardq.sharding import check_names

MAX_ASSIGNED: Final = 10_000
"""A queue stores the shards of a bounded number of shard keys, since each client keeps all of them in memory."""

Shards = Mapping[bytes, tuple[int, ...]]


def assignment(state: QueueState, timeout: float | None = None) -> Op[Assignment]:
    """Return the stored assignment, without shard keys if none is stored. It only reads. ConfigError if damaged."""
    until = state.until(timeout)
    view = (yield from sight(state, until)).view
    call = Call.on(state.keys, "assignment")  # sight does not read what it knows already, so it may be damaged since
    stored = stored_assignment((yield from retry_until(always(call), until, state.clock)))
    return _checked_assignment(view, stored.by_key)


def assign(
    state: QueueState, names: Iterable[str | bytes], max_overlap: int | None = None, timeout: float | None = None
) -> Op[Assignment]:
    """Store a shard for each of *names* that has none, and return the whole assignment."""
    wanted, until, doubt = check_names(names, MAX_ASSIGNED), state.until(timeout), False
    while True:
        yield from in_doubt(doubt, require_queue(state, until))
        view = state.view
        known, planned = view.assigned, _checked_assignment(view, view.assigned.by_key, max_overlap)
        new = [name for name in wanted if name not in planned]
        if len(planned) + len(new) > MAX_ASSIGNED:
            raise ConfigError(
                f"a queue stores shards of at most {MAX_ASSIGNED:,} shard keys: name those that need them"
            )
        yield from in_doubt(doubt, _add_all(state, planned, new, until))
        # Nothing to store: the assignment has all names, by the same rule.
        same = planned.max_overlap == known.max_overlap or not len(planned)
        if same and not new:
            return planned
        stored = yield from in_doubt(doubt, _store(state, view.epoch, planned, (), new, until))
        if stored.done:
            return planned
        doubt = doubt or stored.doubt


def unassign(
    state: QueueState, names: Iterable[str | bytes] | None = None, timeout: float | None = None
) -> Op[Assignment]:
    """Remove the stored shards of *names*, or of all shard keys if None. Return the assignment that remains."""
    chosen, until = None if names is None else check_names(names, MAX_ASSIGNED), state.until(timeout)
    doubt = False
    while True:
        yield from in_doubt(doubt, require_queue(state, until))
        view = state.view
        known = view.assigned.by_key
        removed = known.keys() if chosen is None else known.keys() & chosen
        remaining = _checked_assignment(view, {key: shard for key, shard in known.items() if key not in removed})
        if not removed:
            return remaining
        stored = yield from in_doubt(doubt, _store(state, view.epoch, remaining, removed, (), until))
        if stored.done:
            return remaining
        doubt = doubt or stored.doubt


def shrink_refused(state: QueueState, streams: int) -> ConfigError:
    """Return the error that says which stored shards keep the queue from shrinking to *streams* streams."""
    above = sorted(key for key, shard in state.assigned.by_key.items() if max(shard) >= streams)
    shown = ", ".join(repr(text_or_bytes(key)) for key in above[:3]) + (", ..." if len(above) > 3 else "")
    return ConfigError(
        f"queue {state.keys.name!r} cannot shrink to {streams:,} streams: {len(above):,} assigned shard keys have "
        f"streams beyond that ({shown}). unassign() them, resize(), then assign() them again"
    )


def _checked_assignment(view: QueueView, known: Shards, max_overlap: int | None = None) -> Assignment:
    """Return the stored shards *known* as an `Assignment` to extend. ConfigError if they break its rules."""
    rule, streams = view.assigned, view.wanted
    width = rule.width if known else min(streams, view.config.streams_per_shard)
    if max_overlap is None:
        max_overlap = rule.max_overlap if known else min(1, width - 1)
    shards: dict[str | bytes, tuple[int, ...]] = {text_or_bytes(key): known[key] for key in sorted(known)}
    return Assignment.of(shards, streams, width, max_overlap=max_overlap)


def _add_all(state: QueueState, planned: Assignment, new: Iterable[bytes], until: float) -> Op[None]:
    """Choose a shard for each of *new*. One may take milliseconds, so other tasks may run between two of them."""
    for name in new:
        planned.add(name)
        yield Sleep(0)
        if state.clock.monotonic() > until:
            raise BackendTimeout(
                f"the time was not enough to find shards for all names ({len(planned):,} have one); nothing was changed"
            )


class StoredWeight(NamedTuple):
    """Whether the shards are stored. If not, the queue has another epoch, and `doubt` says that a try may be stored."""

    done: bool
    doubt: bool


def _store(
    state: QueueState, epoch: str, planned: Assignment, removed: Collection[bytes], new: Iterable[bytes], until: float
) -> Op[StoredWeight]:
    """Store the changed shards, if the queue still has the epoch that they were chosen for."""
    rule = f"{planned.max_overlap}|{planned.width}" if len(planned) else ""
    # A resize to fewer streams than this is refused, without a look at the shards.
    reach = max((max(shard) + 1 for _, shard in planned.items()), default=0)
    args: list[Argument] = [epoch, new_epoch(), rule, reach, len(removed), *removed]
    for name in new:
        args += (name, ",".join(map(str, planned[name])))
    call = Same(Call.on(state.keys, "assign", tuple(args), replicas=state.durability.replicas))
    reply, underreplicated = yield from retry_replicated(call, until, state.clock)
    if reply != b"OK":
        return StoredWeight(False, call.repeated)
    yield from told_after("the shards were stored", reopen(state, until))
    check_replicas(state, underreplicated, planned)
    return StoredWeight(True, False)

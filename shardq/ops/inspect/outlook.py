"""The fate of waiting messages, and the queue's state in one sentence: ask for the facts, in a few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from shardq.errors import BackendError, BackendTimeout
from shardq.model import QueueStats
from shardq.model.minute import Minute
from shardq.model.outlook import Outlook
from shardq.model.verdict import Verdict
from shardq.model.waiter import Waiters
from shardq.model.worker_status import WorkerStatus
from shardq.ops.inspect import beats
from shardq.ops.inspect.failures import failures
from shardq.ops.inspect.stats import numbers, statistics
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Sleep
from shardq.outlook import together
from shardq.outlook.facts import Facts, ServerMemory
from shardq.outlook.outlook import outlook_of
from shardq.outlook.server import memory_of
from shardq.outlook.verdict import verdict_of
from shardq.protocol.beats import workers_of
from shardq.protocol.bodies import text_or_bytes
from shardq.protocol.waiters import waiters_of
from shardq.sharding import key_bytes

T = TypeVar("T")

MINUTES: Final = 30
"""Minutes before this one whose past is known."""
PAGES: Final = 4
WORKERS_A_PAGE: Final = 100
"""Workers that each call looks at, of a bounded number of calls; the others are taken to be like those."""
SILENT_AFTER: Final = 30.0
"""Seconds after which nobody reads who was not heard."""
SLICE: Final = 5.0
"""Seconds that a reader is blocked at most before it is heard again."""
GLANCE: Final = 0.05
"""Seconds between two looks at what was delivered, where it seems that nobody reads."""


def outlook(state: QueueState, shard_key: str | bytes | None = None, timeout: float | None = None) -> Op[Outlook]:
    """Return the fate of waiting messages, for a *shard_key* in any case. QueueMissing as of `require_settings`."""
    return outlook_of((yield from facts(state, state.until(timeout), shard_key)))


def facts_beside(
    state: QueueState,
    stats: QueueStats,
    before: QueueStats | None,
    timeout: float | None = None,
    minutes: tuple[Minute, ...] | None = None,
) -> Op[Facts]:
    """Return the facts that an outlook is reckoned from, with *stats* that were asked for just now.

    *before* are those of a moment earlier, if there are any: the deliveries since then show whether somebody reads.
    """
    found = yield from _facts_of(state, stats, state.until(timeout), minutes=minutes)
    if before is not None and _may_be_read(found):
        found = replace(found, is_read=_has_delivered(before, stats))
    return found


def verdict(state: QueueState, timeout: float | None = None) -> Op[Verdict]:
    """Return how the queue is, in one sentence. QueueMissing as of `outlook`."""
    until = state.until(timeout)
    found = yield from _with_failures(state, (yield from facts(state, until)), until)
    return verdict_of(found, outlook_of(found))


class KnownWorkers(NamedTuple):
    """Facts of a queue, or of its server, that are known already and are not asked for again."""

    minutes: tuple[Minute, ...]
    memory: ServerMemory | None


def everything(
    state: QueueState, before: QueueStats | None = None, timeout: float | None = None, known: KnownWorkers | None = None
) -> Op[Facts]:
    """Return what both an outlook and a verdict are reckoned from. *before* as of `facts_beside`."""
    until = state.until(timeout)
    minutes = None if known is None else known.minutes
    if before is None:
        found = yield from facts(state, until, minutes=minutes)
    else:
        stats = yield from _stats(state, until)
        found = yield from facts_beside(state, stats, before, _left(state, until), minutes)
    return (yield from _with_failures(state, found, until, known))


def _with_failures(state: QueueState, found: Facts, until: float, known: KnownWorkers | None = None) -> Op[Facts]:
    fails = yield from _of_all(state, lambda part: failures(part, _left(part, until)), together.failures)
    memory = (yield from memory_of_node(state, until)) if known is None else known.memory
    return replace(found, failures=tuple(fails), memory=memory)


def facts(
    state: QueueState,
    until: float,
    shard_key: str | bytes | None = None,
    minutes: tuple[Minute, ...] | None = None,
) -> Op[Facts]:
    """Ask for all that an outlook is reckoned from, and for what one *shard_key* has if that is given.

    *minutes* are the last ones, if they are known.
    """
    names = () if shard_key is None else (key_bytes(shard_key),)
    stats = yield from _stats(state, until)
    found = yield from _facts_of(state, stats, until, names, minutes)
    if _may_be_read(found):
        yield Sleep(GLANCE)
        soon = yield from _of_all(state, lambda part: numbers(part, _left(part, until)), together.statistics)
        found = replace(found, is_read=_has_delivered(stats, soon))
    return found


def with_tenants(state: QueueState, before: Facts, names: Sequence[bytes], timeout: float | None = None) -> Op[Facts]:
    """Return the facts of *before*, with the present numbers of those that wait: *names* (at most 50) in any case.

    It takes one call.
    """
    waiters = yield from _who_waits(state, names, state.until(timeout), before.waiters)
    return replace(before, waiters=waiters, asked=tuple(map(text_or_bytes, names)))


def _who_waits(state: QueueState, names: Sequence[bytes], until: float, unknown: Waiters) -> Op[Waiters]:
    """Return the tenants that wait; *unknown* if there is no queue."""

    def of_part(part: QueueState) -> Op[Waiters]:
        call = always(Call.on(part.keys, "outlook", tuple(names)))
        reply: Any = yield from retry_until(call, until, part.clock)
        return waiters_of(reply) if reply else unknown

    return (yield from _of_all(state, of_part, together.waiters))


def last_minutes(state: QueueState, until: float) -> Op[tuple[Minute, ...]]:
    """Return the last minutes, as many as an outlook looks at."""
    return tuple((yield from beats.history(state, MINUTES, _left(state, until))))


def _facts_of(
    state: QueueState,
    stats: QueueStats,
    until: float,
    names: Sequence[bytes] = (),
    minutes: tuple[Minute, ...] | None = None,
) -> Op[Facts]:
    waiters = yield from _who_waits(state, names, until, Waiters(time=stats.time))
    past = (yield from last_minutes(state, until)) if minutes is None else minutes
    workers, are_all = yield from _workers(state, until)
    working = sum(each.state == "working" for each in workers)
    factor = 1.0 if are_all or not past or not working else max(1.0, past[-1].workers / working)
    found = Facts(stats, waiters, workers, factor, past, asked=tuple(map(text_or_bytes, names)))
    return _with_readers(found, _all_ended_at(workers) if are_all else None)


def _workers(state: QueueState, until: float) -> Op[tuple[tuple[WorkerStatus, ...], bool]]:
    """Return workers of the queue, and whether these are all."""
    found: dict[str, WorkerStatus] = {}
    cursor = "0"
    for _ in range(PAGES):
        call = Call.on(state.keys, "workers", (cursor, WORKERS_A_PAGE))
        reply = yield from retry_until(always(call), until, state.clock)
        if len(reply) == 1:
            break
        found |= {each.id: each for each in workers_of(state.keys.name, int(reply[0]) / 1000, reply[2])}
        cursor = reply[1].decode()
        if cursor == "0":
            break
    return tuple(found.values()), cursor == "0"


def _of_all(state: QueueState, op: Callable[[QueueState], Op[T]], unite: Callable[[Sequence[T]], T]) -> Op[T]:
    """Return the result of *op* for a queue; where it has partitions, *unite* makes one of those of each.

    It says nothing of those that are gone: `partitions` lists them.
    """
    if state.parts is None:
        return (yield from op(state))
    return unite((yield from state.parts.around(op)))


def _stats(state: QueueState, until: float) -> Op[QueueStats]:
    return (yield from _of_all(state, lambda part: statistics(part, _left(part, until)), together.statistics))


def _left(state: QueueState, until: float) -> float:
    return max(0.0, until - state.clock.monotonic())


def _all_ended_at(workers: tuple[WorkerStatus, ...]) -> float | None:
    """Return when the last worker was heard, if it ended in order and none works."""
    last = max(workers, key=lambda each: each.heard, default=None)
    if last is None or last.state != "ended" or any(each.state == "working" for each in workers):
        return None
    return last.heard


def _with_readers(found: Facts, ended: float | None) -> Facts:
    """Note whether somebody reads who does not tell of itself, and when somebody did last."""
    seen = _seen_reading(found, ended)
    last = max((each for each in (*seen, *(each.heard for each in found.workers)) if each <= found.now), default=None)
    return replace(found, is_read=any(found.now - each < SILENT_AFTER for each in seen), last_read=last)


def _seen_reading(found: Facts, ended: float | None) -> list[float]:
    """Return when somebody was certainly there: a blocked reader, and the holder of the lease that ends last.

    All workers had *ended* in order by that time, if it is given. A reader that was blocked before may have been one of
    them.
    """
    waiters = found.waiters
    # A reader stays for a slice at most, and is noted for two. It was there when it was noted, and may have died right
    # then. A moment to come was noted before the clock was set back. Another reader than the workers comes again after
    # each slice, unless it holds a lease.
    came = waiters.blocked_until - 2 * SLICE
    seen = [came] if waiters.blocked_until > 0 and came <= found.now and (ended is None or came > ended) else []
    if waiters.last_lease_end is not None:
        leased = waiters.last_lease_end - waiters.visibility_timeout
        # A lease that is longer than the setting tells of no moment. Then those that tell of themselves count.
        if leased <= found.now or not found.workers:
            seen.append(min(found.now, leased))
    return seen


def _may_be_read(found: Facts) -> bool:
    """Say whether a reader may have been overlooked: a quick one may have had nothing in its hands at that moment."""
    return not found.has_reader and bool(found.stats.runnable)


def _has_delivered(before: QueueStats, after: QueueStats) -> bool:
    return after.delivered > before.delivered or after.acked > before.acked


def memory_of_node(state: QueueState, until: float) -> Op[ServerMemory | None]:
    """Return the memory of the node that has the queue, the fullest if there are several; None if none says it."""
    return (yield from _of_all(state, lambda part: _memory(part, until), together.memory))


def _memory(state: QueueState, until: float) -> Op[ServerMemory | None]:
    try:
        info = yield from ask(state, "INFO", "memory", "errorstats", key=state.keys.meta, until=until)
    except BackendTimeout:
        raise
    except BackendError:
        return None  # managed services, or a user without the right
    return memory_of(info) if isinstance(info, bytes) else None

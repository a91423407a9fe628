"""The schedules of a queue with partitions: each is stored, and its calls are written, in the home of its shard key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from shardq.errors import ScheduleNotFound
from shardq.model import Written
from shardq.model.schedule import Schedule
from shardq.ops.queue.outcome import outcome_of, told_after
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.together import run_together
from shardq.ops.queue.who import Who
from shardq.ops.schedules import stored
from shardq.ops.write.write import placed_ids
from shardq.partitions.parts import Parts, all_of
from shardq.partitions.ways import Way, changed, everywhere
from shardq.protocol.ids import with_partition


def _add(
    parts: Parts,
    name: str,
    payload: Any,
    shard_key: str | bytes,
    cron: str | None,
    tz: str,
    every: int | None,
    catch_up: str,
    paused: bool,
    timeout: float | None,
) -> Op[Schedule]:
    """Store a schedule in the home of its shard key. One of this name that was another shard key's goes."""
    home = parts.home_of(shard_key)
    op = stored.add(home, parts.codecs, name, payload, shard_key, cron, tz, every, catch_up, paused, timeout)
    found = yield from op
    yield from told_after("the schedule was stored", _removed(parts, home, name, timeout))
    return found


def _removed(parts: Parts, home: QueueState, name: str, timeout: float | None) -> Op[None]:
    """Remove a schedule from all partitions but its *home*."""
    others = [state for state in parts.states if state is not home]
    ops = [parts.unless_removed(state, stored.remove(state, name, timeout), False) for state in others]
    all_of((yield from run_together(ops)))


def _pause(parts: Parts, name: str, timeout: float | None, *, paused: bool) -> Op[None]:
    yield from parts.change(lambda state: stored.pause(state, name, paused, timeout), ScheduleNotFound)


def _run(parts: Parts, name: str, timeout: float | None, who: Who) -> Op[Written]:
    """Write the call where the schedule is stored: as long as that is there, it is read."""
    found: Any = None
    for state in parts.states:
        outcome = yield from outcome_of(parts.unless_removed(state, stored.run(state, name, timeout, who), None))
        if outcome is not None and not isinstance(found := outcome, ScheduleNotFound):
            break
    (written,) = all_of(placed_ids([found], state.number))
    return written


def _listed(found: Sequence[Sequence[Schedule]]) -> list[Schedule]:
    """Return all schedules by their names, with the ids of their calls as users know them."""
    by_name: dict[str, Schedule] = {}
    for number, some in enumerate(found):
        for each in some:
            runs = [replace(run, message_id=with_partition(run.message_id, number)) for run in each.runs]
            by_name.setdefault(each.name, replace(each, runs=tuple(runs)))
    return [by_name[name] for name in sorted(by_name)]


_ADDED: Final = "name", "payload", "shard_key", "cron", "tz", "every", "catch_up", "paused", "timeout"

SCHEDULES: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "add": Way(_add, _ADDED, opens=True),
        "list": everywhere(stored.listed, "timeout", _listed),
        "pause": Way(lambda *given: _pause(*given, paused=True), ("name", "timeout")),
        "remove": changed(stored.remove, "name timeout", any),
        "resume": Way(lambda *given: _pause(*given, paused=False), ("name", "timeout")),
        "run": Way(_run, ("name", "timeout", "who")),
    }
)
"""The way of each method of schedules."""

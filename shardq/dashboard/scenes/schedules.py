"""Schedules: the next runs, the late ones and why, and the outcome of the last runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from shardq.dashboard import numbers
from shardq.dashboard.fitting import fitted
from shardq.dashboard.marked import cut, here, said, toned
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.source import SceneSource
from shardq.errors import BackendError, MessageNotFound, ShardqError
from shardq.model.schedule import Schedule
from shardq.model.status import MessageStatus
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Parts
from shardq.outlook.timely import became, heading, why_late

MAX_SCHEDULES: Final = 100
"""Schedules that are shown: those that come next."""
MAX_IN_FULL: Final = 20
"""Schedules whose last calls are all looked up; for the others it is the last one."""
MAX_RUNS: Final = 8
"""Calls of a schedule that are looked up."""
SETTLED: Final = 300.0
"""Seconds for which it is not asked again what became of a call that is settled."""
MAX_NAME: Final = 200
"""Letters of the name of a task."""
MAX_TOLD: Final = 3
"""Queues whose late schedules are explained below the heading."""


class StoredSchedules(NamedTuple):
    """A schedule, and in which queue it is stored."""

    queue: str
    schedule: Schedule


async def schedules(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return the schedules that queues store, the next first."""
    if asked.parts:
        raise NotThere("Schedules are those of all queues.")
    names = (await numbers.queues(source))[: numbers.MAX_QUEUES]
    unreadable: dict[str, str] = {}
    by_queue = await numbers.of_each(names, lambda name: _stored(source, name, unreadable))
    found = [StoredSchedules(queue, each) for queue, listed in by_queue.items() for each in listed]
    used = [queue for queue, listed in by_queue.items() if listed]
    stats = await numbers.of_each(used, lambda name: numbers.stats(source, name, numbers.CALM_FRESH_SECONDS))
    now = max((each.time for each in stats.values()), default=0.0)
    late = {name: why for name, why in (await numbers.of_each(used, lambda name: _late(source, name))).items() if why}
    found.sort(key=lambda each: (each.schedule.next or float("inf"), each.queue, each.schedule.name))
    is_late = [each for each in found if each.queue in late and not each.schedule.paused]
    shown = found[:MAX_SCHEDULES]
    runs = [await _runs(source, each, now, MAX_RUNS if at < MAX_IN_FULL else 1) for at, each in enumerate(shown)]
    failed = [each.schedule.name for each, its in zip(shown, runs, strict=True) if its and its[-1]["kind"] == "failed"]
    line = heading([each.schedule for each in found], len(is_late), failed, now)
    if found:
        line = toned(line, "warn", "schedule", "schedules")
    tone = "bad" if failed else "warn" if is_late or unreadable else "good"
    scene = {
        "said": said(line, tone, _more(is_late, late, unreadable, bool(found))),
        "now": now,
        "schedules": [_row(each, late.get(each.queue, ""), its) for each, its in zip(shown, runs, strict=True)],
        "more": max(0, len(found) - MAX_SCHEDULES),
    }
    return fitted(scene, {"schedules": "more"})


async def _stored(source: SceneSource, name: str, unreadable: dict[str, str]) -> list[Schedule]:
    """Return what a queue stores. Schedules that this process cannot read (cron lines need an extra) are named."""
    try:
        return await numbers.stored(source, name)
    except BackendError:
        raise
    except ShardqError as error:
        unreadable[name] = str(error)
        return []


async def _late(source: SceneSource, name: str) -> str:
    """Say why calls of this queue's schedules will be late; '' if they will not."""
    verdict = await numbers.verdict(source, name, numbers.CALM_FRESH_SECONDS)
    return why_late(name, verdict, await numbers.outlook(source, name, numbers.CALM_FRESH_SECONDS))


def _more(is_late: list[StoredSchedules], late: dict[str, str], unreadable: dict[str, str], are_any: bool) -> Parts:
    """Return what stands below the heading: why some are late, and what is not among them."""
    parts: Parts = []
    told = [*dict.fromkeys(each.queue for each in is_late)][:MAX_TOLD]
    for queue in told:
        why = late[queue]
        parts.append(f"{why[0].upper()}{why[1:]}. ")
    for queue, problem in [*unreadable.items()][:MAX_TOLD]:
        parts.append(f"Those of {queue} cannot be read here: {cut(problem, MAX_NAME)}. ")
    if not are_any:
        parts.append(
            "A queue stores some if its max_schedules says how many. Those that a program declares are not shown."
        )
    return parts


async def _runs(source: SceneSource, stored: StoredSchedules, now: float, most: int) -> list[dict[str, Any]]:
    """Return what became of the last calls that were due, the newest last."""
    due = [run for run in stored.schedule.runs if run.slot <= now][-most:]
    found = []
    for run in due:
        try:
            status = await numbers.allowed(_status(source, stored.queue, run.message_id))
        except MessageNotFound:  # another program wrote that id
            continue
        if status is not None:
            kind, text = became(status)
            found.append({"slot": run.slot, "id": run.message_id, "kind": kind, "text": text})
    return found


async def _status(source: SceneSource, queue: str, message_id: str) -> MessageStatus:
    """Return where a call is. A settled call stays so."""
    question = ("status", queue, message_id)
    last: MessageStatus | None = source.last(question)
    fresh = SETTLED if last and last.state in ("done", "unknown") else numbers.CALM_FRESH_SECONDS
    ask = source.client.queue(queue, create=False).status
    return await source.shared(question, lambda: ask(message_id), fresh=fresh)


def _row(stored: StoredSchedules, late: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    each = stored.schedule
    key = each.shard_key
    return {
        "key": f"{stored.queue}/{each.name}",
        "queue": stored.queue,
        "to": here(stored.queue),
        "name": each.name,
        "task": cut(each.task, MAX_NAME),
        "tenant": name_of(key),
        "when": each.when,
        "catch_up": each.catch_up,
        "paused": each.paused,
        "next": each.next,
        "written": each.last,
        "late": "" if each.paused else late,
        "last": runs[-1] if runs else None,
        "runs": [run["kind"] for run in runs],
        "wait": sum(run["kind"] == "waits" for run in runs),
    }

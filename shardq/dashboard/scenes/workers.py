"""Workers: their work, the stuck and the gone ones, and queues that nobody reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.fitting import fitted
from shardq.dashboard.marked import cut, here, said, toned
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.source import FRESH_SECONDS, SceneSource
from shardq.model.stats import QueueStats
from shardq.model.wording import plural, span
from shardq.model.worker_status import WorkerStatus
from shardq.ops.inspect.beats import in_order
from shardq.outlook.crew import LONG_JOB_SECONDS, Worker, busy_of, heading, longest_of, memory_of, slots_of, usual
from shardq.outlook.crew import workers as of_all_queues
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Bold, Parts

MAX_WORKERS: Final = 60
"""Workers that are shown: those with a job that takes unusually long, then those that work most."""
MAX_QUEUES: Final = 60
"""Queues that are shown: those that nobody reads first."""
MAX_GONE: Final = 20
"""Workers that are gone that are shown: those that were heard last."""
MAX_NAMED: Final = 5
"""Queues that are named of one worker."""
MAX_TOLD: Final = 3
"""Long jobs that are named below the heading."""
MAX_NAME: Final = 100
"""Letters of a name in a row."""
UNUSUAL_FACTOR: Final = 2.0
"""A job is unusually long if it lasts longer than what is usual for its task times this factor."""
MANY_QUEUES: Final = 20
"""Queues from which on each is asked less often."""


async def workers(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return who works, who reads what, and who is gone since an hour."""
    if asked.parts:
        raise NotThere("Workers are those of all queues.")
    names = (await numbers.queues(source))[: numbers.MAX_QUEUES]
    pace = numbers.CALM_FRESH_SECONDS if len(names) > MANY_QUEUES else FRESH_SECONDS
    told = await numbers.of_each(names, lambda name: numbers.workers(source, name, max(5.0, pace)))
    found = of_all_queues(in_order([each for statuses in told.values() for each in statuses]))
    stats = await numbers.of_each(names, lambda name: numbers.stats(source, name, pace))
    now = max((each.time for each in stats.values()), default=max((_heard(each) for each in found), default=0.0))
    working = [each for each in found if each[0].state == "working"]
    unread = await _unread(source, names, working, pace)
    usually = await _usual(source, working, now)
    rows = sorted((_row(each, now, usually) for each in working), key=lambda row: -row["unusual"])
    left = sorted((each for each in found if each[0].state != "working"), key=lambda each: -_heard(each))
    scene = {
        "said": said(_heading(found, unread), _tone(found, unread, names), _more(rows, working)),
        "now": now,
        "workers": rows[:MAX_WORKERS],
        "more": max(0, len(rows) - MAX_WORKERS),
        "queues": (read := _reading(names, working, stats, unread))[:MAX_QUEUES],
        "more_queues": max(0, len(read) - MAX_QUEUES),
        "gone": [_gone(each) for each in left[:MAX_GONE]],
        "more_gone": max(0, len(left) - MAX_GONE),
    }
    return fitted(scene, {"workers": "more", "queues": "more_queues", "gone": "more_gone"})


def _heard(worker: Worker) -> float:
    return max(each.heard for each in worker)


def _heading(found: Sequence[Worker], unread: Sequence[str]) -> Parts:
    """Return the sentence. That nobody works is bad news only where something waits for that."""
    line = heading(found, unread)
    return toned(line, "bad", "No worker") if unread else line


def _tone(found: Sequence[Worker], unread: Sequence[str], names: Sequence[str]) -> str:
    if unread:
        return "bad"
    return "good" if not names or any(each[0].state == "working" for each in found) else "warn"


def _more(rows: Sequence[Mapping[str, Any]], working: Sequence[Worker]) -> Parts:
    """Return what stands below the heading: jobs that take unusually long, and versions that differ."""
    parts: Parts = []
    for row in [each for each in rows if each["unusual"]][:MAX_TOLD]:
        times = f", {row['times']:.0f} times its usual time" if row["times"] else ""
        kind = f"one {name_of(row['task'])}" if row["task"] else "one message"
        parts += [Bold(name_of(row["id"])), f" works on {kind} for {span(row['longest'])}{times}. "]
    versions = sorted({each[0].version for each in working})
    if len(versions) > 1:
        parts.append(f"They are of {plural(len(versions), 'version')}: {', '.join(map(name_of, versions[:3]))}.")
    return parts


async def _unread(source: SceneSource, names: Sequence[str], working: Sequence[Worker], pace: float) -> list[str]:
    """Return the queues in which messages wait that nobody reads, as the verdict of each says."""
    read = {each.queue for worker in working for each in worker}
    others = [name for name in names if name not in read]
    found = await numbers.of_each(others, lambda name: numbers.is_unread(source, name, pace))
    return [name for name, is_unread in found.items() if is_unread]


async def _usual(source: SceneSource, working: Sequence[Worker], now: float) -> dict[tuple[str, str], float]:
    """Return how long jobs usually take, for those tasks with a job that runs for long, by queue and task."""
    long = [job[0] for worker in working if (job := longest_of(worker, now)) and job[1] > LONG_JOB_SECONDS]
    queues = sorted({each.queue for each in long})[:MAX_QUEUES]
    minutes = await numbers.of_each(queues, lambda name: numbers.history(source, name))
    told = {(each.queue, each.longest_task) for each in long if each.queue in minutes}
    found = {(queue, task): usual(minutes[queue], task) for queue, task in told}
    return {kind: seconds for kind, seconds in found.items() if seconds}


def _row(worker: Worker, now: float, usually: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    first, longest = worker[0], longest_of(worker, now)
    job, seconds = longest or (None, None)
    normal = usually.get((job.queue, job.longest_task)) if job else None
    times = seconds / normal if seconds and normal else None
    is_unusual = seconds is not None and seconds > LONG_JOB_SECONDS and (times is None or times >= UNUSUAL_FACTOR)
    done, failed = sum(each.done for each in worker), sum(each.failed for each in worker)
    queues = [each.queue for each in worker]
    return {
        "id": cut(first.id, MAX_NAME),
        "host": cut(first.host, MAX_NAME),
        "pid": first.pid,
        "queues": queues[:MAX_NAMED],
        "more": max(0, len(queues) - MAX_NAMED),
        "slots": slots_of(worker),
        "busy": round(busy_of(worker), 2),
        "longest": seconds,
        "task": cut(job.longest_task, MAX_NAME) if job else "",
        "message": {"queue": job.queue, "id": job.longest_message} if job and job.longest_message else None,
        "times": times if times and times >= UNUSUAL_FACTOR else None,
        "unusual": seconds if is_unusual else 0,
        "done": done,
        "failed": failed,
        "share": failed / (done + failed) if done + failed else None,
        "memory": max(each.memory for each in worker) or None,
        "limit": first.memory_limit,
        "started": min(each.started for each in worker),
        "version": cut(first.version, MAX_NAME),
        "heard": _heard(worker),
    }


def _reading(
    names: Sequence[str], working: Sequence[Worker], stats: Mapping[str, QueueStats], unread: Sequence[str]
) -> list[dict[str, Any]]:
    """Return who reads which queue, those that nobody reads first. Slots are counted for each queue they are for."""
    by_queue: dict[str, list[WorkerStatus]] = {name: [] for name in names}
    for worker in working:
        for each in worker:
            by_queue.setdefault(each.queue, []).append(each)
    found = [
        {
            "queue": name,
            "to": here(name),
            "workers": len(each),
            "slots": sum(worker.slots for worker in each),
            "busy": round(sum(worker.busy for worker in each), 2),
            "waiting": stats[name].backlog if name in stats else None,
            "unread": name in unread,
        }
        for name, each in by_queue.items()
    ]
    return sorted(found, key=lambda row: (not row["unread"], -(row["waiting"] or 0), row["queue"]))


def _gone(worker: Worker) -> dict[str, Any]:
    last = max(worker, key=lambda each: each.heard)
    queues = [each.queue for each in worker]
    return {
        "id": cut(last.id, MAX_NAME),
        "host": cut(last.host, MAX_NAME),
        "pid": last.pid,
        "queues": queues[:MAX_NAMED],
        "more": max(0, len(queues) - MAX_NAMED),
        "heard": last.heard,
        "ended": last.state == "ended",
        "how": "ended in order" if last.state == "ended" else f"gone{memory_of(last)}",
    }

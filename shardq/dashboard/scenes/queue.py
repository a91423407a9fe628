"""One queue: who waits and why, does it drain, what would help, whose turn is next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from shardq.dashboard import numbers
from shardq.dashboard.drains import drains
from shardq.dashboard.fitting import fitted
from shardq.dashboard.marked import Linked, Toned, cut, here, queue_in, said, spelled
from shardq.dashboard.names import address_of, shown
from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.partitions import partitions
from shardq.dashboard.past import durations, past
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.source import SceneSource
from shardq.dashboard.verdicts import linked, others_wait, paused_for, said_of
from shardq.model.minute import Minute
from shardq.model.outlook import TenantOutlook
from shardq.model.wording import plural, span
from shardq.model.worker_status import PICKUP_BOUNDS, WorkerStatus
from shardq.outlook import reasons
from shardq.outlook.crew import LONG_JOB_SECONDS, longest_of, usual
from shardq.outlook.helps import effect_of_whom
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Parts
from shardq.outlook.turns import next_turns
from shardq.protocol.beats import percentile

MAX_TENANTS: Final = 9
"""Shard keys that are shown: those with most waiting."""
MAX_TASKS: Final = 12
"""Kinds of task that are shown: those with most done."""
MAX_WORKERS: Final = 24
"""Workers that are shown: those with a job that takes unusually long, then those that work most."""
MAX_HELPS: Final = 6
MAX_NAME: Final = 100
"""Letters of a name in a row."""
TEN_MINUTES: Final = 600.0
UNUSUAL_FACTOR: Final = 2.0
"""A job is unusually long if it lasts longer than what is usual for its task times this factor."""
FAILS_MUCH: Final = 0.1
"""The share of a worker's jobs of the last minute that failed, from which on it is said."""


async def queue(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return how one queue is. NotThere if there is no such queue."""
    name = queue_in(asked)
    look = await numbers.look(source, name)
    facts, outlook, stats, now = look.facts, look.outlook, look.stats, look.facts.now
    workers = _workers(facts.working, facts.minutes, now)
    scene = {
        "said": said(_heading(look), look.verdict.severity, [look.verdict.second]),
        "now": now,
        "name": name,
        "is_paused": facts.paused_until is not None,
        "paused_for": paused_for(look),
        "figures": {
            "waiting": stats.backlog,
            "oldest": stats.oldest_age,
            "oldest_is_sampled": stats.oldest_age_is_sampled,
            "in_flight": stats.in_flight,
            "slots": outlook.slots,
            "written": outlook.written_rate,
            "done": outlook.rate,
            "others": others_wait(look) if outlook.is_read and len(outlook.tenants) > 1 else None,
            "dead": stats.dead,
        },
        **drains(look),
        "who": _who(look),
        "helps": _helps(look),
        "no_help": spelled(_no_help(look)),
        "turns": _turns(look),
        "past": past(facts.minutes, now, facts.working),
        "kinds": _kinds(look),
        "workers": workers[:MAX_WORKERS],
        "more_workers": max(0, len(workers) - MAX_WORKERS),
        "crew": _crew(look),
        "nobody": spelled(_nobody(look)),
        "partitions": await partitions(source, name),
    }
    return fitted(scene, {"workers": "more_workers"})


def _heading(look: NumbersLook) -> Parts:
    """Return the sentence of the verdict, in which what fails, or who floods, leads to its own screen."""
    parts, name, large = said_of(look), look.facts.stats.queue, next(iter(look.outlook.tenants), None)
    if look.verdict.kind == "failing":
        return linked(parts, name_of(str(look.verdict.facts["task"] or "Messages")), here(name, "/failures"))
    if look.verdict.kind == "flood" and large is not None:
        address = address_of(large.shard_key)
        return linked(parts, name_of(large.shard_key), here(name, f"/tenant/{quote(address, safe='')}"))
    return parts


def _no_help(look: NumbersLook) -> Parts:
    """Return what is said where nothing is known that would let anything be served sooner."""
    drains = look.outlook.drains
    if look.verdict.kind == "failing" and drains == "empty":
        return ["Writers are served at once: look at ", _failing(look), "."]
    if look.verdict.kind == "failing":
        return ["Look at ", _failing(look), "."]
    if drains == "unknown":
        return ["Nobody knows yet what would help: no worker has told how long its jobs take."]
    if drains == "empty":
        return ["Nothing is needed: who writes is served at once."]
    return ["Nothing that one could do would change much."]


def _failing(look: NumbersLook) -> Linked:
    return Linked("what fails", here(look.facts.stats.queue, "/failures"))


def _who(look: NumbersLook) -> dict[str, Any]:
    """Return for what all messages wait, and the shard keys with most waiting."""
    outlook = look.outlook
    most = sum(worker.done for worker in look.facts.working) or None
    had: dict[str | bytes, int] = {}
    for worker in look.facts.working:
        for each in worker.tenants:
            had[each.shard_key] = had.get(each.shard_key, 0) + each.done
    waiting = plural(outlook.tenants_waiting, "tenant")
    about = "about " if outlook.tenants_are_some else ""
    return {
        "note": f"{about}{waiting}, the largest first" if outlook.tenants_waiting else "",
        "reasons": outlook.reasons,
        "why": {reason: spelled(parts) for reason, parts in reasons.why(look.facts).items()},
        "tenants": [
            {
                "key": address_of(each.shard_key),
                "name": shown(each.shard_key),
                "waits": each.waits,
                "waiting": each.waits - each.reasons["delay"] - each.reasons["retry"],
                "reasons": {reason: count for reason, count in each.reasons.items() if count},
                "served_in": each.served_in if _is_due(each) else None,
                "share": min(1.0, had[each.shard_key] / most) if most and each.shard_key in had else None,
            }
            for each in outlook.tenants[:MAX_TENANTS]
        ],
    }


def _is_due(tenant: TenantOutlook) -> bool:
    """Say whether it has anything that could be served: messages to come due, or to be tried again, are not."""
    return any(count for reason, count in tenant.reasons.items() if reason not in ("delay", "retry"))


def _helps(look: NumbersLook) -> list[dict[str, Any]]:
    """Return what would help, and what would not."""
    found = look.outlook.helps[:MAX_HELPS]
    return [{"what": each.what, "text": spelled(effect_of_whom(each)), "helps": each.helps} for each in found]


def _turns(look: NumbersLook) -> list[list[Any]]:
    """Return the next turns: a name, how many in a row, and whether it is the one that has most of what waits."""
    large = look.outlook.tenants[0] if look.verdict.kind == "flood" else None
    return [
        [name_of(each.shard_key), each.times, large is not None and each.shard_key == large.shard_key]
        for each in next_turns(look.facts)
    ]


def _kinds(look: NumbersLook) -> list[dict[str, Any]]:
    """Return what was done of each kind of task in the last ten minutes."""
    lately = [each for each in look.facts.minutes if look.facts.now - each.at <= TEN_MINUTES]
    jobs: dict[str, int] = {}
    for minute in lately:
        for each in minute.tasks:
            jobs[each.task] = jobs.get(each.task, 0) + each.done + each.failed
    every = sum(jobs.values())
    fails: dict[str, int] = {}
    for group in look.facts.failures:
        fails[group.task] = fails.get(group.task, 0) + group.recent
    return [
        {
            "task": cut(task, MAX_NAME) or "messages that are no calls",
            "share": count / every if every else 0.0,
            "p50": percentile(counts := _counts(lately, task), 0.5),
            "p99": percentile(counts, 0.99),
            "fails": fails.get(task, 0),
        }
        for task, count in sorted(jobs.items(), key=lambda each: (-each[1], each[0]))[:MAX_TASKS]
    ]


def _counts(minutes: Sequence[Minute], task: str) -> list[int]:
    counts = [0] * len(PICKUP_BOUNDS)
    for minute in minutes:
        for at, count in enumerate(durations(minute, task)):
            counts[at] += count
    return counts


def _workers(working: Sequence[WorkerStatus], minutes: Sequence[Minute], now: float) -> list[dict[str, Any]]:
    rows = [_worker(each, minutes, now) for each in working]
    return sorted(rows, key=lambda row: (not row["stuck"], -row["done"], row["id"]))


def _worker(worker: WorkerStatus, minutes: Sequence[Minute], now: float) -> dict[str, Any]:
    job = longest_of([worker], now)
    seconds = None if job is None else job[1]
    stuck = ""
    if seconds is not None and seconds > LONG_JOB_SECONDS:
        usually = usual(minutes, worker.longest_task)
        if usually is None or seconds > UNUSUAL_FACTOR * usually:
            stuck = f"one {name_of(worker.longest_task) if worker.longest_task else 'message'} for {span(seconds)}"
    tried = worker.done + worker.failed
    return {
        "id": worker.id,
        "host": cut(worker.host, MAX_NAME),
        "pid": worker.pid,
        "slots": worker.slots,
        "busy": round(worker.busy),
        "longest": seconds,
        "stuck": stuck,
        "done": worker.done,
        "failed": worker.failed,
        "fails_much": bool(tried) and worker.failed > FAILS_MUCH * tried,
    }


def _crew(look: NumbersLook) -> str:
    """Return how busy those are that read it."""
    outlook = look.outlook
    if not outlook.slots:
        return "somebody reads it who does not tell of itself" if outlook.is_read else "none"
    return f"{outlook.busy:,.0f} of {plural(outlook.slots, 'slot')} busy"


def _nobody(look: NumbersLook) -> Parts:
    """Return what is said where no worker is shown."""
    facts = look.facts
    if look.outlook.is_read:
        return ["Somebody reads this queue who does not tell of itself: a client, or a worker of an earlier version."]
    none: Parts = [Toned("No worker reads this queue.", "bad" if look.outlook.reasons["worker"] else "soft")]
    last = max(facts.workers, key=lambda each: each.heard, default=None)
    if last is None:
        return none
    how = "ended in order at" if last.state == "ended" else "was last heard at"
    return [*none, f" The last one, {name_of(last.host)} (pid {last.pid}), {how} ", At(last.heard, facts.now), "."]

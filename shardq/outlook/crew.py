"""Workers of all queues as one list: how busy they are, on which jobs they work for long, how one is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shardq.model.minute import Minute
from shardq.model.outlook import Outlook
from shardq.model.verdict import Verdict
from shardq.model.wording import moment, plural, share, size
from shardq.model.worker_status import PICKUP_BOUNDS, WorkerStatus
from shardq.outlook.sentence import Bold, Parts
from shardq.protocol.beats import percentile

SHORT_JOB_SECONDS: Final = 10.0
"""Seconds below which a job that ran at a beat has likely ended since."""
LONG_JOB_SECONDS: Final = 120.0
"""Seconds after which a job is compared with the usual time of its task."""
USUAL_SHARE: Final = 0.99
"""The share of the jobs of a task that are no longer than what is called usual."""
MAX_NAMED: Final = 3
"""Queues that a sentence names."""

Worker = Sequence[WorkerStatus]
"""The report of one worker to each of its queues."""


def workers(statuses: Iterable[WorkerStatus]) -> list[list[WorkerStatus]]:
    """Return what is known of each worker, over all of its queues, in the order in which they come."""
    found: dict[str, list[WorkerStatus]] = {}
    for status in statuses:
        found.setdefault(status.id, []).append(status)
    rank = ("working", "gone", "ended").index
    return sorted(found.values(), key=lambda each: min(rank(status.state) for status in each))


def heading(found: Sequence[Worker], unread: Sequence[str], queue: str = "") -> Parts:
    """Return which queues nobody reads, how many workers there are, and how busy they are.

    *unread* are the queues in which messages wait that nobody reads; *queue* is the only one that was asked for.
    """
    working = [each for each in found if each[0].state == "working"]
    told: Parts = [Bold("No worker"), " reads ", Bold(_names(unread)), ". "] if unread else []
    if not working:
        if unread:
            return [*told[:-1], "."]
        if queue:
            return [Bold("No worker"), " reads ", Bold(queue), "."]
        return [Bold("No worker"), " was heard in the last 30 s."]
    reads = "reads" if len(working) == 1 else "read"
    what = f"{reads} {queue}" if queue else f"{reads} the others" if unread else "works" if reads == "reads" else "work"
    busy, slots = sum(map(busy_of, working)), sum(map(slots_of, working))
    of_slots = Bold(f"{busy:,.0f} of {plural(slots, 'slot')}")
    return [*told, Bold(plural(len(working), "worker")), f" {what}, ", of_slots, " busy."]


def _names(queues: Sequence[str]) -> str:
    more = f" and {len(queues) - MAX_NAMED:,} more" if len(queues) > MAX_NAMED else ""
    return ", ".join(queues[:MAX_NAMED]) + more


def slots_of(worker: Worker) -> int:
    """How many jobs it can do at once: its queues share its slots."""
    return max(each.slots for each in worker)


def busy_of(worker: Worker) -> float:
    """How many jobs of its ran."""
    return sum(each.busy for each in worker)


def longest_of(worker: Worker, now: float) -> tuple[WorkerStatus, float] | None:
    """Return where the job is that runs longest, and for how long it has run; None if none runs."""
    found = [(each, _longest(each, now)) for each in worker if each.longest_since is not None]
    return max(found, key=lambda each: each[1], default=None)


def _longest(worker: WorkerStatus, now: float) -> float:
    """How long the job has run that runs longest. A short one has ended since the beat that told of it."""
    at_beat = max(0.0, worker.heard - (worker.longest_since or worker.heard))
    return at_beat if at_beat < SHORT_JOB_SECONDS else at_beat + max(0.0, now - worker.heard)


def is_unread(verdict: Verdict, outlook: Outlook | None) -> bool:
    """Whether messages wait that nobody reads. For a full server the verdict says only that: ask the outlook."""
    if verdict.kind == "redis_full":
        return outlook is not None and outlook.reasons["worker"] > 0
    return verdict.kind == "no_worker"


def usual(minutes: Iterable[Minute], task: str) -> float | None:
    """Return within how many seconds 99 of 100 jobs of a task were done, as far as these minutes tell."""
    counts = [0] * len(PICKUP_BOUNDS)
    for minute in minutes:
        for each in minute.tasks:
            if each.task == task:
                for at, count in enumerate(each.durations[: len(counts)]):
                    counts[at] += count
    return percentile(counts, USUAL_SHARE)


def gone(worker: WorkerStatus, now: float) -> str:
    """How one ended that is gone: when it was last heard, and the memory that it had then."""
    return f"gone at {moment(worker.heard, now)}{memory_of(worker)}"


def memory_of(worker: WorkerStatus) -> str:
    """The memory that a worker had when it was last heard, behind the rest of its text; '' if it did not say."""
    if not worker.memory:
        return ""
    if not worker.memory_limit:
        return f", memory {size(worker.memory)}"
    return f", memory {share(worker.memory / worker.memory_limit)} of {size(worker.memory_limit)}"

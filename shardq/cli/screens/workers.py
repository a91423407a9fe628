"""The screen of workers: which queues nobody reads, who works, who is gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from shardq.cli.grid import Cell, Column, Rest, grid
from shardq.cli.width import wrapped
from shardq.model.wording import age, moment, plural, share, short_number, size, span
from shardq.model.worker_status import WorkerStatus

TABLE: Final = (
    Column("WORKER", 14),
    Column("QUEUES", 8),
    Column("BUSY"),
    Column("LONGEST"),
    Column("DONE/MIN"),
    Column("FAIL"),
    Column("HEARD"),
)
SHORT: Final = 10.0
"""Seconds below which a job that ran at a beat has likely ended since."""
NAMED: Final = 3
"""Queues that a sentence names."""


def lines(
    statuses: Sequence[WorkerStatus],
    now: float,
    *,
    unread: Sequence[str] = (),
    queue: str = "",
    most: int | None = None,
) -> list[str]:
    """Return how many work, and a table with a line on each worker, those that work first.

    *unread* are the queues in which messages wait that nobody reads; *queue* is the only one that was asked for.
    """
    found = workers(statuses)
    shown = [each for each in found if each[0].state != "ended"][:most]
    ended = sum(each[0].state == "ended" for each in found)
    told = heading(found, unread, queue)
    if shown:
        told += grid(TABLE, (_row(each, now) for each in shown))
    left = len(found) - ended - len(shown)
    if left:
        told.append(f"... and {plural(left, 'worker')} more: --limit")
    if ended:
        told += wrapped(f"{plural(ended, 'worker')} ended in order in the last hour.")
    return told


def workers(statuses: Iterable[WorkerStatus]) -> list[list[WorkerStatus]]:
    """Return what is known of each worker, of all of its queues, in the order in which they come."""
    found: dict[str, list[WorkerStatus]] = {}
    for status in statuses:
        found.setdefault(status.id, []).append(status)
    rank = ("working", "gone", "ended").index
    return sorted(found.values(), key=lambda each: min(rank(status.state) for status in each))


def heading(found: Sequence[Sequence[WorkerStatus]], unread: Sequence[str], queue: str) -> list[str]:
    """Return which queues nobody reads, how many workers there are, and how busy they are."""
    working = [each for each in found if each[0].state == "working"]
    slots = sum(slots_of(each) for each in working)
    busy = sum(busy_of(each) for each in working)
    told = f"No worker reads {_names(unread)}. " if unread else ""
    if not working:
        return wrapped(
            told or f"No worker reads {queue}." if queue else told or "No worker was heard in the last 30 s."
        )
    reads = "reads" if len(working) == 1 else "read"
    what = f"{reads} {queue}" if queue else f"{reads} the others" if unread else "works" if reads == "reads" else "work"
    return wrapped(f"{told}{plural(len(working), 'worker')} {what}, {busy:,.0f} of {plural(slots, 'slot')} busy.")


def _names(queues: Sequence[str]) -> str:
    more = f" and {len(queues) - NAMED:,} more" if len(queues) > NAMED else ""
    return ", ".join(queues[:NAMED]) + more


def slots_of(worker: Sequence[WorkerStatus]) -> int:
    """How many jobs it can do at once: its queues share its slots."""
    return max(each.slots for each in worker)


def busy_of(worker: Sequence[WorkerStatus]) -> float:
    """How many jobs of its ran."""
    return sum(each.busy for each in worker)


def _row(worker: Sequence[WorkerStatus], now: float) -> list[Cell]:
    first = worker[0]
    begins: list[Cell] = [name_of(first), ", ".join(each.queue for each in worker)]
    if first.state == "gone":
        return [*begins, Rest(_gone(first, now))]
    longest = max((_longest(each, now) for each in worker if each.longest_since is not None), default=None)
    done, failed = sum(each.done for each in worker), sum(each.failed for each in worker)
    return [
        *begins,
        f"{busy_of(worker):.0f}/{slots_of(worker)}",
        "-" if longest is None else span(longest),
        short_number(done),
        share(failed / (done + failed)) if done + failed else "-",
        age(now - max(each.heard for each in worker)),
    ]


def _longest(worker: WorkerStatus, now: float) -> float:
    """How long the job has run that runs longest. A short one has ended since the beat that told of it."""
    at_beat = max(0.0, worker.heard - (worker.longest_since or worker.heard))
    return at_beat if at_beat < SHORT else at_beat + max(0.0, now - worker.heard)


def name_of(worker: WorkerStatus) -> str:
    """What a worker is called."""
    return worker.id


def _gone(worker: WorkerStatus, now: float) -> str:
    return f"gone at {moment(worker.heard, now)}{_memory(worker)}"


def _memory(worker: WorkerStatus) -> str:
    if not worker.memory:
        return ""
    if not worker.memory_limit:
        return f", memory {size(worker.memory)}"
    return f", memory {share(worker.memory / worker.memory_limit)} of {size(worker.memory_limit)}"

"""The screen of workers: which queues nobody reads, who works, who is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.cli.grid import Cell, Column, Rest, grid
from shardq.cli.width import wrapped
from shardq.model.wording import age, plural, share, short_number, span
from shardq.model.worker_status import WorkerStatus
from shardq.outlook.crew import Worker, busy_of, gone, heading, longest_of, slots_of, workers
from shardq.outlook.sentence import joined

TABLE: Final = (
    Column("WORKER", 14),
    Column("QUEUES", 8),
    Column("BUSY"),
    Column("LONGEST"),
    Column("DONE/MIN"),
    Column("FAIL"),
    Column("HEARD"),
)


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
    told = wrapped(joined(heading(found, unread, queue))[0])
    if shown:
        told += grid(TABLE, (_row(each, now) for each in shown))
    left = len(found) - ended - len(shown)
    if left:
        told.append(f"... and {plural(left, 'worker')} more: --limit")
    if ended:
        told += wrapped(f"{plural(ended, 'worker')} ended in order in the last hour.")
    return told


def _row(worker: Worker, now: float) -> list[Cell]:
    first = worker[0]
    begins: list[Cell] = [name_of(first), ", ".join(each.queue for each in worker)]
    if first.state == "gone":
        return [*begins, Rest(gone(first, now))]
    longest = longest_of(worker, now)
    done, failed = sum(each.done for each in worker), sum(each.failed for each in worker)
    return [
        *begins,
        f"{busy_of(worker):.0f}/{slots_of(worker)}",
        "-" if longest is None else span(longest[1]),
        short_number(done),
        share(failed / (done + failed)) if done + failed else "-",
        age(now - max(each.heard for each in worker)),
    ]


def name_of(worker: WorkerStatus) -> str:
    """The name of a worker."""
    return worker.id

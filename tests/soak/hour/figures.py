"""The numbers of queues that somebody polled, and whether they can be true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from tests.soak.history import History
from tests.soak.hour.bounds import Bounds
from tests.soak.hour.events import Figures
from tests.soak.hour.record import Record
from tests.soak.hour.violation import Kind, Violation
from tests.soak.sums import Sums


def wrong_figures(record: Record, bounds: Bounds, unsure: Mapping[str, Set[str]]) -> Iterator[Violation]:
    """Figures that do not add up. *unsure* are the values of a queue that a promotion may have lost."""
    sums = {name: Sums(found, unsure.get(name, frozenset())) for name, found in record.queues.items()}
    dead = {name: dead_letters(found) for name, found in record.queues.items()}
    for each in record.figures:
        found = sums.get(each.queue) or Sums(History())
        wrong = _of_quiet(each, dead.get(each.queue, set())) if each.quiet else _of_busy(each, found, bounds)
        for text in wrong:
            yield Violation(Kind.FIGURES_WRONG, f"{each.queue} at {each.at:.3f}: {text}")


def dead_letters(found: History) -> set[str]:
    """The ids of messages that are dead letters at the end: rejected, or said to be so, and not acked later."""
    dead = {message_id for message_id, why in found.dropped.items() if why.startswith("dead")}
    dead |= {lease.id for lease in found.leases if lease.verb == "reject" and lease.ok is not False}
    dead -= {message_id for message_id, why in found.dropped.items() if not why.startswith("dead")}
    return dead - {lease.id for lease in found.leases if lease.verb == "ack" and lease.ok is not False}


def _of_quiet(figures: Figures, dead: set[str]) -> Iterator[str]:
    for name in ("length", "ready", "in_flight", "delayed"):
        value = getattr(figures, name)
        if value:
            yield f"{name} is {value:,}, though nothing is under way"
    if figures.dead != len(dead):
        yield f"dead is {figures.dead:,}, and the history has {len(dead):,} dead letters"


def _of_busy(figures: Figures, sums: Sums, bounds: Bounds) -> Iterator[str]:
    """What cannot be. A message may have become a dead letter by its last delivery, which no process sees."""
    asked, at = figures.asked, figures.at
    if asked is None:
        asked, at = at - bounds.age, at + bounds.age
    least, most = sums.undone(asked, at)
    total = figures.length + figures.in_flight + figures.delayed
    if not least - figures.dead <= total <= most:
        yield f"waiting, in flight and delayed are {total:,}, and can be {least - figures.dead:,} to {most:,}"
    if figures.ready > figures.length:
        yield f"ready are {figures.ready:,}, and only {figures.length:,} wait"

"""The judgement of a run: every promise that its history shows broken. O(n log n) in its events.

python -m tests.soak.hour.judge FOLDER
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.history import CHECKS, History
from tests.soak.hour.bounds import Bounds
from tests.soak.hour.calls import told_wrongly
from tests.soak.hour.figures import wrong_figures
from tests.soak.hour.losses import Loss, Windows
from tests.soak.hour.record import Record
from tests.soak.hour.remains import left_behind
from tests.soak.hour.spans import Spans
from tests.soak.hour.violation import Kind, Violation
from tests.soak.hour.waits import waits

USUAL: Final = Bounds()


@dataclass(frozen=True)
class Judgement:
    """What is wrong in a run, and what a promotion lost there."""

    violations: list[Violation]
    losses: list[Loss]


def judge(folder: Path, bounds: Bounds = USUAL) -> list[Violation]:
    """Every violation in the history of a folder."""
    return judged(Record.read(folder), bounds).violations


def judged(record: Record, bounds: Bounds = USUAL) -> Judgement:
    """Every violation in a run, and every loss, allowed or not."""
    losses: list[Loss] = []
    unsure: Mapping[str, set[str]] = defaultdict(set)
    found = [Violation(Kind.DAMAGED, each) for each in (*record.damages, *_unfinished(record))]
    found += _messages(record, bounds, losses, unsure)
    found += [Violation(Kind.FORBIDDEN_LOSS, _sentence(each)) for each in losses if each.is_forbidden]
    found += _late(record, bounds)
    found += told_wrongly(record, bounds)
    found += wrong_figures(record, bounds, unsure)
    found += left_behind(record, bounds)
    found += _unhealed(record)
    return Judgement(found, losses)


def _unfinished(record: Record) -> Iterator[str]:
    """Say which queues were polled, but not at the end."""
    polled, ended = ({each.queue for each in record.figures if each.quiet or not end} for end in (False, True))
    for queue in sorted(polled - ended):
        yield f"{queue} has no figures of a quiet moment: the run was cut short, so what is lost is only not done"


def _messages(
    record: Record, bounds: Bounds, losses: list[Loss], unsure: Mapping[str, set[str]]
) -> Iterator[Violation]:
    """What became of messages that must not; what a promotion may have done is added to the losses."""
    windows = Windows(record.allowed)
    for queue, history in record.queues.items():
        for name, check in CHECKS.items():
            if name == Kind.OUT_OF_ORDER and not tells_order(history, bounds):
                continue
            for broken in check(history):
                if loss := windows.loss(queue, Kind(name), broken):
                    losses.append(loss)
                    unsure[queue].add(broken.value)
                else:
                    begin, end = broken.done
                    yield Violation(Kind(name), f"{queue}: {broken.text}, between {begin:.3f} and {end:.3f}")


def tells_order(history: History, bounds: Bounds) -> bool:
    """Whether all deliveries were noted by those who read them.

    Workers read ahead. A message that they give back unworked is counted as if nobody had read it, and comes later.
    """
    return all(lease.at - lease.asked < bounds.read_ahead for lease in history.leases)


def _sentence(loss: Loss) -> str:
    level = f"{loss.level} survives that" if loss.level else "nobody said which level it has"
    window = f"{loss.allowed.begin:.3f} to {loss.allowed.until:.3f} ({loss.allowed.by})"
    return f"{loss.queue}: {loss.text} from {window}: {level}"


def _late(record: Record, bounds: Bounds) -> Iterator[Violation]:
    """Deliveries that came too late, though the time of faults is not counted."""
    faults = Spans(each.span for each in record.healings())
    for queue, history in record.queues.items():
        for each in waits(history):
            if each.at - each.since > bounds.wait:
                took = each.at - each.since - faults.within(each.since, each.at)
                if took > bounds.wait:
                    yield Violation(
                        Kind.LATE,
                        f"{queue}: {each.id} could be delivered at {each.since:.3f}, and was at {each.at:.3f}: "
                        f"{took:.1f} s without faults, and {bounds.wait:g} s are the bound",
                    )


def _unhealed(record: Record) -> Iterator[Violation]:
    for fault, recovered in record.healings():
        if not recovered:
            yield Violation(
                Kind.NOT_RECOVERED,
                f"{fault.name} of {fault.target} from {fault.at:.3f} to {fault.until:.3f}: nobody saw its end",
            )


if __name__ == "__main__":
    for violation in judge(Path(sys.argv[1])):
        print(f"{violation.kind}: {violation.text}; look at {violation.look}")

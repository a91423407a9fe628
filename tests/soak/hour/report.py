"""The report of a run: one page of HTML that asks for no other file, and a text.

python -m tests.soak.hour.report FOLDER PAGE
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.report import percentile
from shardq.reports.page import page
from shardq.reports.told import Table, Told
from tests.soak.hour.bounds import MIB, Bounds
from tests.soak.hour.events import Figures
from tests.soak.hour.judge import Judgement, judged
from tests.soak.hour.pictures import Line, lines
from tests.soak.hour.record import Record
from tests.soak.hour.remains import Life, lives
from tests.soak.hour.spans import Span
from tests.soak.hour.waits import waits

SLICES: Final = 60
"""Points of what is counted over time: of an hour, one is a minute."""

MAX_ROWS: Final = 200
"""Violations and processes that are named; all are judged."""

MAX_PICTURES: Final = 40
"""Processes whose memory is drawn: those that lived longest."""

GRID: Final = "display:grid;gap:0 2rem;grid-template-columns:repeat(auto-fill,minmax(min(16rem,100%),1fr))"
"""How pictures stand: three beside each other, on a telephone one."""


@dataclass(frozen=True)
class Report:
    """What a run was, and what was wrong in it."""

    record: Record
    judgement: Judgement

    @property
    def verdict(self) -> str:
        """In one sentence."""
        found = Counter(each.kind for each in self.judgement.violations)
        if not found:
            return "No promise was broken."
        return f"{found.total():,} violations: " + ", ".join(f"{count:,} {kind}" for kind, count in found.items())

    @property
    def span(self) -> Span:
        """From the first event to the last one, as far as they have times."""
        times = [
            *(each.at for each in self.record.processes), *(each.at for each in self.record.figures),
            *(lease.at for history in self.record.queues.values() for lease in history.leases),
            *(each.at for each in self.record.faults),
        ]  # fmt: skip
        return (min(times), max(times)) if times else (0.0, 0.0)

    def html(self) -> str:
        """The page."""
        minutes = (self.span[1] - self.span[0]) / 60
        told = Told(
            "An hour of everything", self.verdict, bool(self.judgement.violations), self.tables(), self.pictures(), [],
            ["Times are seconds of the machine's clock. Red ticks are faults."],
        )  # fmt: skip
        return page(told, f"{minutes:.1f} minutes")

    def text(self) -> str:
        """For a terminal."""
        parts = [self.verdict]
        for table in self.tables():
            widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
            rows = [
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                for row in (table.columns, *table.rows)
            ]
            parts += ["", table.title, *rows]
        return "\n".join(parts) + "\n"

    # --- tables

    def tables(self) -> list[Table]:
        """What is wrong comes first."""
        some = self.judgement.violations[:MAX_ROWS]
        wrong = [[each.kind, each.text, each.look] for each in some]
        return [
            Table(f"Violations ({len(self.judgement.violations):,})", ["kind", "what", "look at"], wrong, 3),
            self._faults(),
            self._losses(),
            self._queues(),
            Table(
                "Calls", ["call", "outcome", "how many"],
                [[call, outcome, f"{count:,}"] for (call, outcome), count in sorted(self.record.told.items())], 2,
            ),
            self._processes(),
            Table(
                "Servers", ["server", "when", "keys", "MiB"],
                [[each.server, each.when, f"{each.count:,}", f"{each.memory / MIB:.1f}"] for each in self.record.keys],
                2,
            ),
        ]  # fmt: skip

    def _faults(self) -> Table:
        took = defaultdict[str, list[float | None]](list)
        for each in self.record.healings():
            took[each.fault.name].append(each.took)
        rows = []
        for name, all_ in sorted(took.items()):
            known = [each for each in all_ if each is not None]
            rows.append([name, f"{len(all_):,}", f"{len(all_) - len(known):,}", *_percentiles(known)])
        return Table("Faults", ["fault", "how often", "not recovered", "recovered in, p50", "p99", "worst"], rows)

    def _losses(self) -> Table:
        count = Counter(
            (each.queue, each.level or "?", each.allowed.by, each.kind, "no" if each.is_forbidden else "yes")
            for each in self.judgement.losses
        )
        rows = [[*facts, f"{number:,}"] for facts, number in sorted(count.items())]
        names = ["queue", "level", "lost by", "what", "allowed", "how many"]
        return Table("What promotions lost", names, rows, 5)

    def _queues(self) -> Table:
        rows = []
        for name, history in sorted(self.record.queues.items()):
            found = [each.at - each.since for each in waits(history) if each.is_first]
            again = sum(1 for lease in history.leases if lease.count > 1)
            numbers = (len(history.ids), len(history.leases), again, len(history.dropped))
            rows.append([name, *(f"{each:,}" for each in numbers), *_percentiles(found)])
        names = ["queue", "written", "delivered", "again", "dropped", "waited, p50", "p99", "longest"]
        return Table("Queues", names, rows)

    def _processes(self) -> Table:
        rows = []
        for life in self._longest()[:MAX_ROWS]:
            first, last = life.samples[0], life.samples[-1]
            rows.append([
                str(life), f"{life.span / 60:.1f}", f"{first.rss / MIB:.1f}", f"{last.rss / MIB:.1f}",
                f"{first.fds} to {last.fds}", f"{first.threads} to {last.threads}",
            ])  # fmt: skip
        names = ["process", "minutes", "MiB at first", "at last", "descriptors", "threads"]
        return Table("Processes", names, rows)

    # --- pictures

    def pictures(self) -> str:
        """Deliveries and waits over time, what each queue has, the memory of each process."""
        span, marks = self.span, [each.at for each in self.record.faults]
        histories = self.record.queues.values()
        times = [(lease.at, 1.0) for history in histories for lease in history.leases]
        found = [(each.at, each.at - each.since) for history in histories for each in waits(history) if each.is_first]
        shown = [
            lines("Deliveries", [Line("per second", self._sliced(times, self._rate))], "/s", span, marks),
            lines("Waits for the first delivery", [
                Line("p99", self._sliced(found, lambda some: percentile(some, 0.99))),
                Line("p50", self._sliced(found, lambda some: percentile(some, 0.5))),
            ], "s", span, marks),
        ]  # fmt: skip
        polled = defaultdict[str, list[Figures]](list)
        for each in sorted(self.record.figures, key=lambda each: each.at):
            polled[each.queue].append(each)
        for name, some in sorted(polled.items()):
            waiting = Line("wait", [(each.at, each.length) for each in some])
            held = Line("in flight", [(each.at, each.in_flight) for each in some])
            shown.append(lines(f"Messages of {name}", [waiting, held], "", span, marks))
        shown += [self._memory(life) for life in self._longest()[:MAX_PICTURES]]
        return f'<div style="{GRID}">{"".join(f"<div>{each}</div>" for each in shown)}</div>'

    def _longest(self) -> list[Life]:
        """The processes, by how long each lived."""
        return sorted(lives(self.record), key=lambda life: -life.span)

    def _memory(self, life: Life) -> str:
        points = [(each.at, each.rss / MIB) for each in life.samples]
        return lines(f"Memory of {life}", [Line("resident", points)], "MiB", self.span)

    def _sliced(
        self, found: Iterable[tuple[float, float]], of: Callable[[list[float]], float]
    ) -> list[tuple[float, float]]:  # fmt: skip
        """One value for each slice of the run that has any."""
        begin, end = self.span
        edges = [begin + (end - begin) * number / SLICES for number in range(SLICES)]
        slices = defaultdict[int, list[float]](list)
        for at, value in found:
            slices[bisect_right(edges, at) - 1].append(value)
        return [(edges[number], of(some)) for number, some in sorted(slices.items())]

    def _rate(self, some: Sequence[float]) -> float:
        return len(some) / ((self.span[1] - self.span[0]) / SLICES)


def _percentiles(seconds: list[float]) -> list[str]:
    """The half, the 99th of a hundred, and the longest."""
    if not seconds:
        return ["", "", ""]
    return [_time(each) for each in (percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds))]


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def write(folder: Path, path: Path, bounds: Bounds | None = None) -> Report:
    """Judge the history of a folder, and write its page."""
    record = Record.read(folder)
    report = Report(record, judged(record, bounds or Bounds()))
    path.write_text(report.html())
    return report


def main(folder: str, path: str) -> int:
    """Say what is wrong, too, and fail if something is."""
    report = write(Path(folder), Path(path))
    print(report.text())
    return 1 if report.judgement.violations else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

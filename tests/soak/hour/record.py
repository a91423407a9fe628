"""All that a folder says of a run: the histories of its queues, its faults, and what else was noted."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.soak.history import History, gather
from tests.soak.hour import events
from tests.soak.hour.events import Event, Fault, Figures, Keys, LostAllowed, Process, Recovered, Told, Try
from tests.soak.hour.spans import Span

WRITES: Final = frozenset(("write", "write_many", "publish"))
"""Calls whose outcome is that of the values that were tried before."""

AFTERMATH: Final = 5.0
"""Seconds after the recovery of one caller in which others may still feel a fault."""


class Healing(NamedTuple):
    """A fault, and the recovery of each thing that it affected."""

    fault: Fault
    recovered: list[Recovered]

    @property
    def span(self) -> Span:
        """When it may be felt."""
        return self.fault.at, max([self.fault.until, *(each.at for each in self.recovered)]) + AFTERMATH

    @property
    def took(self) -> float | None:
        """Seconds from its end until all was as before; None if nobody saw that."""
        return max((each.took for each in self.recovered), default=None)


@dataclass
class Record:
    """A run. Each list is in the order of the logs.

    `told` counts all calls by name and outcome; `calls` has those that failed, or took longer than their timeout.
    """

    queues: dict[str, History] = field(default_factory=lambda: defaultdict(History))
    faults: list[Fault] = field(default_factory=list)
    recoveries: list[Recovered] = field(default_factory=list)
    calls: list[Told] = field(default_factory=list)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    figures: list[Figures] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    keys: list[Keys] = field(default_factory=list)
    allowed: list[LostAllowed] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Record:
        """What all logs of a folder say."""
        record = cls()
        for path in events.files(folder):
            record.add(events.read(path, record.damages))
        return record

    def add(self, log: Iterable[Event]) -> None:
        """What the log of one process says."""
        gather(self._sift(log), self.queues, self.damages)

    def _sift(self, log: Iterable[Event]) -> Iterator[Event]:
        """Keep what is of no message; the rest is for the histories of queues."""
        tried = Try([])
        for event in log:
            match event:
                case Try():
                    tried = event
                    yield event
                case Told():
                    self._hear(event, tried)
                case Fault():
                    self.faults.append(event)
                case Recovered():
                    self.recoveries.append(event)
                case Figures():
                    self.figures.append(event)
                case Process():
                    self.processes.append(event)
                case Keys():
                    self.keys.append(event)
                case LostAllowed():
                    self.allowed.append(event)
                case _:
                    yield event

    def _hear(self, told: Told, tried: Try) -> None:
        """Note a call; a write names the values that it wrote, or is one of those that were tried last."""
        self.told[told.call, told.outcome] += 1
        if told.outcome != "ok" or (told.timeout is not None and told.answered - told.at > told.timeout):
            self.calls.append(told)
        if told.call not in WRITES:
            return
        if told.values and told.outcome == "ok":
            history = self.queues[told.queue]
            for value in told.values:
                history.ids.setdefault(value, [])
                history.answered.setdefault(value, told.answered)
        elif not told.values:
            told.values, told.queue = tried.values, tried.queue
        history = self.queues[told.queue]
        for value in told.values:
            if math.isnan(history.tried.get(value, 0.0)):
                history.tried[value] = told.at

    def healings(self) -> list[Healing]:
        """Each fault with the recoveries of its name that came after it, and before the next one of its name."""
        of = defaultdict[str, list[Recovered]](list)
        for recovered in sorted(self.recoveries, key=lambda each: each.at):
            of[recovered.name].append(recovered)
        found = []
        for fault in sorted(self.faults, key=lambda each: each.at, reverse=True):
            some, at = of[fault.name], fault.at
            first = bisect_left(some, at, key=lambda each: each.at)
            found.append(Healing(fault, some[first:]))
            del some[first:]
        return found[::-1]

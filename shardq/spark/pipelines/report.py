"""What a pipeline says: each step while it runs, and a short report at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shardq.clock import Clock, SystemClock

Say = Callable[[str], None]


def silent(text: str) -> None:
    """Say nothing."""


@dataclass(slots=True)
class Report:
    """What a pipeline did: figures by name, and sentences that judge them."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def fields(self) -> Mapping[str, Any]:
        """For programs."""
        return {"pipeline": self.name, **self.figures, "remarks": self.remarks, "seconds": self.seconds}


@dataclass(slots=True)
class Progress:
    """Tells which step runs, and writes down how long each took."""

    report: Report
    say: Say = silent
    clock: Clock = field(default_factory=SystemClock)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step that begins and ends here; told when it begins, timed when it ends well."""
        self.say(f"{name} ...")
        begun = self.clock.monotonic()
        yield
        self.report.seconds[name] = round(self.clock.monotonic() - begun, 3)

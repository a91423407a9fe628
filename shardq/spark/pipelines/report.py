"""What a pipeline says: each step while it runs, and a short report at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from shardq.clock import Clock, SystemClock

Say = Callable[[str], None]
Sofar = Callable[[], str]


def silent(text: str) -> None:
    """Say nothing."""


def unknown() -> str:
    """How far a step is that does not tell."""
    return ""


def unwatched(step: str, sofar: Sofar) -> AbstractContextManager[None]:
    """Nobody looks while it runs."""
    return nullcontext()


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
    """Tells which step runs, and writes down how long each took.

    `watch` looks at a step while it runs (`shardq.spark.pipelines.watch`); `sofar` says how far it is, where the step
    sets it. That is called on another thread.
    """

    report: Report
    say: Say = silent
    watch: Callable[[str, Sofar], AbstractContextManager[None]] = unwatched
    clock: Clock = field(default_factory=SystemClock)
    sofar: Sofar = unknown

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step that begins and ends here; told when it begins, timed when it ends well."""
        self.say(f"{name} ...")
        self.sofar, begun = unknown, self.clock.monotonic()
        with self.watch(name, self._sofar):
            yield
        self.report.seconds[name] = round(self.clock.monotonic() - begun, 3)

    def _sofar(self) -> str:
        return self.sofar()  # as it is set by then

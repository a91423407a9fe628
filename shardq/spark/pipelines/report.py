"""The output of a pipeline: its steps while it runs, and a short report at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from shardq.clock import Clock, SystemClock

Say = Callable[[str], None]
Sofar = Callable[[], str]


def unknown() -> str:
    """The progress of a step that does not report any."""
    return ""


@dataclass(slots=True)
class Report:
    """The result of a pipeline: figures by name, remarks in sentences, and the seconds that each step took."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def fields(self) -> Mapping[str, Any]:
        """The report for JSON."""
        return {"pipeline": self.name, **self.figures, "remarks": self.remarks, "seconds": self.seconds}


@dataclass(slots=True)
class PipelineProgress:
    """Tells which step runs, and writes down how long each took.

    `watch` looks at a step while it runs (`shardq.spark.pipelines.watch`); `sofar` says how far it is, where the step
    sets it. That is called on another thread. `check` is called before each step, and raises if it must not begin.
    """

    report: Report
    say: Say = lambda text: None
    watch: Callable[[str, Sofar], AbstractContextManager[None]] = lambda step, sofar: nullcontext()
    clock: Clock = field(default_factory=SystemClock)
    sofar: Sofar = unknown
    check: Callable[[], None] = lambda: None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run a step in this context: it is printed when it begins, and timed if it succeeds."""
        self.check()
        self.say(f"{name} ...")
        self.sofar, begun = unknown, self.clock.monotonic()
        with self.watch(name, self._sofar):
            yield
        self.report.seconds[name] = round(self.clock.monotonic() - begun, 3)

    def _sofar(self) -> str:
        return self.sofar()  # looked up at each call, because a step may set it later

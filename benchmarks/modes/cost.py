"""What a mode cost one contender in one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from benchmarks.modes.cycles import VERBS
from benchmarks.modes.mode import SUM


@dataclass(frozen=True, slots=True)
class Cost:
    """By verb, µs of CPU and of scripts for each message, and how often each command ran."""

    cpu: Mapping[str, float]
    scripts: Mapping[str, float]
    commands: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, spent: Mapping[str, dict[str, float]]) -> Self:
        """Make it from what an agent told."""
        cpu = {verb: found.pop("cpu") for verb, found in spent.items()}
        scripts = {verb: found.pop("scripts", 0.0) for verb, found in spent.items()}
        if set(VERBS) <= set(cpu):
            for each in (cpu, scripts):
                each[SUM] = sum(each[verb] for verb in VERBS)
        return cls(cpu, scripts, spent)

    def commands_in_all(self) -> float:
        """How many commands a message took: those in scripts, not those that run scripts."""
        return sum(sum(found.values()) for found in self.commands.values())

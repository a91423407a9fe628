"""How many times its reference's CPU a mode took, and whether it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.modes.cost import Cost
from benchmarks.modes.cycles import VERBS
from benchmarks.modes.mode import COMMANDS, EACH, SUM, Most


@dataclass(frozen=True, slots=True)
class Ratios:
    """By verb, the ratios of the rounds."""

    found: dict[str, list[float]]

    @classmethod
    def of(cls, costs: Sequence[Cost], reference: Sequence[Cost]) -> Ratios:
        """Those of *costs* to *reference*, of verbs that both have."""
        pairs = list(zip(costs, reference, strict=True))
        verbs = [verb for verb in costs[0].cpu if verb in reference[0].cpu]
        found = {verb: [own.cpu[verb] / other.cpu[verb] for own, other in pairs] for verb in verbs}
        found[COMMANDS] = [own.commands_in_all() / (other.commands_in_all() or 1) for own, other in pairs]
        return cls(found)

    def middle(self, verb: str) -> float:
        """The median of a verb's."""
        return median(self.found[verb])

    def cell(self, verb: str) -> str:
        """The same, to show; nothing for a verb that is not known."""
        return f"{self.middle(verb):.2f}" if verb in self.found else ""

    def spread(self) -> str:
        """Between which ratios the middle half of the rounds lies, in all."""
        ordered = sorted(self.found[SUM if SUM in self.found else next(iter(self.found))])
        quarter = len(ordered) // 4
        return f"{ordered[quarter]:.2f} to {ordered[-1 - quarter]:.2f}"

    def missed(self, most: Most) -> list[str]:
        """The verbs whose median is above their bound."""
        return [verb for verb, bound in _spelled_out(most).items() if verb in self.found and self.middle(verb) > bound]


def _spelled_out(most: Most) -> dict[str, float]:
    """The bound of each verb."""
    bounds = dict(most)
    for_each = bounds.pop(EACH, None)
    return bounds if for_each is None else {**dict.fromkeys(VERBS, for_each), **bounds}


def said(most: Most) -> str:
    """A bound as a table shows it: "sum 1.4, each 2.5"."""
    return ", ".join(f"{verb} {bound:g}" for verb, bound in most.items())

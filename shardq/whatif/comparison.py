"""Several replays of one history beside what was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from shardq.whatif.alternative import Alternative
from shardq.whatif.history import History
from shardq.whatif.outcome import Outcome, outcome_of, outcome_was
from shardq.whatif.replay import replayed
from shardq.whatif.server import MovedServer

AS_IT_WAS = "as it was"
REPLAYED = "replayed"


class Comparison(msgspec.Struct, frozen=True):
    """What `was`, the same `replayed` with nothing otherwise, and the outcome of each alternative.

    How far the second is from the first is how far a replay of this history can be trusted.
    """

    was: Outcome
    replayed: Outcome
    others: list[Outcome]

    @property
    def outcomes(self) -> list[Outcome]:
        """All of them, in this order."""
        return [self.was, self.replayed, *self.others]


def compared(
    history: History,
    alternatives: Sequence[Alternative],
    *,
    within: float,
    tell: Callable[[str], object] = lambda _: None,
) -> Comparison:
    """Replay *history* under each of the *alternatives*. *within* is the longest wait that counts as in time.

    *tell* is called with the name of each replay before it begins.
    """
    found = []
    with MovedServer() as server:
        for each in (Alternative(REPLAYED), *alternatives):
            tell(each.name)
            found.append(outcome_of(each.name, history, replayed(history, each, server), within))
    return Comparison(outcome_was(history, within), found[0], found[1:])


def cheapest(comparison: Comparison, objective: float) -> Outcome | None:
    """Return the replay of the fewest slot-seconds that meets the *objective*, a share in time; None if none does."""
    met = [each for each in (comparison.replayed, *comparison.others) if each.in_time >= objective and not each.never]
    return min(met, key=lambda each: each.slot_seconds, default=None)

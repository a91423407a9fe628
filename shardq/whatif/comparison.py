"""Several replays of one history beside what was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from shardq.whatif.alternative import Alternative
from shardq.whatif.history import History
from shardq.whatif.outcome import REPLAYED, Projection, outcome_of, outcome_was
from shardq.whatif.replay import replayed
from shardq.whatif.server import MovedServer


class Comparison(msgspec.Struct, frozen=True):
    """The past (`was`), and the outcomes of replays.

    The first has nothing otherwise, if it is known which workers there were. How far that is from what was is how far
    the others can be trusted.
    """

    was: Projection
    replays: list[Projection]

    @property
    def outcomes(self) -> list[Projection]:
        """All of them."""
        return [self.was, *self.replays]


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
        for each in (*unchanged(history), *alternatives):
            tell(each.name)
            found.append(outcome_of(each.name, history, replayed(history, each, server), within))
    return Comparison(outcome_was(history, within), found)


def unchanged(history: History) -> list[Alternative]:
    """Return the alternative in which nothing is otherwise; none if it is not known which workers there were."""
    return [Alternative(REPLAYED)] if history.stays else []


def cheapest(comparison: Comparison, objective: float) -> Projection | None:
    """Return the replay of the fewest slot-seconds that meets the *objective*, a share in time; None if none does."""
    met = [each for each in comparison.replays if each.in_time >= objective and not each.never]
    return min(met, key=lambda each: each.slot_seconds, default=None)

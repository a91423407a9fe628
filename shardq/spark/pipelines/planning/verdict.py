"""The verdict on each candidate from its survey, and the choice among the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any, Final

import numpy as np

from shardq.planner.costs import cost
from shardq.planner.odds import busy
from shardq.spark.pipelines.planning.model import bucket_end
from shardq.spark.pipelines.planning.survey import Candidate, Survey

WAITS: Final = (0.5, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One candidate. Shares are of the quiet tenants; waits are in seconds, at the end of their bucket."""

    candidate: Candidate
    tenants: int
    isolated: float
    """The share that has a clean stream."""
    in_time: float
    """The share that waits no longer than the goal allows."""
    without_clean: int
    """How many tenants have no clean stream."""
    waits: tuple[float, ...]
    """The median, 99th and 99.9th percentile of the tenants' waits."""
    worst: float
    loaded_wait: float
    """The 99th percentile of the waits of messages: tenants are weighted by their loads."""
    shared: tuple[float, ...]
    """The blast radius of one flood: the share of tenants that share j streams with it, for j = 0 to M."""
    same_shard: float
    """Other tenants with exactly the shard of a given one, on average."""
    hottest: float
    """The load of the busiest stream, divided by the mean."""
    busy: float
    """How many streams the floods write to, on average."""
    memory: int

    @property
    def price(self) -> float:
        """Memory times waiting, as in `shardq.planner.choice`."""
        return self.candidate.streams * self.busy

    def fields(self) -> dict[str, Any]:
        """The verdict for JSON."""
        numbers = asdict(self)
        del numbers["candidate"]
        return {"streams": self.candidate.streams, "streams_per_shard": self.candidate.width, **numbers}


def judged(survey: Survey, noisy: int, within: float) -> Verdict:
    """The verdict of *survey*; a wait of at most *within* seconds is in time."""
    each, tenants = survey.candidate, int(survey.clean[:, 0].sum())
    numbers = sorted(survey.wait)
    counts = np.array([survey.wait[number] for number in numbers])
    early = sum(survey.wait[number][0] for number in numbers if bucket_end(number) <= within)
    mean = survey.stream.mean()
    return Verdict(
        each,
        tenants,
        isolated=1 - survey.clean[0, 0] / tenants,
        in_time=float(early) / tenants,
        without_clean=int(survey.clean[0, 0]),
        waits=tuple(_percentile(numbers, counts[:, 0], share) for share in WAITS),
        worst=bucket_end(numbers[-1]),
        loaded_wait=_percentile(numbers, counts[:, 1], 0.99),
        shared=tuple((survey.shared[:, 0] / tenants).tolist()),
        same_shard=(tenants - 1) / comb(each.streams, each.width),
        hottest=float(survey.stream.max() / mean) if mean else 1.0,
        busy=busy(each.streams, each.width, noisy),
        memory=cost(each.streams, each.width).memory,
    )


def _percentile(numbers: Sequence[int], weights: Any, share: float) -> float:
    summed = np.cumsum(weights)
    return bucket_end(numbers[int(np.searchsorted(summed, share * summed[-1] * (1 - 1e-12)))])


def recommended(verdicts: Sequence[Verdict], isolation: float) -> tuple[Verdict, dict[Candidate, str]]:
    """The recommended candidate, and for each candidate the reason why it is recommended or not.

    Of the candidates with which the share *isolation* of the tenants is in time, the one with the lowest price is
    recommended; if there is none, the one with the largest share.
    """
    good = [each for each in verdicts if each.in_time >= isolation]
    chosen = min(good, key=lambda each: each.price) if good else max(verdicts, key=lambda each: each.in_time)
    return chosen, {each.candidate: _reason(each, chosen, isolation) for each in verdicts}


def _reason(each: Verdict, chosen: Verdict, isolation: float) -> str:
    share = f"{each.in_time:.3%} wait no longer than wanted"
    if each.in_time < isolation:
        if each is chosen:
            return f"best of those surveyed, but falls short: {share}, {isolation:.3%} were wanted: add streams"
        return f"falls short: {share}, {isolation:.3%} were wanted"
    if each is chosen:
        return f"{share}, and streams x busy streams are least: {each.candidate.streams:,} x {each.busy:,.0f}"
    return f"reaches it, too, at {each.price / chosen.price:.1f} times the streams x busy streams"

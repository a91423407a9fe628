"""The findings on one queue's fairness: a bounded number of rows as plain values, and remarks in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shardq.spark.pipelines.fairness.neighbours import Neighbourhood, Noisy, neighbourhood
from shardq.spark.pipelines.fairness.service import Fairness, percentiles

TOP: Final = 20
DRAWN: Final = 8
"""How many shard keys are listed, and drawn by window: those with the most deliveries."""

FAIR: Final = 0.9
"""A window counts as fair if Jain's index is at least this."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings on one queue. `windows` and `top` are rows of `Fairness`; `served` has deliveries by shard key."""

    queue: str
    window: int
    begin: datetime
    end: datetime
    totals: Mapping[str, Any]
    windows: list[Mapping[str, Any]]
    top: list[Mapping[str, Any]]
    served: dict[str, dict[datetime, int]]
    around: Neighbourhood

    @property
    def jain(self) -> float | None:
        """The mean of Jain's index over the windows, weighted by their deliveries."""
        weighed = [(each["jain"], each["picked"]) for each in self.windows if each["jain"] is not None]
        weight = sum(picked for _, picked in weighed)
        return sum(jain * picked for jain, picked in weighed) / weight if weight else None

    def figures(self) -> dict[str, Any]:
        """The figures for JSON, without the rows."""
        named = ("keys", "arrived", "picked", "repeated", "dead", "p50", "p95", "p99")
        return {
            "queue": self.queue, "window": self.window, "windows": len(self.windows), "begin": self.begin,
            "end": self.end, **{name: self.totals[name] for name in named}, "jain": self.jain,
            "noisy": [shown_text(each.shard_key) for each in self.around.noisy],
            "clean": [asdict(each) for each in self.around.clean],
        }  # fmt: skip

    def remarks(self) -> list[str]:
        """What the figures mean, in sentences."""
        rated = [each for each in self.windows if each["jain"] is not None]
        if not rated:
            waiting = self.windows[-1]["waiting"] if self.windows else 0
            return [f"nothing was served in {len(self.windows)} windows; {waiting:,} messages were waiting at the end"]
        return [*self._judged(rated), *self._noisy(), *self._isolation()]

    @staticmethod
    def _judged(rated: list[Mapping[str, Any]]) -> list[str]:
        unfair = [each for each in rated if each["jain"] < FAIR]
        if not unfair:
            return [f"service was fair: Jain's index was at least {FAIR:g} in all {len(rated)} windows with service"]
        worst = min(unfair, key=lambda each: each["jain"])
        where = f"{worst['jain']:.2f} at {worst['window']:%Y-%m-%d %H:%M:%S}"
        return [f"in {len(unfair)} of {len(rated)} windows Jain's index was below {FAIR:g}; the worst was {where}"]

    def _noisy(self) -> list[str]:
        found = {each["shard_key"]: each for each in self.top}
        texts = [self._excess(each, found[each.shard_key]) for each in self.around.noisy[:3] if each.shard_key in found]
        return texts or ["no shard key asked for more than twice its fair share"]

    @staticmethod
    def _excess(noisy: Noisy, row: Mapping[str, Any]) -> str:
        return (
            f"{shown_text(noisy.shard_key)} asked for more than twice its fair share in {row['noisy']} windows: "
            f"{share_text(row['demand_share'])} of the messages, {share_text(row['share'])} of the service; "
            f"{sum(noisy.sharing):,} others share streams with it"
        )

    def _isolation(self) -> list[str]:
        none = next((each for each in self.around.clean if each.clean == 0), None)
        if none is None or none.p95 is None:
            return []
        rest = [each for each in self.around.clean if each.clean and each.p95 is not None]
        beside = f", beside {rest[-1].p95:,.0f} ms where {rest[-1].clean} are left" if rest else ""
        return [f"{none.keys:,} quiet shard keys had no stream without a noisy one: p95 {none.p95:,.0f} ms{beside}"]


def findings(fairness: Fairness, tallies: DataFrame, shards: DataFrame, queue: str, window: int) -> Findings:
    """The findings on *queue*; *shards* has the streams of each shard key, as `shards` makes it."""
    mine = F.col("queue") == queue
    keys = fairness.keys.where(mine).persist()
    try:
        windows = [_in_utc(row) for row in fairness.by_window.where(mine).orderBy("window").collect()]
        top = [
            row.asDict() for row in keys.orderBy(F.desc("picked"), F.desc("demand"), "shard_key").limit(TOP).collect()
        ]
        own = tallies.where(mine & F.col("shard_key").isNotNull())
        around = neighbourhood(keys, own, shards.where(mine))
        totals: Any = own.agg(*(F.sum(name).alias(name) for name in SUMMED), *percentiles()).first()
        drawn = [row["shard_key"] for row in top[:DRAWN]]
        return Findings(
            queue, window, fairness.begin.astimezone(UTC), fairness.end.astimezone(UTC),
            totals.asDict() | {"keys": keys.count()}, windows, top,
            _served(fairness.by_key.where(mine), drawn), around,
        )  # fmt: skip
    finally:
        keys.unpersist()


SUMMED: Final = ("arrived", "picked", "repeated", "dead", "lease_ended")


def _in_utc(row: Any) -> Mapping[str, Any]:
    """A row as a dict. Spark returns times as naive local ones, so the window's time is made UTC."""
    columns: dict[str, Any] = row.asDict()
    return columns | {"window": row.window.astimezone(UTC)}


def _served(by_key: DataFrame, drawn: list[Any]) -> dict[str, dict[datetime, int]]:
    served: dict[str, dict[datetime, int]] = {shown_text(key): {} for key in drawn}
    for row in by_key.where(F.col("shard_key").isin(drawn)).select("shard_key", "window", "picked").collect():
        served[shown_text(row.shard_key)][row.window.astimezone(UTC)] = row.picked
    return served


def share_text(share: float | None) -> str:
    """A share in percent; `-` if there was nothing to have a share of."""
    return "-" if share is None else f"{share:.1%}"


def shown_text(shard_key: Any) -> str:
    """A shard key as text for people, at most 60 characters of it, from a column of text or of bytes.

    Tenants choose shard keys, so characters that would control a terminal are escaped.
    """
    text = shard_key if isinstance(shard_key, str) else bytes(shard_key).decode(errors="backslashreplace")
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:60])
    return safe if len(safe) <= 60 else safe[:57] + "..."

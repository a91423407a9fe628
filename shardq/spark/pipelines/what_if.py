"""The pipeline "what-if": a Spark task replays one hour of a queue under one alternative.

Each does it as `shardq what-if` does, on a server of its own whose clock is moved. Spark only spreads the replays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import SparkSession

from shardq.whatif.alternative import Alternative
from shardq.whatif.comparison import Comparison, unchanged
from shardq.whatif.history import History
from shardq.whatif.outcome import Projection, outcome_of, outcome_was
from shardq.whatif.replay import replayed
from shardq.whatif.server import MovedServer


def compared_by_spark(
    spark: SparkSession, hours: Mapping[float, History], alternatives: Sequence[Alternative], *, within: float
) -> dict[float, Comparison]:
    """Return what `shardq.whatif.comparison.compared` returns for each of the *hours*, by their begins.

    Each replay is a task; the driver works out the past itself.
    """
    if not hours:
        return {}
    context = spark.sparkContext
    asked = [*unchanged(next(iter(hours.values()))), *alternatives]
    histories = context.parallelize([*hours.values()], len(hours))
    pairs = histories.cartesian(context.parallelize(asked, len(asked)))
    found = pairs.map(partial(_outcome, within=within)).collect()
    return {
        begin: Comparison(outcome_was(history, within), found[at * len(asked) : (at + 1) * len(asked)])
        for at, (begin, history) in enumerate(hours.items())
    }


def _outcome(pair: tuple[History, Alternative], within: float) -> Projection:
    """Replay an hour under an alternative; runs in a task."""
    history, alternative = pair
    with MovedServer() as server:
        return outcome_of(alternative.name, history, replayed(history, alternative, server), within)

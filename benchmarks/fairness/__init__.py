"""fairness: how long do quiet tenants wait on the real queue while others flood?

The workload is that of `benchmarks.orders`, with the same shards and the same random choices.
"""

from __future__ import annotations

from benchmarks.fairness import served
from benchmarks.report import Table
from benchmarks.settings import Place
from shardq import Client


def run(place: Place) -> list[Table]:
    """The one table: at full size 10,000 dequeues and 3 seeds per cell."""
    seeds = range(1, max(2, place.settings.rounds // 2 + 1))
    with Client.from_url(place.url) as client:
        return [served.table(place, client, place.settings.messages, seeds)]

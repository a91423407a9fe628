"""fairness: how long quiet tenants wait while others flood, by the order in which the queue hands out.

First models of several orders, without I/O; then the real queue under the same workload, with the same shards and the
same random choices.
"""

from __future__ import annotations

from benchmarks.fairness import models, served
from benchmarks.report import Table
from benchmarks.settings import Place
from shardq import Client


def run(place: Place) -> list[Table]:
    """All tables: 30,000 dequeues and 5 seeds per cell of the models at full size, 10,000 and 3 of the proof."""
    messages, rounds = place.settings.messages, place.settings.rounds
    tables = models.tables(messages, range(1, max(2, rounds - 1)))
    with Client.from_url(place.url) as client:
        return tables + served.tables(place, client, messages, range(1, max(2, rounds // 2 + 1)))

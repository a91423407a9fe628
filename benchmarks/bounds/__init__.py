"""bounds: what each script takes beside a million tenants, and a hundred thousand members of each index.

A queue is filled with all that can grow: tenants with messages, leases, tokens and pauses that time has brought back,
delayed messages, dead letters, idle tenants, unique keys (`full`). Then each call is made many times, in each state
that a queue can be in (`states`), while the server's CPU and its log of slow scripts are looked at (`clock`).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bounds import leases
from benchmarks.bounds.tables import table
from benchmarks.report import Table
from benchmarks.settings import Place


def run(where: Place) -> Iterator[Table]:
    """The calls, then masses of leases that end together."""
    yield table(where)
    yield leases.table(where)

"""edge: producers without access to Redis, over a link as the seed's; and a gateway beside Redis itself.

Metrics of a site (`metrics`) go over a modelled link (`link`): by 54 connections that wait for each ack, as in the
seed's first system, and by one connection with a window, plain, with zstd, and with zstd and a dictionary of its own
traffic. Each message must be in the queue once. The time is that from the first message to the last ack.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Table
from benchmarks.settings import Place


def run(where: Place) -> Iterator[Table]:
    """All tables; with `--quick` those that take a minute."""
    from benchmarks.edge.tables import run  # modules of this package run as processes, too, and need none of it

    return run(where)

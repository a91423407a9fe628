"""What one task reads."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Part(InputPartition):
    """Some streams of a queue (and `:bodies`, the stream of delayed messages), or a range between two points.

    A range is of the queue with the id `life`, and of no other that has its name later.
    """

    queue: str
    places: tuple[str, ...] = ()
    after: str = "-"
    until: str = "+"
    life: str = ""


def default_parts() -> int:
    """Two parts for each core of this machine, where `register` did not ask the cluster for its cores.

    More would cost time, since each Python task takes at least 50 ms.
    """
    return 2 * (os.cpu_count() or 1)

"""What one task reads."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Part(InputPartition):
    """Streams of a queue, by number (and the store of delayed messages), or what lies after one point up to another."""

    queue: str
    places: tuple[str, ...] = ()
    after: str = "-"
    until: str = "+"


def default_parts() -> int:
    """Two for each core of this machine: a Python task costs 50 ms whatever it does."""
    return 2 * (os.cpu_count() or 1)

"""What one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Part(InputPartition):
    """Streams of a queue, by number (and the store of delayed messages), or what lies after one point up to another."""

    queue: str
    places: tuple[str, ...] = ()
    after: str = "-"
    until: str = "+"

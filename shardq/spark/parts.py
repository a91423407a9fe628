"""The part that one task reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardq.extras import extra

with extra("spark"):
    from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from shardq.spark.ops.sweep import KeyShare


@dataclass(frozen=True)
class SparkPart(InputPartition):
    """Some streams of a queue (and `:bodies`, the stream of delayed messages), or a range between two points.

    The `queue` is a tag: that of a partition, if it has some. A range is of the queue with the id `life`, and of no
    other that has its name later. With a *share* it is of the shard keys in this, and of large ones between the points;
    `keys` are those that had an overflow.
    """

    queue: str
    places: tuple[str, ...] = ()
    after: str = "-"
    until: str = "+"
    life: str = ""
    share: KeyShare | None = None
    keys: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Bundle(InputPartition):
    """Parts that one task reads, one after the other, since each is small."""

    parts: tuple[SparkPart, ...]


def bundled(parts: Sequence[SparkPart], most: int) -> list[SparkPart | Bundle]:
    """*parts*, those that are all of their queue or partition in at most *most* tasks."""
    counts = Counter(part.queue for part in parts)
    small = [part for part in parts if counts[part.queue] == 1]
    if len(small) <= most:
        return [*parts]
    bundles = [Bundle(tuple(small[nth::most])) for nth in range(most)]
    return [*(part for part in parts if counts[part.queue] > 1), *bundles]


def share(most: int, partitions: int = 1) -> int:
    """How many parts each of a queue's *partitions* is read in, where the queue is to be read in *most* of them.

    Where `register` did not ask the cluster for its cores (0), they are two for each core of this machine: more would
    cost time, since each Python task takes at least 50 ms.
    """
    return max(1, (most or 2 * (os.cpu_count() or 1)) // partitions)

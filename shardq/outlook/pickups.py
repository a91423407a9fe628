"""How long messages waited until a worker had them, as the workers counted it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from shardq.model.worker_status import PICKUP_BOUNDS, WorkerStatus
from shardq.protocol.beats import percentile

PICKUP_SHARE: Final = 0.99
"""The share of pick-ups that were no slower than the value."""


def pickup_of_others(workers: Sequence[WorkerStatus], held: Collection[str | bytes]) -> float | None:
    """Return how long 99 of 100 messages of all but some waited in the last minute; None if nobody knows.

    Those that are *held* are left out: a large one, and who waits for a limit or a pause of its own.

    It is the slowest of those that workers report by name.
    """
    counts = [0] * len(PICKUP_BOUNDS)
    found = []
    for worker in workers:
        for at, count in enumerate(worker.other_tenants[: len(counts)]):
            counts[at] += count
        found += [each.pickup_p99 for each in worker.tenants if each.shard_key not in held]
    found.append(percentile(counts, PICKUP_SHARE))
    return max((each for each in found if each is not None), default=None)

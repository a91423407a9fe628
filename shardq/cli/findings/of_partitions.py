"""Problems with the partitions of a queue: two share a node, or some are read by nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from shardq.model.partitions import Partition
from shardq.model.wording import plural, span
from shardq.outlook.findings import Finding

UNSEEN_SECONDS: Final = 60.0
"""Seconds for which messages of one partition wait, while those of the head do not, if nobody reads it."""


def of_partitions(queue: str, parts: Sequence[Partition], nodes: Sequence[str]) -> Iterator[Finding]:
    """Yield what is wrong with the partitions of a queue on these *nodes* of a cluster."""
    if len(parts) < 2:
        return
    yield from _of_gone(queue, parts)
    yield from _of_places(queue, [each for each in parts if each.is_written and each.node], nodes)
    yield from _of_readers(queue, parts)


def _of_gone(queue: str, parts: Sequence[Partition]) -> Iterator[Finding]:
    gone = [str(each.number) for each in parts if each.is_gone]
    if gone:
        yield Finding(
            "partitions",
            f"{plural(len(gone), 'partition')} of it {'is' if len(gone) == 1 else 'are'} gone: {', '.join(gone)}.",
            "Somebody deleted the keys, or a node has lost them, with all that was there. Writes whose shard keys have "
            f"their home there fail until shardq resize {queue} --partitions "
            f"{sum(each.is_written for each in parts)} --yes recreates them.",
            queue,
        )


def _of_places(queue: str, parts: Sequence[Partition], nodes: Sequence[str]) -> Iterator[Finding]:
    loads = Counter(each.node for each in parts)
    free = [node for node in nodes if node not in loads]
    shared = [node for node, count in loads.items() if count > 1]
    if not (free and shared):
        return
    numbers = [str(each.number) for each in parts if each.node == shared[0]]
    yield Finding(
        "partitions",
        f"{' and '.join(numbers)} share {shared[0]}; {free[0]} has none.",
        f"Slots have moved, or a node is new. Move the slot of one there (redis-cli --cluster reshard), or have one "
        f"more, which will lie there: shardq resize {queue} --partitions {len(parts) + 1}.",
        queue,
    )


def _of_readers(queue: str, parts: Sequence[Partition]) -> Iterator[Finding]:
    """Yield that somebody reads the head alone: programs of a version before partitions see nothing else."""
    head, *others = [each.stats for each in parts]
    if head is None or (head.oldest_age or 0.0) >= UNSEEN_SECONDS or head.paused_until is not None:
        return
    late = [
        each for each in others if each is not None and each.runnable and (each.oldest_age or 0.0) >= UNSEEN_SECONDS
    ]
    if late:
        waits, since = sum(each.runnable for each in late), max(each.oldest_age or 0.0 for each in late)
        yield Finding(
            "partitions",
            f"{plural(waits, 'message')} wait for {span(since)}, and none of the head.",
            "Its readers may be of a version before partitions, and see the head alone. "
            f"Update readers first: shardq workers {queue} --json says which versions they are, and shardq partitions "
            f"{queue} what waits where.",
            queue,
        )

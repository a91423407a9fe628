"""Ids that follow each other, told by the first one and how many there are.

An id is a big-endian number of 1 to 64 bytes here. A client that numbers its messages names hundreds of them in twenty
bytes so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shardq.datasink.messages import Run
from shardq.errors import ShardqError

MAX_ID: Final = 64


class BadRuns(ShardqError):
    """Runs of ids that are none, or too many."""


def runs_of(ids: Iterable[bytes]) -> list[Any]:
    """Return the runs that name *ids*, in their order."""
    found: list[Any] = []
    first, count, following, size = b"", 0, -1, 0
    for each in ids:
        number = int.from_bytes(each, "big")
        if number == following and len(each) == size:
            count += 1
        else:
            if count:
                found.append(Run(first=first, count=count))
            first, count, size = each, 1, len(each)
        following = number + 1
    if count:
        found.append(Run(first=first, count=count))
    return found


def ids_in(runs: Sequence[Any], most: int) -> list[bytes]:
    """Return the ids that *runs* name. BadRuns if there are more than *most*, before any is made, or if one is none."""
    if len(runs) > most:  # each names one id at least, and becomes an object when it is looked at
        raise BadRuns(f"it names {len(runs):,} ids, more than {most:,}")
    if (count := sum(run.count for run in runs)) > most:
        raise BadRuns(f"it names {count:,} ids, more than {most:,}")
    found: list[bytes] = []
    for run in runs:
        first, size = run.first, len(run.first)
        if not run.count or not 1 <= size <= MAX_ID:
            raise BadRuns(f"a run of ids needs a count, and a first id of 1 to {MAX_ID} bytes")
        begin = int.from_bytes(first, "big")
        if begin + run.count > 1 << 8 * size:
            raise BadRuns("a run of ids continues beyond the largest id of its length")
        found += [number.to_bytes(size, "big") for number in range(begin, begin + run.count)]
    return found

"""A change of all partitions: where it fails in one, the error says which others have changed.

Each is changed by a call of its own, so nobody can change all or none. A change in a part is reported as PartlyDone,
and never as the error of one partition, which speaks of that alone: "nothing was changed".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar, cast

from shardq.errors import DurabilityUnknown, OutcomeUnknown, PartlyDone, ShardqError

T = TypeVar("T")


def all_changed(
    queue: str, found: Sequence[tuple[int, T | ShardqError]], unknown: type[ShardqError] | tuple[()] = ()
) -> list[T]:
    """Return what the partitions of *queue* said to a change: for each its number, and what it returned or its error.

    Those that said *unknown* do not have what was to be changed: it is elsewhere, or an earlier call has removed it.
    PartlyDone if it failed in some and not in others. DurabilityUnknown if it was made in all, and replicas did not
    confirm it everywhere.
    """
    found = [(number, each) for number, each in found if not isinstance(each, unknown)] or found
    unsure = [each for _, each in found if isinstance(each, DurabilityUnknown)]
    failed = {number: each for number, each in found if isinstance(each, ShardqError) and each not in unsure}
    if failed:
        _fail(queue, [number for number, _ in found if number not in failed], failed)
    results = [cast("T", each.result if isinstance(each, DurabilityUnknown) else each) for _, each in found]
    if unsure:
        raise DurabilityUnknown(str(unsure[0]), results[0]) from unsure[0]
    return results


def _fail(queue: str, changed: Sequence[int], failed: Mapping[int, ShardqError]) -> NoReturn:
    """Raise the error of a partition if none has changed for all that is known; else PartlyDone."""
    doubtful = {number: each for number, each in failed.items() if isinstance(each, (OutcomeUnknown, PartlyDone))}
    error = next(iter((doubtful or failed).values()))
    is_alone = len(failed) == 1 or not any(isinstance(each, PartlyDone) for each in failed.values())
    if not changed and is_alone:
        raise error
    rest = [number for number in failed if number not in doubtful]
    told = ("that were changed", changed), ("perhaps, or in part", doubtful), ("not", rest)
    where = "; ".join(f"{what}: {_spelled(numbers)}" for what, numbers in told if numbers)
    text = f"partitions of queue {queue!r} {where}. Make the same call again; the error: {error}"
    raise PartlyDone(text, len(changed)) from error


def _spelled(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))

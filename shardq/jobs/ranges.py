"""Folders of one batch or run, and those into which several were compacted, which cover them: `run=…3`, `run=…3-…9`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""The first and the last number that a folder has."""


def ranges_of(kind: str, names: Iterable[str]) -> dict[str, Range]:
    """Return which numbers are in each of those folders that are of this *kind*, "batch" or "run".

    >>> ranges_of("run", ["run=000000000003", "run=000000000004-000000000009", "run=5", "_lock"])
    {'run=000000000003': (3, 3), 'run=000000000004-000000000009': (4, 9)}
    """
    pattern = re.compile(rf"{kind}=([0-9]{{12}})(?:-([0-9]{{12}}))?")
    found = {each: pattern.fullmatch(each) for each in names}
    return {each: (int(span[1]), int(span[2] or span[1])) for each, span in found.items() if span}


def covers(wide: Range, narrow: Range) -> bool:
    """Whether the numbers *wide* hold *narrow* and more."""
    return wide != narrow and wide[0] <= narrow[0] and narrow[1] <= wide[1]


def uncovered(ranges: Mapping[str, Range]) -> list[str]:
    """Return the folders that no other one covers, in the order of their numbers."""
    found = [each for each, span in ranges.items() if not any(covers(other, span) for other in ranges.values())]
    return sorted(found, key=ranges.__getitem__)

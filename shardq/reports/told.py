"""The contents of a report: its verdict first, then facts, tables and a picture. Texts in it may be of tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of texts below `columns`; the first `names` columns are names, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1


@dataclass(frozen=True)
class Told:
    """The contents of a report.

    `is_bad` says that the verdict is one that somebody should act on. `picture` is SVG, `rows` is what the query
    returned, for programs.
    """

    title: str
    verdict: str
    is_bad: bool
    tables: Sequence[Table]
    picture: str
    rows: Sequence[Mapping[str, Any]]
    remarks: Sequence[str] = field(default_factory=tuple)

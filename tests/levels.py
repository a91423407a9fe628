"""What docs/durability.md says that each level survives."""

from __future__ import annotations

import re
from typing import Final

from tests.house.doc_blocks import ROOT

PAGE: Final = (ROOT / "docs" / "durability.md").read_text()
ROW: Final = re.compile(r"^\| `([a-z]+)(?:\(n\))?` \| .+? \| (.+?) \| (.+?) \|$", re.MULTILINE)
"""A level, what it survives beside what those before it do, and what it does not survive."""


def survived(level: str) -> str:
    """What the page says that a level survives."""
    rows = {name: more for name, more, _ in ROW.findall(PAGE)}
    names = [*rows]
    return " ".join(rows[each] for each in names[: names.index(level.partition("(")[0]) + 1])


def not_survived(level: str) -> str:
    """What the page says that a level does not survive."""
    rows: dict[str, str] = {name: less for name, _, less in ROW.findall(PAGE)}
    return rows[level.partition("(")[0]]


def survives_promotion(level: str) -> bool:
    """Whether a write is there when a replica that has it is promoted; else its loss is allowed."""
    return "when a replica that has the write is promoted" in survived(level)


def survives_kill(level: str) -> bool:
    """Whether a write is there when the server was killed and is started again."""
    return "`kill -9`" in survived(level)

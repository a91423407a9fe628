"""The diagrams of docs/worker.md, drawn from the worker's tables: `python -m tests.house.diagrams` redraws them."""

from __future__ import annotations

import re
from pathlib import Path

from shardq.worker.state import LIFE, MESSAGE, SLOT, Table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "worker.md"
TABLES = {"life": LIFE, "message": MESSAGE, "slot": SLOT}
PLACE = r"(<!-- diagram: {name} -->\n)(.*?)(<!-- end -->)"


def drawn(table: Table) -> str:
    """A Mermaid state diagram; what changes nothing is left out."""
    first = next(iter(table))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state, events in table.items():
        moves: dict[str, list[str]] = {}
        for event, to in events.items():
            if to != state:
                moves.setdefault(to, []).append(event)
        lines += [f"    {state} --> {to}: {', '.join(names)}" for to, names in moves.items()]
        if not moves:
            lines.append(f"    {state} --> [*]")
    return "\n".join([*lines, "```", ""])


def redrawn(page: str) -> str:
    """*page* with each diagram as its table has it; ValueError for one that is missing."""
    for name, table in TABLES.items():
        place = re.compile(PLACE.format(name=name), re.DOTALL)
        if not place.search(page):
            raise ValueError(f"there is no place for the diagram {name!r}")
        page = place.sub(lambda found, table=table: found[1] + drawn(table) + found[3], page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text()))

"""The diagrams of docs/worker.md and docs/internals/flow.md, from their tables.

`python -m tests.house.diagrams` redraws them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from shardq.flow import table as flow
from shardq.flow.receiver import RECEIVER
from shardq.flow.sender import SENDER
from shardq.worker.state import LIFE, MESSAGE, SLOT

Moves: TypeAlias = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By state and event: the next state for each text that stands at the arrow."""

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLACE = r"(<!-- diagram: {name} -->\n)(.*?)(<!-- end -->)"


def of_worker(table: Mapping[str, Mapping[str, str]]) -> Moves:
    """The moves of a table whose cells are states."""
    return {state: {event: {event: to} for event, to in events.items()} for state, events in table.items()}


def of_flow(table: flow.Table) -> Moves:
    """The moves of a table whose cells have actions, and next states by condition."""
    return {
        state: {
            event: {_label(event, cell.action, when): to for when, to in cell.then.items()}
            for event, cell in events.items()
        }
        for state, events in table.items()
    }


def _label(event: str, action: str, when: str) -> str:
    condition = "" if when == flow.ALWAYS_CONDITION else f" [{when}]"
    return f"{event}{condition} / {action}"


PAGES: Mapping[str, Mapping[str, Moves]] = {
    "worker.md": {"life": of_worker(LIFE), "message": of_worker(MESSAGE), "slot": of_worker(SLOT)},
    "internals/flow.md": {"sender": of_flow(SENDER), "receiver": of_flow(RECEIVER)},
}


def drawn(table: Moves) -> str:
    """A Mermaid state diagram; what changes nothing is left out."""
    first = next(iter(table))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state, events in table.items():
        moves: dict[str, list[str]] = {}
        for labels in events.values():
            for label, to in labels.items():
                if to != state:
                    moves.setdefault(to, []).append(label)
        lines += [f"    {state} --> {to}: {', '.join(names)}" for to, names in moves.items()]
        if not moves:
            lines.append(f"    {state} --> [*]")
    return "\n".join([*lines, "```", ""])


def redrawn(page: str, tables: Mapping[str, Moves]) -> str:
    """*page* with each diagram as its table has it; ValueError for one that is missing."""
    for name, table in tables.items():
        place = re.compile(PLACE.format(name=name), re.DOTALL)
        if not place.search(page):
            raise ValueError(f"there is no place for the diagram {name!r}")
        page = place.sub(lambda found, table=table: found[1] + drawn(table) + found[3], page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    for name, tables in PAGES.items():
        (DOCS / name).write_text(redrawn((DOCS / name).read_text(), tables))

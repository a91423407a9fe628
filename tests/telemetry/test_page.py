"""The table of docs/telemetry.md is that of the code. `python -m tests.telemetry.test_page` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from shardq.telemetry.export import COUNTERS
from shardq.telemetry.instruments import INSTRUMENTS, LABELS, Instrument
from shardq.telemetry.tally import MAX_ERRORS, MAX_TASKS

PAGE: Final = Path(__file__).parents[2] / "docs" / "telemetry.md"
OF_PROCESSES: Final = {each.name for each in COUNTERS} | {each.name for each in INSTRUMENTS if each.buckets}
HEAD: Final = "| OpenTelemetry | Prometheus | kind, unit | labels | what |\n|---|---|---|---|---|\n"
TABLE: Final = re.compile(re.escape(HEAD) + r"(\|.*\n)*")


def row(each: Instrument) -> str:
    """One line of the table."""
    labels = ", ".join(f"`{LABELS[name]}`" for name in each.labels if name in LABELS)
    return f"| `{each.name}` | `{each.text}` | {each.kind}, {each.unit} | {labels} | {each.about} |\n"


def table() -> str:
    """The table of what clients and workers measure."""
    return HEAD + "".join(row(each) for each in INSTRUMENTS if each.name in OF_PROCESSES)


def test_the_table_has_each_instrument_of_a_process() -> None:
    found = TABLE.search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(), "write it anew: python -m tests.telemetry.test_page"


def test_the_page_names_the_bounds_and_the_buckets() -> None:
    text = PAGE.read_text()
    assert f"{MAX_TASKS} tasks" in text
    assert f"{MAX_ERRORS} types" in text
    for each in INSTRUMENTS:
        if each.buckets:
            assert ", ".join(f"{bound:g}" for bound in each.buckets) in text


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text()))

"""The table of docs/worker.md and the ends of this folder are about the same."""

from __future__ import annotations

import re
from pathlib import Path

from tests.worker.ends import lines
from tests.worker.ends.catalogue import ENDS

PAGE = Path(__file__).parents[3] / "docs" / "worker.md"
BY_HAND = {lines.ON_DEAD, lines.LIFESPAN, lines.LATE_LOOP, lines.ARGUMENTS, lines.KILLED}
"""Lines about a place, or about two jobs: no single end of a job is in them. `test_beside`,
`test_worst` and `test_lane` have them."""


def test_each_line_of_the_table_has_an_end_and_each_end_a_line() -> None:
    _, _, section = PAGE.read_text().partition("## What happens to a job?\n")
    rows = re.findall(r"^\| (.+?) \| .+ \|$", section.partition("\n## ")[0], re.MULTILINE)[1:]
    assert len(rows) == len(set(rows))
    assert set(rows) == {end.line for end in ENDS.values()} | BY_HAND

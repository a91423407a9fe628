"""Fills in pages, each mark up to the next `<!-- end -->`.

After `<!-- benchmarks: ARGUMENTS -->` come the tables of that command. After a mark of a short table come the columns
that it names (and of the rows all, or those that it names) of the table in benchmarks/results whose title begins so, if
that has these columns and is of the present engine: `<!-- table: PAGE | TITLE | COLUMN; COLUMN | ROW; ROW -->`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from benchmarks.report import Table
from benchmarks.settings import ROOT

MARK = re.compile(r"(<!-- benchmarks: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
SHORT = re.compile(
    r"(<!-- table: (\S+) \| ([^|\n]+) \| ([^|\n]+?)(?: \| ([^|\n]+))? -->\n).*?(<!-- end -->)", re.DOTALL
)
RESULTS: Final = ROOT / "benchmarks" / "results"
_WHOLE: Final = r"^\*\*{}[^*]*\*\* (.+)\n\n((?:\|.*\n)+)"
BEFORE: Final = "the engine before"
"""So a page says of a table that is not of the present engine."""
MISSING: Final = "*Not measured with this engine yet.*\n"


def publish(place: Path, run: Callable[[list[str]], list[Table]], only: Collection[str] = ()) -> None:
    """Run the commands that the pages of *place* mark, and replace the tables there; of a file, those of this page."""
    for page in sorted(place.glob("*.md")) if place.is_dir() else [place]:
        fill(page, run, only)
        page.write_text(shortened(page.read_text()))


def fill(page: Path, run: Callable[[list[str]], list[Table]], only: Collection[str] = ()) -> None:
    """Run the commands that *page* marks, and replace the tables there; *only* limits it to commands that begin so.

    The page is written after each command, so that an interrupted run is not lost.
    """

    def filled(mark: re.Match[str]) -> str:
        words = shlex.split(mark[2])
        if only and words[0] not in only:
            return mark[0]
        tables = run(words)
        parts = [f"**{table.title}.** {table.markdown()}\n" for table in tables]
        return "\n".join([mark[1], *parts]) + mark[3]

    for number in range(len(MARK.findall(page.read_text()))):
        text = page.read_text()
        mark = list(MARK.finditer(text))[number]
        page.write_text(text[: mark.start()] + filled(mark) + text[mark.end() :])


def shortened(text: str, results: Path = RESULTS) -> str:
    """The *text* of a page whose short tables are those of the pages of *results*."""

    def filled(mark: re.Match[str]) -> str:
        found = _table(results / mark[2], mark[3], mark[4].split("; "), (mark[5] or "").split("; "))
        return f"{mark[1]}\n{found}{mark[6]}"

    return SHORT.sub(filled, text)


def _table(page: Path, title: str, columns: list[str], only: list[str]) -> str:
    """These columns of a page's table, below what it was measured on; of the rows that are named, or of all."""
    said = re.search(_WHOLE.format(re.escape(title)), page.read_text(), re.MULTILINE) if page.exists() else None
    if not said or BEFORE in said[1]:
        return MISSING
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said[2].splitlines()]
    if not {*columns} <= {*head}:
        return MISSING
    chosen = [head.index(column) for column in columns]
    shown = [row for row in rows if only == [""] or row[0] in only]
    lines = [f"| {' | '.join(row[at] for at in chosen)} |" for row in (head, *shown)]
    rule = "|".join(["---", *["--:"] * (len(chosen) - 1)])
    return "\n".join([said[1], "", lines[0], f"|{rule}|", *lines[1:], ""])

"""Fills in pages: after each mark `<!-- benchmarks: ARGUMENTS -->` it puts the tables of that command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from pathlib import Path

from benchmarks.report import Table

MARK = re.compile(r"(<!-- benchmarks: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def publish(place: Path, run: Callable[[list[str]], list[Table]], only: Collection[str] = ()) -> None:
    """Run the commands that the pages of *place* mark, and replace the tables there; of a file, those of this page."""
    for page in sorted(place.glob("*.md")) if place.is_dir() else [place]:
        fill(page, run, only)


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

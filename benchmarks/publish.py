"""Fill a page in: each mark `<!-- benchmarks: ARGUMENTS -->` is followed by the tables of that command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import Table

MARK = re.compile(r"(<!-- benchmarks: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def publish(page: Path, run: Callable[[list[str]], list[Table]]) -> None:
    """Run every command that *page* marks, and put what it printed in place of what was there."""

    def filled(mark: re.Match[str]) -> str:
        tables = run(shlex.split(mark[2]))
        parts = [f"**{table.title}.** {table.markdown()}\n" for table in tables]
        return "\n".join([mark[1], *parts]) + mark[3]

    page.write_text(MARK.sub(filled, page.read_text()))

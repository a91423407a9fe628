"""Tables: drawn by rich on a terminal if it is installed, else aligned plain text."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from shardq.cli.output import say
from shardq.cli.text import printable

FOLDED = 12
"""The smallest width at which a folded column is readable, if it has none of its own."""


def draw(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: frozenset[str] = frozenset(),
    folded: Collection[str] = (),
) -> None:
    """Print a table of printable cells; the columns named in *right* are aligned to the right.

    Only *folded* columns are broken into lines, because an id that is broken cannot be copied. As a dict, *folded* has
    the smallest width of each. On a terminal that is too narrow, each row is printed as a block of lines.
    """
    listed = [[*map(printable, row)] for row in rows]
    console = _console()
    if console is None:
        say("\n".join(_plain(headers, listed, right)))
        return
    if _narrowest(headers, listed, folded) > console.width:
        say("\n\n".join(facts(list(zip(headers, row, strict=True))) for row in listed))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        justify: Any = "right" if header in right else "left"
        table.add_column(header, justify=justify, overflow="fold", no_wrap=header not in folded)
    for row in listed:
        table.add_row(*map(Text, row))
    console.print(table)


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Lines of names and values, printable, with the values aligned."""
    shown = [(printable(name), printable(value)) for name, value in pairs]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in shown)


def _narrowest(headers: Sequence[str], rows: list[list[str]], folded: Collection[str]) -> int:
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    smallest = folded if isinstance(folded, Mapping) else dict.fromkeys(folded, FOLDED)
    least = (min(width, smallest.get(name, width)) for name, width in zip(headers, widths, strict=True))
    return sum(least) + 2 * (len(widths) - 1)


def _plain(headers: Sequence[str], rows: list[list[str]], right: frozenset[str]) -> list[str]:
    lines = [list(headers), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(_cells(line, widths, headers, right)).rstrip() for line in lines]


def _cells(line: Sequence[str], widths: Sequence[int], headers: Sequence[str], right: frozenset[str]) -> list[str]:
    return [
        cell.rjust(width) if header in right else cell.ljust(width)
        for cell, width, header in zip(line, widths, headers, strict=True)
    ]


def _console() -> Any:
    """Rich's console; None if stdout is no terminal or rich is not installed."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)

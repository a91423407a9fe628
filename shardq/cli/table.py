"""Tables: drawn by rich on a terminal if it is installed, else aligned plain text; never wider than the terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from shardq.cli.grid import COLUMN_GAP
from shardq.cli.output import say
from shardq.cli.text import printable
from shardq.cli.width import columns, pad, width

MIN_FOLDED_WIDTH = 12
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
    the smallest width of each. Where even that is too wide, each row is printed as a block of lines.
    """
    listed = [[*map(printable, row)] for row in rows]
    console = _console()
    room = columns() if console is None else console.width
    if _narrowest(headers, listed, folded) > room:
        say("\n\n".join(facts(list(zip(headers, row, strict=True))) for row in listed))
        return
    if console is None:
        say("\n".join(_plain(headers, listed, right, folded, room)))
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
    names = max(len(name) for name, _ in shown)
    room = max(columns() - names - COLUMN_GAP, MIN_FOLDED_WIDTH)
    lines = []
    for name, value in shown:
        first, *others = in_columns(value, room)
        lines += [f"{name:<{names}}  {first}".rstrip(), *(f"{'':<{names}}  {each}" for each in others)]
    return "\n".join(lines)


def _narrowest(headers: Sequence[str], rows: list[list[str]], folded: Collection[str]) -> int:
    least = zip(_widest(headers, rows), _least(headers, folded), strict=True)
    return sum(width if may is None else min(width, may) for width, may in least) + COLUMN_GAP * (len(headers) - 1)


def _widest(headers: Sequence[str], rows: list[list[str]]) -> list[int]:
    return [max(map(width, column)) for column in zip(headers, *rows, strict=True)]


def _least(headers: Sequence[str], folded: Collection[str]) -> list[int | None]:
    """The smallest width of each column that may be folded, None of the others."""
    smallest = folded if isinstance(folded, Mapping) else dict.fromkeys(folded, MIN_FOLDED_WIDTH)
    return [smallest.get(name) for name in headers]


def _plain(
    headers: Sequence[str], rows: list[list[str]], right: frozenset[str], folded: Collection[str], room: int
) -> list[str]:
    """The lines of a table of at most *room* columns, which its folded columns give way to."""
    widths, least = _widest(headers, rows), _least(headers, folded)
    over = sum(widths) + COLUMN_GAP * (len(widths) - 1) - room
    for _ in range(over):
        giving = [at for at, may in enumerate(least) if may is not None and widths[at] > may]
        widths[max(giving, key=widths.__getitem__)] -= 1
    lines = []
    for row in (list(headers), *rows):
        cells = [in_columns(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                pad(part, wide, right=header in right)
                for part, wide, header in zip(parts, widths, headers, strict=True)
            ]
            lines.append((" " * COLUMN_GAP).join(padded).rstrip())
    return lines


def in_columns(text: str, room: int, *, indent: str = "") -> list[str]:
    """*text* in lines of at most *room* columns: broken at spaces, or within a word that is longer."""
    if width(text) <= room:
        return [text]
    lines, line = [], ""
    for word in re.findall(r" *[^ ]+| +$", text):
        if line and width(line) + width(word) > room:
            lines.append(line)
            line, word = indent, word.lstrip()  # noqa: PLW2901 (a line begins with no space of the text)
        while width(word) > room:
            head = _head(word, room)
            lines.append(head)
            word = word[len(head) :]  # noqa: PLW2901
        line += word
    return [*lines, line] if line else lines


def _head(word: str, room: int) -> str:
    """As many letters of *word* as fit, at least one."""
    for at in range(1, len(word)):
        if width(word[: at + 1]) > room:
            return word[:at]
    return word


def _console() -> Any:
    """Rich's console; None if stdout is no terminal or rich is not installed."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)

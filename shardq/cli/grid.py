"""Tables that are never wider than the terminal: columns of names give way, and what is cut off becomes `…`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from shardq.cli.width import columns, cut, pad, width, wrapped

COLUMN_GAP: Final = 2
"""Spaces between columns."""


class Column(NamedTuple):
    """A column: its `title`, and how many columns of the terminal it is never narrower than.

    One with a `least` gives way to others, and its texts begin at its left; else all of it is shown, and its texts
    (numbers) end at its right, unless it is to `begin` at its left.
    """

    title: str
    least: int = 0
    begins: bool = False

    @property
    def is_right(self) -> bool:
        """Whether its texts end at its right."""
        return not self.least and not self.begins


class Rest(NamedTuple):
    """A text in the place of a cell and of all cells behind it."""

    text: str


Cell = str | Rest


def grid(table: Sequence[Column], rows: Iterable[Sequence[Cell]], *, most: int | None = None) -> list[str]:
    """Return the lines of a table, its titles first, with at most *columns* columns (those of the terminal)."""
    room = columns() if most is None else most
    known = [list(row) for row in rows]
    widths = _widths(table, known, room)
    return [_line(table, [column.title for column in table], widths, room)] + [
        _line(table, row, widths, room) for row in known
    ]


def _widths(table: Sequence[Column], rows: list[list[Cell]], room: int) -> list[int]:
    """How wide each column is: as its widest text, if there is room."""
    widths = [width(column.title) for column in table]
    for row in rows:
        for at, cell in enumerate(row):
            if isinstance(cell, Rest):
                break
            widths[at] = max(widths[at], width(cut(cell, room)))
    over = sum(widths) + COLUMN_GAP * (len(table) - 1) - room
    while over > 0:
        # The widest of those that give way, one column at a time: so they end up equally narrow.
        giving = [at for at, column in enumerate(table) if column.least and widths[at] > column.least]
        if not giving:
            break
        widest = max(giving, key=widths.__getitem__)
        widths[widest] -= 1
        over -= 1
    return widths


def _line(table: Sequence[Column], row: Sequence[Cell], widths: list[int], room: int) -> str:
    cells, used = [], 0
    for column, cell, wide in zip(table, row, widths, strict=False):
        if isinstance(cell, Rest):
            cells.append(cut(cell.text, max(1, room - used)))
            break
        cells.append(pad(cut(cell, wide), wide, right=column.is_right))
        used += wide + COLUMN_GAP
    return cut((" " * COLUMN_GAP).join(cells).rstrip(), room)


def listing(pairs: Sequence[tuple[str, str]], *, least: int = 0) -> list[str]:
    """Return lines of names and values, no wider than the terminal; the values begin below another.

    They begin behind *least* columns, or farther right if a name is longer.
    """
    wide = max([least, *(width(name) for name, _ in pairs)])
    found = []
    for name, value in pairs:
        told = wrapped(value, max(1, columns() - wide - COLUMN_GAP)) or [""]
        found += [
            f"{pad(name if not at else '', wide)}{' ' * COLUMN_GAP}{line}".rstrip() for at, line in enumerate(told)
        ]
    return found

"""How many columns of a terminal a text takes, and texts cut to that: names are as long and wide as others like."""

from __future__ import annotations

import shutil
import textwrap
import unicodedata
from typing import Final

from shardq.cli.text import printable

MIN_COLUMNS: Final = 40
"""Columns below which nothing is drawn any narrower."""
_LETTERS_A_COLUMN: Final = 4
"""How many characters are looked at for each column: most marks that are set on a letter take none of their own."""


def columns() -> int:
    """Return how many columns the terminal has; 80 where the output is none, and at least `MIN_COLUMNS`."""
    return max(MIN_COLUMNS, shutil.get_terminal_size((80, 24)).columns)


def width(text: str) -> int:
    """Return how many columns a printable *text* takes.

    >>> width("acme"), width("株式会社"), width("e\N{COMBINING ACUTE ACCENT}")
    (4, 8, 1)
    """
    return len(text) if text.isascii() else sum(map(_of_letter, text))


def _of_letter(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, most: int) -> str:
    """Return *text* on one line, printable, with at most *most* columns; the rest becomes `…`.

    >>> cut("a tenant", 5), cut("株式会社", 5), cut("x", 5)
    ('a te…', '株式…', 'x')
    """
    looked_at = text[: _LETTERS_A_COLUMN * most + 1]
    whole = printable(looked_at)
    if len(looked_at) == len(text) and width(whole) <= most:
        return whole
    taken, left = [], most - 1
    for letter in whole[: _LETTERS_A_COLUMN * most]:
        left -= _of_letter(letter)
        if left < 0:
            break
        taken.append(letter)
    return "".join(taken) + "…" if most > 0 else ""


def pad(text: str, to: int, *, right: bool = False) -> str:
    """Return a printable *text* filled with spaces to *to* columns, before it (*right*) or behind it."""
    spaces = " " * (to - width(text))
    return spaces + text if right else text + spaces


def wrapped(text: str, most: int | None = None, *, indent: str = "") -> list[str]:
    """Return *text* in lines of at most *most* columns (those of the terminal), all but the first indented."""
    room = columns() if most is None else most
    lines: list[str] = []
    for word in _words(printable(text), room - width(indent)):
        if lines and width(lines[-1]) + 1 + width(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}{word}" if lines else word)
    return lines


def _words(text: str, most: int) -> list[str]:
    """The words of a text; one that is too long for a line in pieces."""
    words: list[str] = []
    for word in text.split():
        if width(word) <= most:
            words.append(word)
        else:
            words += textwrap.wrap(word, max(1, most // 2))
    return words

"""Names that others chose, in sentences: short, and harmless to a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from unicodedata import category

LETTERS: Final = 40
"""Letters that a name has at most in a sentence."""
MARKS: Final = 4
"""Marks above and below one letter that are shown: languages need no more, and a pile of them covers other lines."""


def name_of(key: str | bytes, letters: int = LETTERS) -> str:
    r"""Return a shard key, a task or a person's name for a sentence, in at most *letters* letters.

    >>> name_of("lumen-labs"), name_of("a\nb\x1b[31m"), name_of(b"\xff"), len(name_of("x" * 1000))
    ('lumen-labs', 'a\\nb\\x1b[31m', '\\xff', 40)
    """
    if not key:
        return "''"
    # The part that is cut off need not be looked at.
    text = key[: 4 * letters].decode(errors="backslashreplace") if isinstance(key, bytes) else key[: letters + 1]
    if not text.isascii() or not text.isprintable():
        text = "".join(_shown(text))
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _shown(text: str) -> Iterator[str]:
    marks = 0
    for each in text:
        marks = marks + 1 if category(each) in ("Mn", "Me") else 0
        yield each if each.isprintable() and marks <= MARKS else _escaped(each)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")

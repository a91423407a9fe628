"""Names that others chose, in sentences: short, and harmless to a terminal."""

from __future__ import annotations

from typing import Final

LETTERS: Final = 40
"""Letters that a name has at most in a sentence."""


def name_of(key: str | bytes) -> str:
    r"""Return a shard key, a task or a person's name as it stands in a sentence.

    >>> name_of("lumen-labs"), name_of("a\nb\x1b[31m"), name_of(b"\xff"), len(name_of("x" * 1000))
    ('lumen-labs', 'a\\nb\\x1b[31m', '\\xff', 40)
    """
    if not key:
        return "''"
    # What is cut off need not be looked at.
    text = key[: 4 * LETTERS].decode(errors="backslashreplace") if isinstance(key, bytes) else key[: LETTERS + 1]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else _escaped(each) for each in text)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")

"""A sentence of which parts are bold."""

from __future__ import annotations


class Bold(str):
    """A part of a sentence that a page shows bold."""

    __slots__ = ()


Parts = list[str]


def joined(parts: Parts) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the sentence that *parts* are, and from where to where it is bold.

    >>> joined([Bold("exports"), " has ", Bold("no worker"), "."])
    ('exports has no worker.', ((0, 7), (12, 21)))
    """
    spans, at = [], 0
    for part in parts:
        if isinstance(part, Bold) and part:
            spans.append((at, at + len(part)))
        at += len(part)
    return "".join(parts), tuple(spans)

"""A sentence with bold parts, and with times among its parts."""

from __future__ import annotations

from shardq.model.verdict import Verdict
from shardq.model.wording import moment


class Bold(str):
    """A part of a sentence that a page shows bold."""

    __slots__ = ()


class At(str):
    """A part of a sentence that says when something was: the text, and the time `at`, for a reader in another zone."""

    __slots__ = ("at",)
    at: float

    def __new__(cls, at: float, now: float) -> At:
        """Say *at* as `moment` does."""
        part = super().__new__(cls, moment(at, now))
        part.at = at
        return part


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


def moments_in(parts: Parts) -> tuple[tuple[int, int, float], ...]:
    """Return from where to where the sentence that *parts* are says a time, and which time that is."""
    found, at = [], 0
    for part in parts:
        if isinstance(part, At):
            found.append((at, at + len(part), part.at))
        at += len(part)
    return tuple(found)


def parts_of(verdict: Verdict) -> Parts:
    """Return the parts that a verdict's sentence was joined from.

    >>> parts_of(Verdict("exports", 0.0, "no_worker", "bad", "exports has no worker.", bold=((0, 7),)))
    ['exports', ' has no worker.']
    """
    marks: list[tuple[int, int, str]] = [(start, end, Bold(verdict.sentence[start:end])) for start, end in verdict.bold]
    marks += [(start, end, At(at, verdict.time)) for start, end, at in verdict.moments]
    found: Parts = []
    begins = 0
    for start, end, part in sorted(marks, key=lambda mark: mark[:2]):
        found += [verdict.sentence[begins:start], part]
        begins = end
    return [part for part in (*found, verdict.sentence[begins:]) if part]

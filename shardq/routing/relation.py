"""What patterns have to do with one another: which covers which, and which overlap.

A pattern covers another if it matches every topic that the other matches, and overlaps it if some topic is matched by
both. Topics of any length and any words count.

The one that asks is an automaton with a state for each of its words, the other is its input, word by word; the states
that it may be in are the bits of a number (Baeza-Yates and Gonnet, "A New Approach to Text Searching", CACM 1992). So
an answer takes one step for each word of the other, whatever the wildcards; walking each way by itself would take
exponentially many. For covering that is enough since the asker's wildcards are put in order first: next to one another,
`*` and `#` in any order mean "at least so many words", written `*.*.#`. Literal words then lie at both ends of whatever
is between two `#`, so a `#` of the other, which may stand for more words than the asker has, has to lie within one
"at least"; and from a way to read it as no words and one to read it as very many, one is made that reads it as both.

>>> covers("orders.#", "orders.*.created"), covers("*.#", "#.*"), covers("*", "#")
(True, True, False)
>>> overlaps("orders.*", "*.created"), overlaps("orders.*", "orders")
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shardq.routing.census import all_branches, entries, entry, some_branches
from shardq.routing.match import values
from shardq.routing.nodes import RUN, VALUES, decode, is_leaf, tail_of
from shardq.routing.topic import MANY, ONE, check_pattern, split


def covers(pattern: str, other: str) -> bool:
    """Whether *pattern* matches all topics that *other* matches. PatternError for what is no pattern."""
    return Covering(check_pattern(pattern)).holds(check_pattern(other))


def overlaps(pattern: str, other: str) -> bool:
    """Whether some topic is matched by both. PatternError for what is no pattern."""
    return Overlapping(check_pattern(pattern)).holds(check_pattern(other))


class Relation:
    """A pattern as an automaton: bit n of a row of states says that its first n words may be those so far."""

    __slots__ = ("_any", "_gap", "_last", "_literal", "_many", "_one", "_words", "start")

    def __init__(self, pattern: str) -> None:
        words = self._words = in_order(split(pattern))
        self._last = 1 << len(words)
        self._one = self._many = self._gap = 0
        self._literal: dict[str, int] = {}
        open_gap = False
        for at, word in reversed(list(enumerate(words))):
            bit = 1 << at
            open_gap = word == MANY or (word == ONE and open_gap)
            if word == MANY:
                self._many |= bit
            elif word == ONE:
                self._one |= bit
            else:
                self._literal[word] = self._literal.get(word, 0) | bit
            if open_gap:
                self._gap |= bit
        self._any = (self._last - 1) & ~self._many
        self.start = self._skipped(1)

    def holds(self, other: str) -> bool:
        """Whether it holds for *other*."""
        return self.ends(self.over(split(other), self.start))

    def over(self, words: Iterable[str], row: int) -> int:
        """The states after *words*; 0 when what begins so cannot be what is asked for."""
        for word in words:
            if not row:
                break
            row = self.step(row, word)
        return row

    def ends(self, row: int) -> bool:
        """Whether it holds for what ends here."""
        return bool(row & self._last)

    def wanted(self, row: int) -> list[str] | None:
        """The literal words that lead on from here; None for any."""
        if row & (self._one | self._many):
            return None
        return [word for word, bits in self._literal.items() if row & bits]

    @property
    def literal(self) -> str | None:
        """The pattern, if it has no wildcards."""
        return None if self._one | self._many else ".".join(self._words)

    @property
    def prefix(self) -> str:
        """What all texts begin with for which it may hold."""
        first_wild = (self._one | self._many | self._last) & -(self._one | self._many | self._last)
        return ".".join(self._words[: first_wild.bit_length() - 1])

    def step(self, row: int, word: str) -> int:
        """The states after *word*, which may be a wildcard."""
        raise NotImplementedError

    def _moved(self, row: int, moves: int) -> int:
        """One word on from the states *moves*; those at `#` stay, too."""
        return self._skipped((row & moves) << 1 | row & self._many)

    def _skipped(self, row: int) -> int:
        """With what is behind `#`: it may be no words. No two are neighbours."""
        return row | (row & self._many) << 1


class Covering(Relation):
    """Whether a pattern covers another."""

    __slots__ = ()

    def step(self, row: int, word: str) -> int:
        """Only a wildcard takes a wildcard; a `#` may be no words, so it counts none towards "at least so many"."""
        if word == MANY:
            return self._skipped(row & self._gap)
        return self._moved(row, self._one if word == ONE else self._one | self._literal.get(word, 0))


class Overlapping(Relation):
    """Whether a pattern overlaps another."""

    __slots__ = ()

    def step(self, row: int, word: str) -> int:
        """A wildcard takes a word, and a word a wildcard."""
        if word == MANY:
            return (self._last << 1) - (row & -row)  # all from the first on
        return self._moved(row, self._any if word == ONE else self._one | self._literal.get(word, 0))


def in_order(words: list[str]) -> list[str]:
    """The same pattern, with the wildcards that are neighbours as `*`, as often as it is there, and one `#` if any."""
    ordered: list[str] = []
    stars = many = 0
    for word in words:
        if word == ONE:
            stars += 1
        elif word == MANY:
            many = 1
        else:
            ordered += [ONE] * stars + [MANY] * many
            ordered.append(word)
            stars = many = 0
    return ordered + [ONE] * stars + [MANY] * many


def related(top: list[Any], relation: Relation) -> Iterator[tuple[str, str]]:
    """Each pattern for which it holds, with each of its values, below *top*: of a root that does not change.

    Only what can lead to one is looked at, but for the literal patterns: all, unless the relation's is literal itself.
    """
    literals, wild = top
    for pattern, held in _literals(literals, relation):
        for value in values(held):
            yield pattern, value
    todo: list[tuple[Any, list[str], int]] = [(wild, [], relation.start)]
    while todo:
        branch, words, row = todo.pop()
        run, held = _tail_and_values(branch)
        row = relation.over(run, row)
        words = [*words, *run]
        if held is not None and relation.ends(row):
            for value in values(held):
                yield ".".join(words), value
        for word, below in _branches(branch, relation.wanted(row)):
            if after := relation.step(row, word):
                todo.append((below, [*words, word], after))


def _tail_and_values(branch: Any) -> tuple[Sequence[str], Any]:
    """Of a leaf or an I-node: the words that stand alone, and what the pattern that ends with them has."""
    if is_leaf(branch):
        return decode(tail_of(branch)), branch
    main = branch.main
    return main[RUN], main[VALUES]


def _branches(branch: Any, wanted: list[str] | None) -> Iterable[tuple[str, Any]]:
    if is_leaf(branch):
        return ()
    return all_branches(branch.main) if wanted is None else some_branches(branch.main, wanted)


def _literals(page: Any, relation: Relation) -> Iterator[tuple[str, Any]]:
    if relation.literal is not None:
        held = entry(page, relation.literal)
        return iter([] if held is None else [(relation.literal, held)])
    start = relation.prefix
    return ((text, held) for text, held in entries(page) if text.startswith(start) and relation.holds(text))

"""Whether one pattern covers another, and whether two patterns overlap.

A pattern covers another if it matches every topic that the other matches. Two patterns overlap if some topic is matched
by both. Both are decided exactly, for topics of any length and of any words.

One pattern, here called the reader, is an automaton with a state for each of its words. The other pattern is its input,
word by word. The states in which the automaton may be are the bits of an int, the row (Baeza-Yates and Gonnet, "A New
Approach to Text Searching", CACM 1992). So an answer takes one step for each word of the other pattern, whatever the
wildcards. To follow each state by itself would take exponentially many steps.

For covering, a row is enough only if the reader's wildcards are in normal form: neighbours, `*` and `#` in any order,
mean "at least this many words", and are written `*.*.#`. Then the words between two such groups begin and end with a
literal word. A `#` of the other pattern may stand for more words than the reader has, so the reader must read it within
one group. And if the reader can read it both as no words and as very many, it can read it as any number of words.

>>> covers("orders.#", "orders.*.created"), covers("*.#", "#.*"), covers("*", "#")
(True, True, False)
>>> overlaps("orders.*", "*.created"), overlaps("orders.*", "orders")
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from shardq.routing.contents import all_branches, page_get, page_items, some_branches
from shardq.routing.match import values_in
from shardq.routing.nodes import RUN, VALUES, decode, is_leaf, tail_of
from shardq.routing.topic import MANY, ONE, check_pattern, split


def covers(pattern: str, other: str) -> bool:
    """Whether *pattern* matches all topics that *other* matches. PatternError if one of them is not a pattern.

    >>> covers("orders.#", "orders.*.created"), covers("*.created", "orders.#")
    (True, False)
    """
    return Covering(check_pattern(pattern)).holds(check_pattern(other))


def overlaps(pattern: str, other: str) -> bool:
    """Whether some topic is matched by both. PatternError if one of them is not a pattern.

    >>> overlaps("orders.*", "*.created"), overlaps("orders.*", "users.*")
    (True, False)
    """
    return Overlapping(check_pattern(pattern)).holds(check_pattern(other))


class Relation:
    """A pattern as an automaton. Bit n of a row is set if its first n words can match the words read so far."""

    __slots__ = ("_any", "_at_least", "_last", "_literal", "_many", "_one", "_words", "start")

    def __init__(self, pattern: str) -> None:
        words = self._words = normalized(split(pattern))
        self._last = 1 << len(words)
        self._one = self._many = self._at_least = 0
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
                self._at_least |= bit
        self._any = (self._last - 1) & ~self._many
        self.start = self._past_many(1)

    def holds(self, other: str) -> bool:
        """Whether the relation holds for *other*."""
        return self.accepts(self.after(split(other), self.start))

    def after(self, words: Iterable[str], row: int) -> int:
        """The row after *words*; 0 if the relation holds for no pattern that begins so."""
        for word in words:
            if not row:
                break
            row = self.step(row, word)
        return row

    def accepts(self, row: int) -> bool:
        """Whether the relation holds for a pattern that ends at this row."""
        return bool(row & self._last)

    def next_words(self, row: int) -> list[str] | None:
        """The literal words with which a pattern can continue from this row; None if it can continue with any word."""
        if row & (self._one | self._many):
            return None
        return [word for word, bits in self._literal.items() if row & bits]

    @property
    def literal(self) -> str | None:
        """The pattern if it has no wildcards; else None."""
        return None if self._one | self._many else ".".join(self._words)

    @property
    def prefix(self) -> str:
        """The text with which every literal pattern begins for which the relation can hold."""
        first_wild = (self._one | self._many | self._last) & -(self._one | self._many | self._last)
        return ".".join(self._words[: first_wild.bit_length() - 1])

    def step(self, row: int, word: str) -> int:
        """The row after *word*, which may be a wildcard."""
        raise NotImplementedError

    def _advance(self, row: int, moves: int) -> int:
        """The row after one word, which the states *moves* take. A state before a `#` takes any word and also stays."""
        return self._past_many((row & moves) << 1 | row & self._many)

    def _past_many(self, row: int) -> int:
        """*row* with the states behind each `#` of it, which may be no words. No two `#` are neighbours."""
        return row | (row & self._many) << 1


class Covering(Relation):
    """Whether a pattern covers another."""

    __slots__ = ()

    def step(self, row: int, word: str) -> int:
        """A wildcard is taken by wildcards only; a `#` may be no words, so it adds none to "at least this many"."""
        if word == MANY:
            return self._past_many(row & self._at_least)
        return self._advance(row, self._one if word == ONE else self._one | self._literal.get(word, 0))


class Overlapping(Relation):
    """Whether a pattern overlaps another."""

    __slots__ = ()

    def step(self, row: int, word: str) -> int:
        """A wildcard takes any word, and any word takes a wildcard."""
        if word == MANY:
            return (self._last << 1) - (row & -row)  # all from the lowest on: it is any number of words
        return self._advance(row, self._any if word == ONE else self._one | self._literal.get(word, 0))


def normalized(words: list[str]) -> list[str]:
    """The same pattern in normal form: neighbouring wildcards have first all `*`, then one `#` if any."""
    ordered: list[str] = []
    for are_wild, group in groupby(words, lambda word: word in (ONE, MANY)):
        found = list(group)
        ordered += [ONE] * found.count(ONE) + [MANY] * (MANY in found) if are_wild else found
    return ordered


def related(top: list[Any], relation: Relation) -> Iterator[tuple[str, str]]:
    """Each pattern below *top* for which *relation* holds, with each of its values.

    *top* is the content of a root that does not change. Patterns with wildcards are looked at only in branches that can
    lead to a result; literal ones all, unless the relation's own pattern is literal.
    """
    literals, wild = top
    for pattern, held in _literals(literals, relation):
        for value in values_in(held):
            yield pattern, value
    todo: list[tuple[Any, list[str], int]] = [(wild, [], relation.start)]
    while todo:
        branch, words, row = todo.pop()
        leaf = is_leaf(branch)
        main = (decode(tail_of(branch)), branch) if leaf else branch.main
        run, held = main[RUN], main[VALUES]
        row = relation.after(run, row)
        words = [*words, *run]
        if held is not None and relation.accepts(row):
            for value in values_in(held):
                yield ".".join(words), value
        if leaf:
            continue
        wanted = relation.next_words(row)
        for word, below in all_branches(main) if wanted is None else some_branches(main, wanted):
            if after := relation.step(row, word):
                todo.append((below, [*words, word], after))


def _literals(page: Any, relation: Relation) -> Iterator[tuple[str, Any]]:
    if relation.literal is not None:
        held = page_get(page, relation.literal)
        return iter([] if held is None else [(relation.literal, held)])
    start = relation.prefix
    return ((text, held) for text, held in page_items(page) if text.startswith(start) and relation.holds(text))

"""Iterating over the contents of a trie that does not change, and counting its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shardq.routing.nodes import (
    BITS,
    FIRST_BITS,
    FIRST_LAST,
    LAST,
    branches,
    decode,
    is_leaf,
    tail_of,
    values_of,
    word_in,
)
from shardq.routing.topic import MANY, ONE


@dataclass(slots=True)
class Census:
    """The number of nodes of each kind in a trie, and the number of pairs of a pattern and a value (`values`)."""

    inodes: int = 0
    cnodes: int = 0
    sparse: int = 0
    dense: int = 0
    pages: int = 0
    leaves: int = 0
    values: int = 0

    @property
    def nodes(self) -> int:
        """The number of I-nodes, C-nodes and pages."""
        return self.inodes + self.cnodes + self.pages


def pairs(top: list[Any]) -> Iterator[tuple[str, str]]:
    """Each pattern with each of its values, below *top*, the content of a root."""
    literals, wild = top
    for pattern, held in page_items(literals):
        for value in _values(held):
            yield pattern, value
    todo: list[tuple[list[str], Any]] = [([], wild)]
    while todo:
        above, node = todo.pop()
        main = node.main
        words = [*above, *main[0]]
        for value in _values(main[1]):
            yield ".".join(words), value
        for word, branch in all_branches(main):
            if is_leaf(branch):
                pattern = ".".join([*words, word, *decode(tail_of(branch))])
                for value in values_of(branch):
                    yield pattern, value
            else:
                todo.append(([*words, word], branch))


def page_items(page: Any) -> Iterator[tuple[str, Any]]:
    """All keys of a page, each with what is under it."""
    todo = [page]
    for each in todo:
        main = each.main
        if type(main) is list:
            todo += filter(None, main)
        else:
            yield from main.items()


def page_get(page: Any, key: str) -> Any:
    """What is in a page under *key*; None if the key is not there."""
    bits, used, last = hash(key), FIRST_BITS, FIRST_LAST
    while page is not None:
        main = page.main
        if type(main) is not list:
            return main.get(key)
        page = main[bits & last]
        bits >>= used
        used, last = BITS, LAST
    return None


def all_branches(main: Any) -> Iterator[tuple[str, Any]]:
    """All branches of a C-node with their words, also if the words are in a page."""
    found = branches(main)
    if found is not None:
        yield from found
        return
    yield from branches((*main[:4], None)) or ()
    yield from page_items(main[4])


def some_branches(main: Any, words: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """The branches of a C-node for `*`, for `#` and for each of *words*."""
    _, _, star, many, table = main
    found = [(ONE, star), (MANY, many), *((word, branch_of(table, word)) for word in words)]
    return ((word, branch) for word, branch in found if branch is not None)


def branch_of(table: Any, word: str) -> Any:
    """The branch for *word* in the `words` of a C-node, whatever their form; None if there is none."""
    if table is None or type(table) is dict or type(table) is tuple:
        return word_in(table, word)
    return page_get(table, word)


def _values(held: Any) -> Iterator[str]:
    if held is None:
        return
    if is_leaf(held):
        yield from values_of(held)
    else:
        yield from (value for value, _ in page_items(held))


def has_value(held: Any) -> bool:
    """Whether *held* has a value: it is a leaf, or a page that is not empty."""
    return held is not None and (is_leaf(held) or any(True for _ in page_items(held)))


def count(top: list[Any]) -> Census:
    """Count the nodes below *top*, the content of a root."""
    census = Census(inodes=1)
    _count_page(top[0], census, literal=True)
    todo = [top[1]]
    while todo:
        main = todo.pop().main
        census.inodes += 1
        census.cnodes += 1
        if main[1] is not None:
            _count_values(main[1], census)
        words = main[4]
        if type(words) is dict:
            census.dense += 1
        elif type(words) is tuple:
            census.sparse += 1
        elif words is not None:
            _count_page(words, census, literal=False)
        for _, branch in all_branches(main):
            if is_leaf(branch):
                _count_values(branch, census)
            else:
                todo.append(branch)
    return census


def _count_values(held: Any, census: Census) -> None:
    if is_leaf(held):
        census.leaves += 1
        census.values += len(values_of(held))
    else:
        _count_page(held, census, literal=False)
        census.values += sum(1 for _ in page_items(held))


def _count_page(page: Any, census: Census, *, literal: bool) -> None:
    todo = [page]
    for each in todo:
        main = each.main
        census.inodes += 1
        census.pages += 1
        if type(main) is list:
            todo += filter(None, main)
        elif literal:
            for held in main.values():
                _count_values(held, census)

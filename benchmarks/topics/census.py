"""Counts the nodes of a trie: what the tests and the benchmark of topics look at, to see that nothing is left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardq.routing.contents import all_branches, page_items
from shardq.routing.ctrie import Ctrie
from shardq.routing.nodes import is_leaf, values_of


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


def census(trie: Ctrie) -> Census:
    """Count the nodes of a snapshot of *trie*."""
    top = trie.snapshot()._head.root.main
    found = Census(inodes=1)
    _count_page(top[0], found, literal=True)
    todo = [top[1]]
    while todo:
        main = todo.pop().main
        found.inodes += 1
        found.cnodes += 1
        if main[1] is not None:
            _count_values(main[1], found)
        words = main[4]
        if type(words) is dict:
            found.dense += 1
        elif type(words) is tuple:
            found.sparse += 1
        elif words is not None:
            _count_page(words, found, literal=False)
        for _, branch in all_branches(main):
            if is_leaf(branch):
                _count_values(branch, found)
            else:
                todo.append(branch)
    return found


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

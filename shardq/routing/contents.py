"""Iterating over the contents of a trie that does not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from shardq.routing.match import values_in
from shardq.routing.nodes import BITS, FIRST_BITS, FIRST_LAST, LAST_SLOTS, branches, decode, is_leaf, tail_of, word_in
from shardq.routing.topic import MANY, ONE


def pairs(top: list[Any]) -> Iterator[tuple[str, str]]:
    """Each pattern with each of its values, below *top*, the content of a root."""
    literals, wild = top
    for pattern, held in page_items(literals):
        for value in values_in(held):
            yield pattern, value
    todo: list[tuple[list[str], Any]] = [([], wild)]
    while todo:
        above, node = todo.pop()
        main = node.main
        words = [*above, *main[0]]
        if main[1] is not None:
            for value in values_in(main[1]):
                yield ".".join(words), value
        for word, branch in all_branches(main):
            if is_leaf(branch):
                pattern = ".".join([*words, word, *decode(tail_of(branch))])
                for value in values_in(branch):
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
    """Return the entry of a page under *key*; None if the key is not there."""
    bits, used, last = hash(key), FIRST_BITS, FIRST_LAST
    while page is not None:
        main = page.main
        if type(main) is not list:
            return main.get(key)
        page = main[bits & last]
        bits >>= used
        used, last = BITS, LAST_SLOTS
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
    get = word_in if table is None or type(table) is dict or type(table) is tuple else page_get
    found = [(ONE, star), (MANY, many), *((word, get(table, word)) for word in words)]
    return ((word, branch) for word, branch in found if branch is not None)


def has_value(held: Any) -> bool:
    """Whether *held* has a value: it is a leaf, or a page that is not empty."""
    return held is not None and (is_leaf(held) or any(True for _ in page_items(held)))

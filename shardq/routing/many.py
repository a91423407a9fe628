"""Matching below a `#`, which stands for any number of words, so that a node is reached after several numbers of words.

Those numbers are the bits of one int, the *row*: bit n is set if the first n words of the topic lead to the node
(Baeza-Yates and Gonnet, "A New Approach to Text Searching", CACM 1992; `shardq.routing.relation` does the same with
patterns). A word of a pattern moves all bits at which the topic has that word next by one, in one step. So each node is
entered once, and each of its words is one step, however long the topic is and however many wildcards a pattern has. To
continue from each number by itself would take longer by a factor of the topic's number of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from shardq.routing.contents import page_get
from shardq.routing.match import tail_matches
from shardq.routing.topic import ONE

Places: TypeAlias = dict[str, int]
"""Where each word stands in a topic: bit n is set for the word after the first n words."""


def matching(branch: Any, topic: list[str], row: int) -> Iterator[Any]:  # noqa: C901 - as in `lookup`
    """The leaves and pages of values below *branch* that match *topic*; *row* says how many words lead to *branch*."""
    size = len(topic)
    last = 1 << size
    places: Places = {}
    for at, word in enumerate(topic):
        places[word] = places.get(word, 0) | 1 << at
    todo: list[tuple[Any, int]] = [(branch, row)]
    while todo:
        branch, row = todo.pop()
        kind = type(branch)
        if kind is str:
            if row & last:
                yield branch
            continue
        if kind is tuple:
            if _tail_matches(branch[0], row, topic, places):
                yield branch
            continue
        run, held, star, many, words = branch.main
        if run and not (row := _advance(run, row, places, last)):
            continue
        if held is not None and row & last:
            yield held
        if many is not None:
            todo.append((many, 2 * last - (row & -row)))  # all from the lowest on: `#` takes any number of words
        row &= last - 1  # without the bit for the end of the topic, after which there is no word
        if star is not None and row:
            todo.append((star, row << 1))
        if words is not None and row:
            _push_branches(words, row, places, todo)


def _advance(words: Iterable[str], row: int, places: Places, last: int) -> int:
    """Return the row after *words*, none of which is `#`; 0 if the topic does not continue so."""
    for word in words:
        row = (row & (last - 1 if word == ONE else places.get(word, 0))) << 1
        if not row:
            break
    return row


def _tail_matches(tail: str, row: int, topic: list[str], places: Places) -> bool:
    """Whether the topic can end with the tail of a leaf, in which only the last word may be `#`."""
    if tail[-2:] == ".#":
        return bool(_advance(tail[:-2].split(".")[1:], row, places, 1 << len(topic)))
    start = len(topic) - tail.count(".")
    return start >= 0 and row >> start & 1 == 1 and tail_matches(tail, topic, start)


def _push_branches(words: Any, row: int, places: Places, todo: list[tuple[Any, int]]) -> None:
    """Add those branches of a C-node's *words* by which the topic can go on to *todo*, each with its row."""
    if type(words) is tuple or (type(words) is dict and len(words) < len(places)):
        for word, branch in words.items() if type(words) is dict else zip(words[::2], words[1::2], strict=True):
            if after := row & places.get(word, 0):
                todo.append((branch, after << 1))
    else:
        get = words.get if type(words) is dict else partial(page_get, words)
        for word, bits in places.items():
            if (after := row & bits) and (branch := get(word)) is not None:
                todo.append((branch, after << 1))

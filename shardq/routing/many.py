"""What matches a topic where several numbers of its words may have led: below a `#`, which may stand for any of them.

Those numbers are the bits of one number, a row (Baeza-Yates and Gonnet, "A New Approach to Text Searching", CACM 1992;
`shardq.routing.relation` does the same with patterns): a word moves those that it follows on by one, all together. So
each node is entered once, and each of its words is one step, however long the topic is and however many wildcards a
pattern has. Going on from each number by itself would take as many times as long as the topic has words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from shardq.routing.census import entry
from shardq.routing.match import fits
from shardq.routing.topic import ONE

Places: TypeAlias = dict[str, int]
"""Where each word of a topic is: bit n for the one that n words lead to."""


def matching(branch: Any, topic: list[str], row: int) -> Iterator[Any]:  # noqa: C901 - as in `lookup`
    """What holds values for *topic* in *branch*, to which as many words lead as *row* has bits at: leaves and pages."""
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
            if _ends(branch[0], row, topic, places):
                yield branch
            continue
        run, held, star, many, words = branch.main
        if run and not (row := _over(run, row, places, last)):
            continue
        if held is not None and row & last:
            yield held
        if many is not None:
            todo.append((many, 2 * last - (row & -row)))  # all from the first on
        row &= last - 1  # what has a next word
        if star is not None and row:
            todo.append((star, row << 1))
        if words is not None and row:
            _branch(words, row, places, todo)


def _over(words: Iterable[str], row: int, places: Places, last: int) -> int:
    """The row after *words*, of which none is `#`."""
    for word in words:
        row = (row & (last - 1 if word == ONE else places.get(word, 0))) << 1
        if not row:
            break
    return row


def _ends(tail: str, row: int, topic: list[str], places: Places) -> bool:
    """Whether the topic may end with the tail of a leaf, of which only the last word may be `#`."""
    if tail[-2:] == ".#":
        return bool(_over(tail[:-2].split(".")[1:], row, places, 1 << len(topic)))
    start = len(topic) - tail.count(".")
    return start >= 0 and row >> start & 1 == 1 and fits(tail, topic, start)


def _branch(words: Any, row: int, places: Places, todo: list[tuple[Any, int]]) -> None:
    """Put the branches of a C-node's *words* on which the topic may go on into *todo*, each with its row."""
    if type(words) is tuple or (type(words) is dict and len(words) < len(places)):
        for word, branch in words.items() if type(words) is dict else zip(words[::2], words[1::2], strict=True):
            if after := row & places.get(word, 0):
                todo.append((branch, after << 1))
    else:
        get = words.get if type(words) is dict else partial(entry, words)
        for word, bits in places.items():
            if (after := row & bits) and (branch := get(word)) is not None:
                todo.append((branch, after << 1))

"""New branches: for a pattern that is alone below some node, and for two that part there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardq.routing.nodes import EMPTY, RUN, CNode, Make, decode, is_leaf, retailed, tail_of, with_child
from shardq.routing.topic import MANY


def grown(words: list[str], values: Any, make: Make, rollup: bool) -> Any:
    """A new branch: the rest of a pattern, and its values, a leaf without tail or the I-node of a page.

    A rolled-up tail has `#` only as its last word: so a lookup needs but one look at it.
    """
    if not words and is_leaf(values):
        return values
    leaf, cut = is_leaf(values), len(words)
    if rollup:
        rolled = words[:-1] if leaf else words  # the run of a C-node has no `#` at all
        cut = max([at + 1 for at, word in enumerate(rolled) if word == MANY]) if MANY in rolled else 0
    rest = words[cut:]
    branch = retailed(values, rest) if leaf else make((tuple(rest), values, None, None, None))
    for word in reversed(words[:cut]):
        branch = make(with_child(EMPTY, word, branch, make))
    return branch


def parted(leaf: Any, words: list[str], value: str, make: Make, rollup: bool) -> Any:
    """The I-node that takes the place of a leaf: it holds that one, and *value* for the pattern *words*.

    None if that is the leaf's own pattern.
    """
    tail = decode(tail_of(leaf))
    if tail == words:
        return None
    above: list[tuple[CNode, str]] = []
    at, same = 0, _shared(tail, words, rollup)
    while at + same < min(len(tail), len(words)) and tail[at + same] == words[at + same]:  # they part further below
        above.append(((tuple(tail[at : at + same]), *EMPTY[1:]), tail[at + same]))
        at += same + 1
        same = _shared(tail[at:], words[at:], rollup)
    split = at + same
    main: CNode = (tuple(tail[at:split]), *EMPTY[1:])
    if split == len(tail):
        main = (main[RUN], retailed(leaf, []), *EMPTY[2:])
    else:
        main = with_child(main, tail[split], retailed(leaf, tail[split + 1 :]), make)
    if split == len(words):
        main = (main[RUN], value, *main[2:])
    else:
        main = with_child(main, words[split], grown(words[split + 1 :], value, make, rollup), make)
    node = make(main)
    for main, word in reversed(above):
        node = make(with_child(main, word, node, make))
    return node


def _shared(tail: list[str], words: list[str], rollup: bool) -> int:
    """How many words both begin with, as far as they may stand in the run of one node."""
    same = common(tail, words) if rollup else 0
    return tail.index(MANY) if MANY in tail[:same] else same


def common(run: Sequence[str], words: Sequence[str]) -> int:
    """How many words both begin with."""
    same = 0
    for word, other in zip(run, words, strict=False):
        if word != other:
            break
        same += 1
    return same

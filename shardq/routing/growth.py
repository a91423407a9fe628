"""New branches: one for a pattern that is alone there, and one for two patterns that part there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardq.routing.nodes import EMPTY, RUN, CNode, Make, decode, is_leaf, tail_of, with_child, with_tail
from shardq.routing.topic import MANY


def new_branch(words: list[str], values: Any, make: Make, rollup: bool) -> Any:
    """A new branch for the rest of a pattern, *words*, with its *values*: a leaf without a tail, or a page's I-node.

    A tail that is rolled up has `#` only as its last word, so that a lookup compares it in one pass.
    """
    if not words and is_leaf(values):
        return values
    leaf, cut = is_leaf(values), len(words)
    if rollup:
        rolled = words[:-1] if leaf else words  # the run of a C-node never has a `#`
        cut = max([at + 1 for at, word in enumerate(rolled) if word == MANY]) if MANY in rolled else 0
    rest = words[cut:]
    branch = with_tail(values, rest) if leaf else make((tuple(rest), values, None, None, None))
    for word in reversed(words[:cut]):
        branch = make(with_child(EMPTY, word, branch, make))
    return branch


def split_leaf(leaf: Any, words: list[str], value: str, make: Make, rollup: bool) -> Any:
    """A new I-node in the place of *leaf*, which holds the leaf's pattern, and *words* with *value*.

    None if *words* is the leaf's own pattern.
    """
    tail = decode(tail_of(leaf))
    if tail == words:
        return None
    above: list[tuple[CNode, str]] = []
    at, same = 0, _shared_run(tail, words, rollup)
    while at + same < min(len(tail), len(words)) and tail[at + same] == words[at + same]:  # it is in both
        above.append(((tuple(tail[at : at + same]), *EMPTY[1:]), tail[at + same]))
        at += same + 1
        same = _shared_run(tail[at:], words[at:], rollup)
    split = at + same
    main: CNode = (tuple(tail[at:split]), *EMPTY[1:])
    if split == len(tail):
        main = (main[RUN], with_tail(leaf, []), *EMPTY[2:])
    else:
        main = with_child(main, tail[split], with_tail(leaf, tail[split + 1 :]), make)
    if split == len(words):
        main = (main[RUN], value, *main[2:])
    else:
        main = with_child(main, words[split], new_branch(words[split + 1 :], value, make, rollup), make)
    node = make(main)
    for main, word in reversed(above):
        node = make(with_child(main, word, node, make))
    return node


def _shared_run(tail: list[str], words: list[str], rollup: bool) -> int:
    """How many words both begin with that may be in the run of one node."""
    same = common_prefix(tail, words) if rollup else 0
    return tail.index(MANY) if MANY in tail[:same] else same


def common_prefix(run: Sequence[str], words: Sequence[str]) -> int:
    """How many words both begin with."""
    same = 0
    for word, other in zip(run, words, strict=False):
        if word != other:
            break
        same += 1
    return same

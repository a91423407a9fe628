"""The usual writes: one pattern comes or goes, and the tree around it stays as it is.

Each of these functions tries a write with one `gcas`. If the write is not that simple, they give up, and `Write` in
`shardq.routing.write` does it. They remember the last I-node on the way down and at most the one above it, because
nothing further above changes. They are right because of the last step alone: an I-node of the trie's generation that
holds no T-node is in the trie, and `gcas` succeeds only if it still is.

A node that is left with one pattern becomes a T-node, and with that the removal is done. Then the I-node above takes
that pattern in its place, if nobody changed it meanwhile.
"""

from __future__ import annotations

from typing import Any

from shardq.routing.growth import new_branch, split_leaf
from shardq.routing.lookup import find_in_page
from shardq.routing.nodes import (
    SMALL_NODE,
    SPARSE_NODE,
    WIDE_NODE,
    Tomb,
    encode,
    rolled_up,
    tail_of,
    values_of,
    with_child,
)
from shardq.routing.topic import MANY, ONE

NO_SLOT, DEEPER_SLOT = -1, -2
"""Values of `slot` when there is no empty place in a list: NOWHERE means that the branch is in a C-node or in a page
that is not split, BELOW that it is in a part of a page that is split."""


def insert_literal(head: Any, pattern: str, value: str) -> bool:
    """Insert a literal pattern that is new; True if that was done, False if `Write` must find out."""
    node, main, slot = find_in_page(head, None, pattern)
    if type(main) is dict:
        if pattern in main or len(main) >= WIDE_NODE:
            return False
        new = main.copy()
        new[pattern] = value
    else:
        new = _with_node(main, slot, head.make({pattern: value}, node.gen))
    return new is not None and bool(head.gcas(node, main, new))


def remove_literal(head: Any, pattern: str, value: str) -> bool:
    """Remove a literal pattern whose only value is *value*; True if that was done, False if `Write` must find out."""
    node, main, _ = find_in_page(head, None, pattern)
    if type(main) is not dict or main.get(pattern) != value or len(main) < 2:
        return False
    new = main.copy()
    del new[pattern]
    done: bool = head.gcas(node, main, new)
    return done


def insert_wild(head: Any, words: list[str], value: str, rollup: bool) -> bool:
    """Insert a pattern with wildcards that is new; True if that was done, False if `Write` must find out."""
    root = head.root
    gen = root.gen
    node, main, branch, at, slot, _, _, _ = _descend(head, root.main[1], words)
    if node is None or node.gen is not gen:
        return False

    def make(main: Any) -> Any:
        return head.make(main, gen)

    rest = words[at:]
    leaf: Any
    if branch is not None:
        leaf = split_leaf(branch, rest, value, make, rollup)
        if leaf is None:
            return False
    elif rollup and MANY not in rest[:-1]:
        leaf = (encode(rest), value) if rest else value
    else:
        leaf = new_branch(rest, value, make, rollup)
    word = words[at - 1]
    new = _with_node(main, slot, make({word: leaf})) if slot >= 0 else _with_branch(main, word, leaf, make)
    return new is not None and bool(head.gcas(node, main, new))


def remove_wild(head: Any, words: list[str], value: str, rollup: bool) -> bool | None:
    """Remove a pattern with wildcards whose only value is *value*; True if that was done.

    False if `Write` must find out. None if it was done, but left a T-node that `Write` must drop.
    """
    root = head.root
    node, main, branch, at, slot, over, held, key = _descend(head, root.main[1], words)
    if node is None or branch is None or node.gen is not root.gen:
        return False
    if values_of(branch) != (value,) or tail_of(branch) != encode(words[at:]):
        return False
    new = _without_branch(main, words[at - 1], 1 if slot == DEEPER_SLOT else SMALL_NODE + 1)
    if new is not None:
        return bool(head.gcas(node, main, new))
    if over is None:
        return False
    rest = with_child(main, words[at - 1], None, _no_node)
    alone, leaf = rolled_up(rest, rollup)
    if not alone or leaf is None:
        return False
    above = with_child(held, key, leaf, _no_node)  # the number of branches is the same, so the table keeps its form
    if (type(above) is tuple and rolled_up(above, rollup)[0]) or not head.gcas(node, main, Tomb(rest)):
        return False
    return True if head.gcas(over, held, above) else None


def _descend(  # noqa: C901 - the hot path of writes: a call costs as much as a step
    head: Any, node: Any, words: list[str]
) -> tuple[Any, Any, Any, int, int, Any, Any, Any]:
    """Go down from *node* by *words*; return (node, main, branch, at, slot, over, held, key).

    `node` is the last I-node on the way and `main` its content. `branch` is the leaf there, or None. `at` words were
    used up. `slot` is the place in `main`, a list, for a new I-node, or NOWHERE or BELOW. `over` is the I-node above,
    which holds `node` in its content `held` under `key`. `node` is None if the words end at an I-node, or if a C-node
    on the way has a run: `Write` must do it then.
    """
    at, size = 0, len(words)
    over = held = key = None
    while at < size:
        main = node.main
        if type(main) is not tuple or main[0]:
            break
        word = words[at]
        at += 1
        if word == ONE:
            branch = main[2]
        elif word == MANY:
            branch = main[3]
        else:
            table = main[4]
            if table is None:
                return node, main, None, at, NO_SLOT, over, held, key
            kind = type(table)
            if kind is dict:
                branch = table.get(word)
            elif kind is tuple:
                branch = table[1] if table[0] == word else table[3] if len(table) > 2 and table[2] == word else None
            else:
                node, main, slot = find_in_page(head, table, word)
                if type(main) is not dict:
                    return node, main, None, at, slot, None, None, None
                branch = main.get(word)
                if branch is None or type(branch) is str or type(branch) is tuple:
                    return node, main, branch, at, NO_SLOT if node is table else DEEPER_SLOT, None, None, None
        if branch is None or type(branch) is str or type(branch) is tuple:
            return node, main, branch, at, NO_SLOT, over, held, key
        over, held, key = node, main, word
        node = branch
    return None, None, None, 0, NO_SLOT, None, None, None


def _with_node(main: Any, slot: int, node: Any) -> Any:
    """The list *main* of a page with *node* in its place *slot*; None if *main* is a T-node."""
    if type(main) is not list:
        return None
    copy = main.copy()
    copy[slot] = node
    return copy


def _with_branch(main: Any, word: str, branch: Any, make: Any) -> Any:
    """*main* with *branch* under *word*; None if *main* is a page that would grow too large."""
    if type(main) is dict:
        if len(main) >= WIDE_NODE and word not in main:
            return None
        table = main.copy()
        table[word] = branch
        return table
    return with_child(main, word, branch, make)


def _without_branch(main: Any, word: str, least: int) -> Any:
    """*main* without *word*; None if the rest must change its form, or must be merged with another node."""
    if type(main) is dict:
        if len(main) <= least:
            return None
        table = main.copy()
        del table[word]
        return table
    run, values, star, many, table = main
    if type(table) is dict and len(table) > SPARSE_NODE + 1 and word in table:
        table = table.copy()
        del table[word]
        return (run, values, star, many, table)
    held = (values is not None) + (star is not None) + (many is not None)
    if table is not None:
        held += len(table) // 2 if type(table) is tuple else 3
    return with_child(main, word, None, _no_node) if held > 2 else None


def _no_node(_: Any) -> Any:
    """Stand in for `make`: content that shrinks needs no new I-node."""
    raise AssertionError

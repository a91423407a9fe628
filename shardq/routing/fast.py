"""The writes that are nearly all: one pattern comes or goes, and nothing else has to give way.

They keep one step of the way down, since nothing further above will change, and give up where it is not so simple:
`Write` in `shardq.routing.write` does the rest. What makes them right is the last step alone: an I-node of the trie's
generation that holds no T-node is in the trie, and `gcas` succeeds only if it still is. A node that is left with one
pattern becomes a T-node, which ends the removal; then the I-node above holds that pattern instead, if it still can.
"""

from __future__ import annotations

from typing import Any

from shardq.routing.growth import grown, parted
from shardq.routing.lookup import find_in_page
from shardq.routing.nodes import FEW, SPARSE, WIDE, Tomb, encode, rolled_up, tail_of, values_of, with_child
from shardq.routing.topic import MANY, ONE

NOWHERE, BELOW = -1, -2
"""Where a branch is, if not to be put in a list: in a C-node or a page that is not split; in a page below a list."""


def entered(head: Any, pattern: str, value: str) -> bool:
    """Whether the literal pattern was new and is in the trie now; False says nothing."""
    node, main, slot = find_in_page(head, None, pattern)
    if type(main) is dict:
        if pattern in main or len(main) >= WIDE:
            return False
        new = main.copy()
        new[pattern] = value
    else:
        new = _filled(main, slot, head.make({pattern: value}, node.gen))
    return new is not None and bool(head.gcas(node, main, new))


def left(head: Any, pattern: str, value: str) -> bool:
    """Whether the literal pattern had this one value, and is not in the trie now; False says nothing."""
    node, main, _ = find_in_page(head, None, pattern)
    if type(main) is not dict or main.get(pattern) != value or len(main) < 2:
        return False
    new = main.copy()
    del new[pattern]
    done: bool = head.gcas(node, main, new)
    return done


def added(head: Any, words: list[str], value: str, rollup: bool) -> bool:
    """Whether the pattern of these words, with wildcards, was new and is in the trie now; False says nothing."""
    root = head.root
    gen = root.gen
    node, main, branch, at, slot, _, _, _ = _way(head, root.main[1], words)
    if node is None or node.gen is not gen:
        return False

    def make(main: Any) -> Any:
        return head.make(main, gen)

    rest = words[at:]
    leaf: Any
    if branch is not None:
        leaf = parted(branch, rest, value, make, rollup)
        if leaf is None:
            return False
    elif rollup and MANY not in rest[:-1]:
        leaf = (encode(rest), value) if rest else value
    else:
        leaf = grown(rest, value, make, rollup)
    new = _filled(main, slot, make({words[at - 1]: leaf})) if slot >= 0 else _with(main, words[at - 1], leaf, make)
    return new is not None and bool(head.gcas(node, main, new))


def dropped(head: Any, words: list[str], value: str, rollup: bool) -> bool | None:
    """Whether the pattern of these words had this one value, and is not in the trie now; False says nothing.

    None when it is not, and a T-node is left for somebody to drop.
    """
    root = head.root
    node, main, branch, at, slot, over, held, key = _way(head, root.main[1], words)
    if node is None or branch is None or node.gen is not root.gen:
        return False
    if values_of(branch) != (value,) or tail_of(branch) != encode(words[at:]):
        return False
    new = _without(main, words[at - 1], 1 if slot == BELOW else FEW + 1)
    if new is not None:
        return bool(head.gcas(node, main, new))
    if over is None:
        return False
    rest = with_child(main, words[at - 1], None, _no_node)
    alone, leaf = rolled_up(rest, rollup)
    if not alone or leaf is None:
        return False
    above = with_child(held, key, leaf, _no_node)  # it is a branch as before, so nothing has to change its form
    if (type(above) is tuple and rolled_up(above, rollup)[0]) or not head.gcas(node, main, Tomb(rest)):
        return False
    return True if head.gcas(over, held, above) else None


def _way(  # noqa: C901 - the hot path of writes: a call costs as much as a step
    head: Any, node: Any, words: list[str]
) -> tuple[Any, Any, Any, int, int, Any, Any, Any]:
    """Where the way of *words* ends: the I-node, what it holds, the leaf or None, how many words, and where it is.

    And the I-node above, what that holds, and the word under which it does. No I-node for patterns that end at one, or
    lead by a run.
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
                return node, main, None, at, NOWHERE, over, held, key
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
                    return node, main, branch, at, NOWHERE if node is table else BELOW, None, None, None
        if branch is None or type(branch) is str or type(branch) is tuple:
            return node, main, branch, at, NOWHERE, over, held, key
        over, held, key = node, main, word
        node = branch
    return None, None, None, 0, NOWHERE, None, None, None


def _filled(main: Any, slot: int, node: Any) -> Any:
    """A page's list with *node* in an empty place; None for a T-node."""
    if type(main) is not list:
        return None
    copy = main.copy()
    copy[slot] = node
    return copy


def _with(main: Any, word: str, branch: Any, make: Any) -> Any:
    """*main* with *branch* under *word*; None if a page would grow too large."""
    if type(main) is dict:
        if len(main) >= WIDE and word not in main:
            return None
        table = main.copy()
        table[word] = branch
        return table
    return with_child(main, word, branch, make)


def _without(main: Any, word: str, least: int) -> Any:
    """*main* without *word*; None if what is left has to change its form, or to be merged with another node."""
    if type(main) is dict:
        if len(main) <= least:
            return None
        table = main.copy()
        del table[word]
        return table
    run, values, star, many, table = main
    if type(table) is dict and len(table) > SPARSE + 1 and word in table:
        table = table.copy()
        del table[word]
        return (run, values, star, many, table)
    held = (values is not None) + (star is not None) + (many is not None)
    if table is not None:
        held += len(table) // 2 if type(table) is tuple else 3
    return with_child(main, word, None, _no_node) if held > 2 else None


def _no_node(_: Any) -> Any:
    """Nothing that shrinks needs a new I-node."""
    raise AssertionError

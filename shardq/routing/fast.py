"""The writes that are nearly all: a pattern that is new where nothing has to give way, or a literal one that goes.

They go down without keeping the way, since nothing above will change, and give up where it is not so simple: `Write`
in `shardq.routing.write` does the rest. What makes them right is the last step alone: an I-node of the trie's
generation that holds no T-node is in the trie, and `gcas` succeeds only if it still is.
"""

from __future__ import annotations

from typing import Any

from shardq.routing.nodes import SPARSE, WIDE, deeper, encode, grown, slot, with_child
from shardq.routing.topic import MANY, ONE


def added(  # noqa: C901 - the hot path of writes: a call costs as much as a step
    head: Any, pattern: str, words: list[str] | None, value: str, rollup: bool
) -> bool:
    """Whether the pattern was new and is in the trie now; False says nothing."""
    root = head.root
    if words is None:
        return _entered(head, root.gen, root.main[0], pattern, value)
    gen, node, at = root.gen, root.main[1], 0
    size = len(words)
    while True:
        main = node.main
        if type(main) is not tuple or main[0]:
            return False
        _, values, star, many, table = main
        if at == size:
            return False
        word = words[at]
        at += 1
        if word == ONE:
            branch = star
        elif word == MANY:
            branch = many
        elif table is None:
            branch = None
        elif type(table) is dict:
            branch = table.get(word)
        elif type(table) is tuple:
            branch = table[1] if table[0] == word else table[3] if len(table) > 2 and table[2] == word else None
        else:
            node, main = _page(table, word)
            if type(main) is not dict:
                return False
            branch = main.get(word)
        if branch is None:
            break
        if type(branch) is str or type(branch) is tuple:
            return False
        node = branch
    if node.gen is not gen:
        return False
    rest = words[at:]

    def make(main: Any) -> Any:
        return head.make(main, gen)

    if rollup and MANY not in rest[:-1]:
        leaf: Any = (encode(rest), value) if rest else value
    else:
        leaf = grown(rest, value, make, rollup)
    if type(main) is dict:
        if len(main) >= WIDE:
            return False
        new: Any = main.copy()
        new[word] = leaf
    elif word == ONE:
        new = ((), values, leaf, many, table)
    elif type(table) is dict and SPARSE < len(table) < WIDE and word != MANY:
        table = table.copy()
        table[word] = leaf
        new = ((), values, star, many, table)
    else:
        new = with_child(main, word, leaf, make)
    return bool(head.gcas(node, main, new))


def dropped(head: Any, pattern: str, value: str) -> bool:
    """Whether the literal pattern had this one value, and is not in the trie now; False says nothing."""
    root = head.root
    node, main = _page(root.main[0], pattern)
    if type(main) is not dict or len(main) < 2 or node.gen is not root.gen or main.get(pattern) != value:
        return False
    new = main.copy()
    del new[pattern]
    return bool(head.gcas(node, main, new))


def _entered(head: Any, gen: object, page: Any, key: str, value: str) -> bool:
    node, main = _page(page, key)
    if type(main) is not dict or len(main) >= WIDE or node.gen is not gen or key in main:
        return False
    new = main.copy()
    new[key] = value
    return bool(head.gcas(node, main, new))


def _page(page: Any, key: str) -> tuple[Any, Any]:
    """The I-node where *key* belongs, and what it holds."""
    bits, shift, main = hash(key), 0, page.main
    while type(main) is list:
        below = main[slot(bits, shift)]
        if below is None:
            break
        page, main = below, below.main
        shift = deeper(shift)
    return page, main

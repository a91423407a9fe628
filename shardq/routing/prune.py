"""Pruning after a removal: I-nodes that are not needed any more give way to a leaf, or to the only node below them."""

from __future__ import annotations

from typing import Any

from shardq.routing import nodes
from shardq.routing.nodes import SMALL_NODE, WORDS, Tomb, TombPage, with_child

Path = list[tuple[Any, Any]]
"""The way to an I-node: each I-node above it, with the key under which that one holds the next."""


class Cursor:
    """A place in the trie: an I-node, `node`, its content, `main`, the `path` to it, and the `key` that changes."""

    __slots__ = ("gen", "head", "key", "main", "node", "path", "rollup", "shift")

    def __init__(self, head: Any, rollup: bool) -> None:
        self.head = head
        self.rollup = rollup
        root = head.root
        self.gen = root.gen
        self.path: Path = []
        self.node = root
        self.main = root.main
        self.key: Any = None
        self.shift = 0

    def make(self, main: Any) -> Any:
        """A new I-node of this generation."""
        return self.head.make(main, self.gen)

    def shrink(self, branch: Any) -> bool | None:
        """Put *branch*, which has less than before, under the key here, and prune nodes that are not needed then."""
        new = self.pruned(with_child(self.main, self.key, branch, self.make), self.path)
        if not self.head.gcas(self.node, self.main, new):
            return None
        if nodes.is_tomb(new):
            self.clean()
        else:
            self.merge(self.node, new, self.path)
        return True

    def pruned(self, main: Any, path: Path) -> Any:
        """The new content of the I-node at the end of *path*: *main*, or a T-node if the I-node is not needed."""
        if type(main) is list:
            if any(main):
                return main
            main = {}
        if len(path) == 1:
            return main  # the top C-node, the page of literals
        if type(main) is tuple:
            return Tomb(main) if nodes.rolled_up(main, self.rollup)[0] else main
        above = path[-1][0].main
        return TombPage(main) if len(main) <= (0 if type(above) is list else SMALL_NODE) else main

    def clean(self) -> None:
        """Have the parent drop the I-node here, which holds a T-node, and so on upwards."""
        path = self.path
        while len(path) > 1:
            node, key = path.pop()
            while True:
                main = node.main
                if nodes.is_tomb(main):
                    break  # its own parent must drop it
                tomb = nodes.child(main, key)
                if tomb is None or nodes.is_leaf(tomb) or not nodes.is_tomb(tomb.main):
                    return  # another writer dropped it
                new = self.pruned(self.without(main, key, tomb.main), path)
                if self.head.gcas(node, main, new):
                    if not nodes.is_tomb(new):
                        self.merge(node, new, path)
                        return
                    break
                if self.head.root.gen is not self.gen:
                    return

    def without(self, main: Any, key: Any, tomb: Any) -> Any:
        """*main*, in which the T-node under *key* is replaced by what is left of it."""
        if type(tomb) is TombPage:
            return self.without_page(main, key, tomb)
        needless, leaf = nodes.rolled_up(tomb, self.rollup)
        if needless:
            return with_child(main, key, leaf, self.make)
        if type(main) is tuple and nodes.only_child(main) and self.rollup:
            return nodes.merged(main, key, tuple(tomb))
        return with_child(main, key, self.make(tuple(tomb)), self.make)

    def without_page(self, main: Any, key: Any, tomb: TombPage) -> Any:
        """*main*, in which the T-node of a page under *key* is replaced by what is left of it."""
        if type(main) is list:
            return with_child(main, key, None, self.make)
        if key is WORDS:
            return with_child(main, WORDS, nodes.table_of(dict(tomb), self.make), self.make)
        return with_child(main, key, nodes.leaf_of("", tuple(tomb)) if tomb else None, self.make)

    def merge(self, node: Any, main: Any, path: Path) -> None:
        """If *node*, which holds *main*, now has one branch and no values, merge it with the node below.

        The node below becomes a T-node first, so that nobody changes it. One of an older generation cannot change
        anyway.
        """
        if type(main) is not tuple or len(path) < 2 or not self.rollup:
            return
        only = nodes.only_child(main)
        if only is None:
            return
        word, below = only
        content = below.main
        if type(content) is not tuple:
            return
        if below.gen is not self.gen:
            self.head.gcas(node, main, nodes.merged(main, word, content))
        elif self.head.gcas(below, content, Tomb(content)):
            self.path = [*path, (node, word)]
            self.clean()

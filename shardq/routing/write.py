"""One try of one write: down to the place, one compare-and-swap there, and pruning of what that leaves behind."""

from __future__ import annotations

from typing import Any

from shardq.routing import nodes
from shardq.routing.nodes import FEW, RUN, SMALL, VALUES, WORDS, Tomb, TombPage, with_child
from shardq.routing.topic import MANY, ONE

LITERALS, WILD = 0, 1

Path = list[tuple[Any, Any]]
"""The way to an I-node: each I-node above it, and the key under which that one holds the next."""


class Write:
    """One try of one write; its methods return None when another write came in between."""

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

    # --- going down --------------------------------------------------------------------------------------------

    def make(self, main: Any) -> Any:
        """A new I-node of this generation."""
        return self.head.make(main, self.gen)

    def down(self, key: Any, branch: Any) -> bool:
        """Go to the I-node *branch*, held here under *key*; False when that must be tried again."""
        if branch.gen is not self.gen:
            copy = self.make(branch.main)
            changed = with_child(self.main, key, copy, self.make)
            if not self.head.gcas(self.node, self.main, changed):
                return False
            branch = copy
        self.path.append((self.node, key))
        self.node = branch
        self.main = branch.main
        if nodes.is_tomb(self.main):
            self.clean()
            return False
        return True

    def page(self, position: int, page: Any, key: str) -> bool:
        """Go to the place for *key* in the page held here at *position*; False to try again."""
        self.shift, bits = 0, hash(key)
        if not self.down(position, page):
            return False
        while type(self.main) is list:
            index = nodes.slot(bits, self.shift)
            below = self.main[index]
            if below is None:
                return True
            if not self.down(index, below):
                return False
            self.shift = nodes.deeper(self.shift)
        return True

    def found(self, key: Any) -> Any:
        """What is held here under *key*, and from now on the place to change."""
        self.key = key
        return None if type(self.main) is list else nodes.child(self.main, key)

    def step(self, word: str) -> tuple[bool, Any]:
        """Go to where the branch for *word* of this C-node is held; whether that went well, and the branch."""
        words = self.main[WORDS]
        wide = words is not None and type(words) is not dict and type(words) is not tuple
        if wide and word not in (ONE, MANY) and not self.page(WORDS, words, word):
            return False, None
        return True, self.found(word)

    # --- writing -----------------------------------------------------------------------------------------------

    def put(self, branch: Any) -> bool | None:
        """Hold *branch* under the key here; True, or None when that must be tried again."""
        if type(self.main) is tuple:
            new = with_child(self.main, self.key, branch, self.make)
        else:
            new = nodes.with_entry(self.main, self.shift, self.key, branch, self.make)
        return True if self.head.gcas(self.node, self.main, new) else None

    def insert(self, pattern: str, words: list[str] | None, value: str) -> bool | None:
        """Add *value*; whether it is new."""
        if words is None:
            there = self.page(LITERALS, self.main[LITERALS], pattern)
            return self.add(self.found(pattern), value) if there else None
        if not self.down(WILD, self.main[WILD]):
            return None
        at = 0
        while True:
            if not self.split_run(self.main[RUN], words, at):
                return None
            at += len(self.main[RUN])
            if at == len(words):
                return self.add(self.found(VALUES), value)
            good, branch = self.step(words[at])
            at += 1
            if good and branch is None:
                return self.put(self.grown(words[at:], value))
            if good and nodes.is_leaf(branch):
                both = nodes.parted(branch, words[at:], value, self.make, self.rollup)
                return self.add(branch, value, words[at:]) if both is None else self.put(both)
            if not good or not self.down(self.key, branch):
                return None

    def add(self, held: Any, value: str, tail: list[str] | None = None) -> bool | None:
        """Add *value* to the values held here; *tail* is the rest of the pattern of a branch."""
        if held is None:
            return self.put(value)
        if nodes.is_leaf(held):
            values = nodes.values_of(held)
            if value in values:
                return False
            if len(values) < SMALL:
                return self.put((nodes.tail_of(held), *values, value))
            page = self.make(dict.fromkeys((*values, value)))
            return self.put(page if tail is None else self.grown(tail, page))
        if not self.page(self.key, held, value):
            return None
        if type(self.main) is not list and value in self.main:
            return False
        new = nodes.with_entry(self.main, self.shift, value, None, self.make)
        return True if self.head.gcas(self.node, self.main, new) else None

    def grown(self, words: list[str], values: Any) -> Any:
        """As `nodes.grown`."""
        return nodes.grown(words, values, self.make, self.rollup)

    def split_run(self, run: tuple[str, ...], words: list[str], at: int) -> bool:
        """Where the run here parts from *words*, put the rest of the node below it; False to try again."""
        same = nodes.common(run, words[at:]) if run else 0
        if same == len(run):
            return True
        below = self.make((run[same + 1 :], *self.main[1:]))
        new = with_child((run[:same], None, None, None, None), run[same], below, self.make)
        if not self.head.gcas(self.node, self.main, new):
            return False
        self.main = new
        return True

    def remove(self, pattern: str, words: list[str] | None, value: str) -> bool | None:
        """Take *value* away; whether it was there."""
        if words is None:
            there = self.page(LITERALS, self.main[LITERALS], pattern)
            return self.take(self.found(pattern), value) if there else None
        if not self.down(WILD, self.main[WILD]):
            return None
        at = 0
        while True:
            run = self.main[RUN]
            if run and nodes.common(run, words[at:]) < len(run):
                return False
            at += len(run)
            if at == len(words):
                return self.take(self.found(VALUES), value)
            good, branch = self.step(words[at])
            at += 1
            if good and (branch is None or nodes.is_leaf(branch)):
                ours = branch is not None and nodes.decode(nodes.tail_of(branch)) == words[at:]
                return self.take(branch, value) if ours else False
            if not good or not self.down(self.key, branch):
                return None

    def take(self, held: Any, value: str) -> bool | None:
        """Take *value* from the values held here."""
        if held is None:
            return False
        if nodes.is_leaf(held):
            values = nodes.values_of(held)
            if value not in values:
                return False
            left = [each for each in values if each != value]
            return self.shrink(nodes.leaf_of(nodes.tail_of(held), left) if left else None)
        if not self.page(self.key, held, value):
            return None
        if type(self.main) is list or value not in self.main:
            return False
        self.key = value
        return self.shrink(None)

    # --- pruning -----------------------------------------------------------------------------------------------

    def shrink(self, branch: Any) -> bool | None:
        """Hold *branch*, less than before, under the key here; prune what is not needed any more."""
        new = self.pruned(with_child(self.main, self.key, branch, self.make), self.path)
        if not self.head.gcas(self.node, self.main, new):
            return None
        if nodes.is_tomb(new):
            self.clean()
        else:
            self.merge(self.node, new, self.path)
        return True

    def pruned(self, main: Any, path: Path) -> Any:
        """What an I-node at the end of *path* is to hold: *main*, or a T-node if it is not needed."""
        if type(main) is list:
            if any(main):
                return main
            main = {}
        if len(path) == 1:
            return main  # the top C-node, the page of literals
        if type(main) is tuple:
            return Tomb(main) if nodes.rolled_up(main, self.rollup)[0] else main
        above = path[-1][0].main
        return TombPage(main) if len(main) <= (0 if type(above) is list else FEW) else main

    def clean(self) -> None:
        """Drop the I-node here, which holds a T-node, from its parent; and so on upwards."""
        path = self.path
        while len(path) > 1:
            node, key = path.pop()
            while True:
                main = node.main
                if nodes.is_tomb(main):
                    break  # its parent drops it
                tomb = nodes.child(main, key)
                if tomb is None or nodes.is_leaf(tomb) or not nodes.is_tomb(tomb.main):
                    return  # somebody did it
                new = self.pruned(self.without(main, key, tomb.main), path)
                if self.head.gcas(node, main, new):
                    if not nodes.is_tomb(new):
                        self.merge(node, new, path)
                        return
                    break
                if self.head.root.gen is not self.gen:
                    return

    def without(self, main: Any, key: Any, tomb: Any) -> Any:
        """*main* with what is left of the T-node under *key* in its place."""
        if type(tomb) is TombPage:
            return self.without_page(main, key, tomb)
        needless, leaf = nodes.rolled_up(tomb, self.rollup)
        if needless:
            return with_child(main, key, leaf, self.make)
        if type(main) is tuple and nodes.lone(main) and self.rollup:
            return nodes.merged(main, key, tuple(tomb))
        return with_child(main, key, self.make(tuple(tomb)), self.make)

    def without_page(self, main: Any, key: Any, tomb: TombPage) -> Any:
        """The same for a page."""
        if type(main) is list:
            return with_child(main, key, None, self.make)
        if key is WORDS:
            return with_child(main, WORDS, nodes.table_of(dict(tomb), self.make), self.make)
        return with_child(main, key, nodes.leaf_of("", tuple(tomb)) if tomb else None, self.make)

    def merge(self, node: Any, main: Any, path: Path) -> None:
        """If *node* is now only on the way to one other, make one of both.

        That one becomes a T-node first, unless it is of an older generation, when nobody can change it anyhow.
        """
        if type(main) is not tuple or len(path) < 2 or not self.rollup:
            return
        only = nodes.lone(main)
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

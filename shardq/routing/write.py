"""One try of one write: down to the place, one compare-and-swap there, and pruning of what that leaves behind."""

from __future__ import annotations

from typing import Any

from shardq.routing import growth, nodes
from shardq.routing.nodes import RUN, SMALL, VALUES, WORDS, with_child
from shardq.routing.prune import Place
from shardq.routing.topic import MANY, ONE

LITERALS, WILD = 0, 1


class Write(Place):
    """One try of one write; its methods return None when another write came in between."""

    __slots__ = ()

    # --- going down --------------------------------------------------------------------------------------------

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
                both = growth.parted(branch, words[at:], value, self.make, self.rollup)
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
        """As `growth.grown`."""
        return growth.grown(words, values, self.make, self.rollup)

    def split_run(self, run: tuple[str, ...], words: list[str], at: int) -> bool:
        """Where the run here parts from *words*, put the rest of the node below it; False to try again."""
        same = growth.common(run, words[at:]) if run else 0
        if same == len(run):
            return True
        below = self.make((run[same + 1 :], *self.main[1:]))
        new = with_child((run[:same], None, None, None, None), run[same], below, self.make)
        if not self.head.gcas(self.node, self.main, new):
            return False
        self.main = new
        return True

    def remove(self, pattern: str, words: list[str] | None, value: Any) -> bool | None:
        """Take *value* away; whether it was there."""
        if words is None:
            there = self.page(LITERALS, self.main[LITERALS], pattern)
            return self.take(self.found(pattern), value) if there else None
        if not self.down(WILD, self.main[WILD]):
            return None
        at = 0
        while True:
            run = self.main[RUN]
            if run and growth.common(run, words[at:]) < len(run):
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

    def take(self, held: Any, value: Any) -> bool | None:
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

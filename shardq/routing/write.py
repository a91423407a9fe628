"""One attempt at a write: go down to the place, replace one I-node's content there, and prune what is empty then."""

from __future__ import annotations

from typing import Any

from shardq.routing import growth, nodes
from shardq.routing.nodes import RUN, SMALL_LIST, VALUES, WORDS, with_child
from shardq.routing.prune import Cursor
from shardq.routing.topic import MANY, ONE

LITERALS, WILDCARDS = 0, 1


class Write(Cursor):
    """One attempt at a write. `insert` and `remove` return None if another write came in between: try again."""

    __slots__ = ()

    # --- going down --------------------------------------------------------------------------------------------

    def descend(self, key: Any, branch: Any) -> bool:
        """Go to the I-node *branch*, which is here under *key*; False to start over."""
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

    def descend_page(self, position: int, page: Any, key: str) -> bool:
        """Go to the place for *key* in *page*, which is here at *position*; False to start over."""
        self.shift, bits = 0, hash(key)
        if not self.descend(position, page):
            return False
        while type(self.main) is list:
            index = nodes.slot(bits, self.shift)
            below = self.main[index]
            if below is None:
                return True
            if not self.descend(index, below):
                return False
            self.shift = nodes.deeper(self.shift)
        return True

    def select(self, key: Any) -> Any:
        """Make *key* the key here that changes; return what is under it."""
        self.key = key
        return None if type(self.main) is list else nodes.child(self.main, key)

    def select_word(self, word: str) -> tuple[bool, Any]:
        """Go to the place of the branch for *word* of this C-node; return False to start over, and the branch."""
        words = self.main[WORDS]
        wide = words is not None and type(words) is not dict and type(words) is not tuple
        if wide and word not in (ONE, MANY) and not self.descend_page(WORDS, words, word):
            return False, None
        return True, self.select(word)

    def reach(self, pattern: str, words: list[str] | None, *, splits: bool) -> tuple[Any, list[str] | None] | None:
        """Go as far down as the pattern leads; None to start over.

        Return the values of the pattern, and None; or the leaf or None where its *words* continue, and the rest of
        them. With *splits* a run that parts from *words* is split there.
        """
        if words is None:
            there = self.descend_page(LITERALS, self.main[LITERALS], pattern)
            return (self.select(pattern), None) if there else None
        if not self.descend(WILDCARDS, self.main[WILDCARDS]):
            return None
        at = 0
        while True:
            run = self.main[RUN]
            same = growth.common_prefix(run, words[at:]) if run else 0
            if same < len(run):
                if not splits:
                    return None, []
                if not self.split_run(run, same):
                    return None
            at += same
            if at == len(words):
                return self.select(VALUES), None
            good, branch = self.select_word(words[at])
            at += 1
            if good and (branch is None or nodes.is_leaf(branch)):
                return branch, words[at:]
            if not good or not self.descend(self.key, branch):
                return None

    def split_run(self, run: tuple[str, ...], same: int) -> bool:
        """Split the node here behind the first *same* words of its *run*; False to start over."""
        below = self.make((run[same + 1 :], *self.main[1:]))
        new = with_child((run[:same], None, None, None, None), run[same], below, self.make)
        if not self.head.gcas(self.node, self.main, new):
            return False
        self.main = new
        return True

    # --- writing -----------------------------------------------------------------------------------------------

    def put(self, branch: Any) -> bool | None:
        """Put *branch* under the key here; True, or None to start over."""
        if type(self.main) is tuple:
            new = with_child(self.main, self.key, branch, self.make)
        else:
            new = nodes.with_entry(self.main, self.shift, self.key, branch, self.make)
        return True if self.head.gcas(self.node, self.main, new) else None

    def insert(self, pattern: str, words: list[str] | None, value: str) -> bool | None:
        """Add *value* to the pattern; whether it was new, or None to start over."""
        found = self.reach(pattern, words, splits=True)
        if found is None:
            return None
        held, rest = found
        if rest is None:
            return self.add_value(held, value)
        if held is None:
            return self.put(self.new_branch(rest, value))
        both = growth.split_leaf(held, rest, value, self.make, self.rollup)
        return self.add_value(held, value, rest) if both is None else self.put(both)

    def add_value(self, held: Any, value: str, tail: list[str] | None = None) -> bool | None:
        """Add *value* to the values *held* here; *tail* is the rest of the pattern if *held* is a branch."""
        if held is None:
            return self.put(value)
        if nodes.is_leaf(held):
            values = nodes.values_of(held)
            if value in values:
                return False
            if len(values) < SMALL_LIST:
                return self.put((nodes.tail_of(held), *values, value))
            page = self.make(dict.fromkeys((*values, value)))
            return self.put(page if tail is None else self.new_branch(tail, page))
        if not self.descend_page(self.key, held, value):
            return None
        if type(self.main) is not list and value in self.main:
            return False
        new = nodes.with_entry(self.main, self.shift, value, None, self.make)
        return True if self.head.gcas(self.node, self.main, new) else None

    def new_branch(self, words: list[str], values: Any) -> Any:
        """A new branch with *words* and *values*, rolled up as this trie is."""
        return growth.new_branch(words, values, self.make, self.rollup)

    def remove(self, pattern: str, words: list[str] | None, value: Any) -> bool | None:
        """Remove *value* from the pattern; whether it was there, or None to start over."""
        found = self.reach(pattern, words, splits=False)
        if found is None:
            return None
        held, rest = found
        if rest is not None and (held is None or nodes.decode(nodes.tail_of(held)) != rest):
            return False
        return self.remove_value(held, value)

    def remove_value(self, held: Any, value: Any) -> bool | None:
        """Remove *value* from the values *held* here."""
        if held is None:
            return False
        if nodes.is_leaf(held):
            values = nodes.values_of(held)
            if value not in values:
                return False
            left = [each for each in values if each != value]
            return self.shrink(nodes.leaf_of(nodes.tail_of(held), left) if left else None)
        if not self.descend_page(self.key, held, value):
            return None
        if type(self.main) is list or value not in self.main:
            return False
        self.key = value
        return self.shrink(None)

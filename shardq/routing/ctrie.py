"""A concurrent trie of topic patterns with constant-time snapshots: the Ctrie, branching by word.

"Breaking and Entering: Lose the Lock While Embracing Concurrency" (Treat) derives it from the Ctrie of Prokopec et
al. (PPoPP 2012): branches are chosen by the words of a topic, not a hash, values may lie on inner nodes, a T-node
comes only when all branches are gone, and what is empty is pruned. What is added here: runs of single branches are
rolled up and split on demand (so a T-node also comes when one pattern is left), tables that grow wide become hash
tries of I-nodes, and patterns without wildcards, which a lookup finds by one key, live in such a table of their own.

The invariants:

- What an I-node holds is a value that never changes; a change is one `gcas` of the I-node. Who loses starts over.
- An I-node that holds a T-node holds it for ever. Only then may its parent drop it; every writer that meets it does.
- A writer changes only I-nodes of the trie's generation. An older one belongs to a snapshot, and is copied first, into
  its parent. Nobody can change it any more, so the copy is exact. Lookups copy nothing: they read what is there.
- The root holds the page of literal patterns and the top C-node; neither is ever a T-node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from shardq.routing import nodes
from shardq.routing.atomic import form_of
from shardq.routing.census import Census, count, pairs
from shardq.routing.fast import added, dropped
from shardq.routing.lookup import lookup
from shardq.routing.nodes import FEW, RUN, SMALL, VALUES, WORDS, Tomb, TombPage, with_child
from shardq.routing.topic import MANY, ONE, is_wild, split

LITERALS, WILD = 0, 1

Path = list[tuple[Any, Any]]
"""The way to an I-node: each I-node above it, and the key under which that one holds the next."""


class Ctrie:
    """Patterns and their values, shared by threads. Lookups never lock or wait; writers never wait for one another.

    Values are `str`. *form* is the form of compare-and-swap ("gil", "cas", "locks"; None takes the best here), *rollup*
    False keeps every word in a node of its own. Patterns are not checked here, and empty words are words.
    """

    __slots__ = ("_head", "_rollup", "readonly")

    def __init__(self, *, form: str | None = None, rollup: bool = True) -> None:
        head = form_of(form)
        self._start(head, rollup, [head.make({}, None), head.make(nodes.EMPTY, None)], readonly=False)

    def _start(self, head: Any, rollup: bool, top: list[Any], *, readonly: bool) -> Self:
        self._head = head(top)
        self._rollup, self.readonly = rollup, readonly
        return self

    def lookup(self, topic: str) -> frozenset[str]:
        """The values of all patterns that match *topic*, as of one instant during the call."""
        return lookup(self._head, topic)

    def insert(self, pattern: str, value: str) -> bool:
        """Put *value* under *pattern*; False if it was there."""
        self._check_writable()
        words = split(pattern) if is_wild(pattern) else None
        if added(self._head, pattern, words, value, self._rollup):
            return True
        while (done := _Write(self._head, self._rollup).insert(pattern, words, value)) is None:
            pass
        return done

    def remove(self, pattern: str, value: str) -> bool:
        """Take *value* from *pattern*; False if it was not there."""
        self._check_writable()
        words = split(pattern) if is_wild(pattern) else None
        if words is None and dropped(self._head, pattern, value):
            return True
        while (done := _Write(self._head, self._rollup).remove(pattern, words, value)) is None:
            pass
        return done

    def clear(self) -> None:
        """Remove everything, at one instant; snapshots keep theirs."""
        self._check_writable()
        make = self._head.make
        while not self._renewed([make({}, None), make(nodes.EMPTY, None)]):
            pass

    def snapshot(self, *, readonly: bool = True) -> Ctrie:
        """The trie as it is at one instant, in constant time; a writable one goes its own way."""
        root = self._head.root
        top = root.main
        while not self.readonly and not self._head.renew(root, top, top):
            root = self._head.root
            top = root.main
        copy = Ctrie.__new__(Ctrie)
        return copy._start(type(self._head), self._rollup, top, readonly=readonly or self.readonly)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Each pattern with each of its values, of a snapshot taken now."""
        return pairs(self.snapshot()._head.root.main)

    def __len__(self) -> int:
        """How many pairs of a pattern and a value there are, counted in a snapshot."""
        return sum(1 for _ in self)

    def census(self) -> Census:
        """How many nodes of which kind there are, counted in a snapshot."""
        return count(self.snapshot()._head.root.main)

    def _renewed(self, fresh: list[Any]) -> bool:
        root = self._head.root
        return bool(self._head.renew(root, root.main, fresh))

    def _check_writable(self) -> None:
        if self.readonly:
            raise TypeError("this is a read-only snapshot: take a writable one with snapshot(readonly=False)")


class _Write:
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
            index = bits >> self.shift & nodes.FAN - 1
            below = self.main[index]
            if below is None:
                return True
            if not self.down(index, below):
                return False
            self.shift += nodes.BITS
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
                tail = nodes.decode(nodes.tail_of(branch))
                if tail == words[at:]:
                    return self.add(branch, value, tail)
                branch = self.split_leaf(branch, tail, words, at)
            if branch is None or not self.down(self.key, branch):
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
        same = _common(run, words, at) if run else 0
        if same == len(run):
            return True
        below = self.make((run[same + 1 :], *self.main[1:]))
        new = with_child((run[:same], None, None, None, None), run[same], below, self.make)
        if not self.head.gcas(self.node, self.main, new):
            return False
        self.main = new
        return True

    def split_leaf(self, leaf: Any, tail: list[str], words: list[str], at: int) -> Any:
        """Put a node in the place of the leaf, that holds it where it parts from our words; None to try again."""
        same = _common(tail, words, at) if self.rollup else 0
        if MANY in tail[:same]:
            same = tail.index(MANY)
        if same == len(tail):
            main: Any = (tuple(tail), nodes.retailed(leaf, []), None, None, None)
        else:
            rest = nodes.retailed(leaf, tail[same + 1 :])
            main = with_child((tuple(tail[:same]), None, None, None, None), tail[same], rest, self.make)
        node = self.make(main)
        new = with_child(self.main, self.key, node, self.make)
        if not self.head.gcas(self.node, self.main, new):
            return None
        self.main = new
        return node

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
            if run and _common(run, words, at) < len(run):
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
        if type(main) is list:
            return with_child(main, key, None, self.make)
        if key is WORDS:
            return with_child(main, WORDS, nodes.table_of(dict(tomb), self.make), self.make)
        return with_child(main, key, nodes.leaf_of("", tuple(tomb)) if tomb else None, self.make)

    def merge(self, node: Any, main: Any, path: Path) -> None:
        """If *node* is now only on the way to one other, make one of both: that one becomes a T-node first."""
        if type(main) is not tuple or len(path) < 2 or not self.rollup:
            return
        only = nodes.lone(main)
        if only is None or only[1].gen is not self.gen:
            return
        word, below = only
        content = below.main
        if type(content) is tuple and self.head.gcas(below, content, Tomb(content)):
            self.path = [*path, (node, word)]
            self.clean()


def _common(run: Any, words: list[str], at: int) -> int:
    """How many words of *run* are those of *words* from *at* on."""
    same = 0
    for word, other in zip(run, words[at:], strict=False):
        if word != other:
            break
        same += 1
    return same

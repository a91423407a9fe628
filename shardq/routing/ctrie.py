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
from functools import partial
from typing import Any, Self

from shardq.routing import nodes
from shardq.routing.atomic import form_of
from shardq.routing.census import Census, count, pairs
from shardq.routing.fast import added, dropped, entered, left
from shardq.routing.interest import interest
from shardq.routing.lookup import consistently, lookup
from shardq.routing.relation import Relation, related
from shardq.routing.topic import wild_words
from shardq.routing.write import Write


class Ctrie:
    """Patterns and their values, shared by threads. Lookups take no lock.

    Values are `str`. Patterns are not checked here, and an empty word is a word. *form* is the form of compare-and-swap
    (`shardq.routing.atomic`): "gil", "lock", or None for the one that this Python uses by default. With *rollup* False
    every word has a node of its own.
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

    def has_interest(self, topic: str) -> bool:
        """Whether any pattern matches *topic*, as of one instant during the call; stops at the first that does."""
        return consistently(self._head, partial(interest, text=topic))

    def related(self, relation: Relation) -> Iterator[tuple[str, str]]:
        """Each pattern for which *relation* holds, with each of its values, of a snapshot taken now."""
        return related(self.snapshot()._head.root.main, relation)

    def insert(self, pattern: str, value: str) -> bool:
        """Put *value* under *pattern*; False if it was there."""
        if self.readonly:
            self._refuse()
        words = wild_words(pattern)
        head, rollup = self._head, self._rollup
        if entered(head, pattern, value) if words is None else added(head, words, value, rollup):
            return True
        while (done := Write(head, rollup).insert(pattern, words, value)) is None:
            pass
        return done

    def remove(self, pattern: str, value: str) -> bool:
        """Take *value* from *pattern*; False if it was not there."""
        if self.readonly:
            self._refuse()
        words = wild_words(pattern)
        head, rollup = self._head, self._rollup
        gone = left(head, pattern, value) if words is None else dropped(head, words, value, rollup)
        if gone:
            return True
        rest = value if gone is False else None  # no value is None: on its way it drops T-nodes, and removes nothing
        while (done := Write(head, rollup).remove(pattern, words, rest)) is None:
            pass
        return done or gone is None

    def clear(self) -> None:
        """Remove everything, at one instant; snapshots keep theirs."""
        if self.readonly:
            self._refuse()
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

    def _refuse(self) -> None:
        raise TypeError("this is a read-only snapshot: take a writable one with snapshot(readonly=False)")

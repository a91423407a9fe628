"""A concurrent trie of topic patterns with constant-time snapshots: a Ctrie that branches by word.

"Breaking and Entering: Lose the Lock While Embracing Concurrency" (Treat) derives it from the Ctrie of Prokopec et al.
(PPoPP 2012): the words of a topic choose the branches instead of a hash, inner nodes may have values, a node becomes a
T-node only when all of its branches are gone, and empty nodes are pruned. This implementation adds three things. A run
of nodes with one branch each is rolled up into one node, and split again on demand; so a node also becomes a T-node
when one pattern is left in it. A table of words that grows wide becomes a hash trie of I-nodes, called a page. Patterns
without wildcards are in a page of their own, where a lookup finds them by one key.

The invariants:

- The content of an I-node is a value that never changes. A writer replaces it by one `gcas`; if that fails, the writer
  starts over.
- An I-node that holds a T-node holds it for ever. Only then may its parent drop the I-node, and every writer that comes
  across a T-node has the parent drop it.
- A writer changes only I-nodes of the trie's generation. An I-node of an older generation belongs to a snapshot. Nobody
  can change it any more, so the writer copies it into its parent, and changes the copy. Lookups copy nothing.
- The root holds the page of the literal patterns and the top C-node. Neither of them ever becomes a T-node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from shardq.arguments import flag
from shardq.routing import nodes
from shardq.routing.atomic import form_of
from shardq.routing.contents import pairs
from shardq.routing.fast import insert_literal, insert_wild, remove_literal, remove_wild
from shardq.routing.lookup import NO_QUEUES, consistently, freeze, interest, walk
from shardq.routing.relation import Relation, related
from shardq.routing.topic import wild_words
from shardq.routing.write import Write


class Ctrie:
    """Patterns and their values, shared by threads. Lookups take no lock.

    Values are `str`. Patterns are not checked here, and an empty word is a word. *form* is the form of compare-and-swap
    (`shardq.routing.atomic`): "gil", "lock", or None for the one that this Python uses by default. With *rollup* False
    every word has a node of its own.

    ConfigError for a bad argument.

    >>> trie = Ctrie()
    >>> trie.insert("orders.#", "audit"), trie.insert("orders.*.created", "billing")
    (True, True)
    >>> sorted(trie)
    [('orders.#', 'audit'), ('orders.*.created', 'billing')]
    """

    __slots__ = ("_head", "_rollup", "readonly")

    def __init__(self, *, form: str | None = None, rollup: bool = True) -> None:
        head = form_of(form)
        self._start(head, rollup, _empty(head.make), readonly=False)

    def _start(self, head: Any, rollup: bool, top: list[Any], *, readonly: bool) -> Self:
        self._head = head(top)
        self._rollup, self.readonly = rollup, readonly
        return self

    def lookup(self, topic: str) -> frozenset[str]:
        """The values of all patterns that match *topic*, as of one instant during the call. It raises nothing.

        >>> trie.lookup("orders.eu.paid")
        frozenset({'audit'})
        """
        found = consistently(self._head, walk, topic)
        return frozenset(found) if found else NO_QUEUES

    def has_interest(self, topic: str) -> bool:
        """Whether any pattern matches *topic*, as of one instant during the call; stops at the first that does.

        It raises nothing.

        >>> trie.has_interest("orders"), trie.has_interest("users")
        (True, False)
        """
        return consistently(self._head, interest, topic)

    def related(self, relation: Relation) -> Iterator[tuple[str, str]]:
        """Each pattern for which *relation* holds, with each of its values, from a snapshot taken now.

        It raises nothing.

        >>> from shardq.routing.relation import Covering
        >>> [*trie.related(Covering("orders.*.*"))]
        [('orders.*.created', 'billing')]
        """
        return related(self.snapshot()._head.root.main, relation)

    def insert(self, pattern: str, value: str) -> bool:
        """Add *value* to the values of *pattern*; False if it was there. TypeError for a read-only snapshot.

        >>> trie.insert("orders.#", "audit"), trie.insert("orders.#", "search")
        (False, True)
        """
        if self.readonly:
            self._refuse()
        words = wild_words(pattern)
        head, rollup = self._head, self._rollup
        if insert_literal(head, pattern, value) if words is None else insert_wild(head, words, value, rollup):
            return True
        while (done := Write(head, rollup).insert(pattern, words, value)) is None:
            pass
        return done

    def remove(self, pattern: str, value: str) -> bool:
        """Remove *value* from the values of *pattern*; False if it was not there. TypeError for a read-only snapshot.

        >>> trie.remove("orders.#", "audit"), trie.remove("orders.#", "audit")
        (True, False)
        """
        if self.readonly:
            self._refuse()
        words = wild_words(pattern)
        head, rollup = self._head, self._rollup
        gone = remove_literal(head, pattern, value) if words is None else remove_wild(head, words, value, rollup)
        if gone:
            return True
        rest = value if gone is False else None  # None is no value: this removes nothing, and drops T-nodes
        while (done := Write(head, rollup).remove(pattern, words, rest)) is None:
            pass
        return done or gone is None

    def clear(self) -> None:
        """Remove all values of all patterns at one instant; snapshots keep theirs. TypeError for a read-only snapshot.

        >>> trie.clear()
        >>> len(trie)
        0
        """
        if self.readonly:
            self._refuse()
        head = self._head
        while not head.renew(root := head.root, root.main, _empty(head.make)):
            pass

    def snapshot(self, *, readonly: bool = True) -> Ctrie:
        """The trie as it is at one instant, in constant time. A writable snapshot does not change with this trie.

        ConfigError if *readonly* is not a bool.

        >>> before = trie.snapshot()
        >>> trie.clear()
        >>> len(before), len(trie)
        (2, 0)
        """
        top = self._head.root.main if self.readonly else freeze(self._head)
        copy = Ctrie.__new__(Ctrie)
        return copy._start(type(self._head), self._rollup, top, readonly=flag("readonly", readonly) or self.readonly)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Each pattern with each of its values, from a snapshot taken now."""
        return pairs(self.snapshot()._head.root.main)

    def __len__(self) -> int:
        """How many pairs of a pattern and a value there are, counted in a snapshot."""
        return sum(1 for _ in self)

    def _refuse(self) -> None:
        raise TypeError("this is a read-only snapshot: take a writable one with snapshot(readonly=False)")


def _empty(make: Any) -> list[Any]:
    """The content of the root of an empty trie. Its nodes are of no generation, so the first writer copies them."""
    return [make({}, None), make(nodes.EMPTY, None)]

"""The router: patterns that are bound to queues, and the queues to which a topic goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from shardq.arguments import check_name, flag, iterable, shown
from shardq.errors import ConfigError
from shardq.routing.cache import Cache
from shardq.routing.ctrie import Ctrie
from shardq.routing.relation import Covering, Overlapping
from shardq.routing.topic import check_bindable, check_pattern, check_topic, wild_words


class Binding(NamedTuple):
    """A pattern and the name of the queue that it is bound to.

    >>> Binding("orders.#", "audit").queue
    'audit'

    These are `pattern` and `queue`.
    """

    pattern: str
    queue: str


class BoundQueue(NamedTuple):
    """A binding, and whether its queue is `gone`: it does not exist. None if this client may not know.

    `Client.bindings` returns them. `pattern` and `queue` are those of the binding.

    >>> BoundQueue("orders.#", "closed", gone=True).gone
    True
    """

    pattern: str
    queue: str
    gone: bool | None


def bindings_of(bindings: Iterable[tuple[str, Any]], name: Callable[[Any], Any] = lambda queue: queue) -> list[Binding]:
    """Pairs (pattern, queue) as bindings, without duplicates; *name* turns a queue into its name.

    ConfigError or PatternError for the first pair that is not a binding.
    """
    found: dict[Binding, None] = {}
    for index, each in enumerate(iterable("bindings", bindings, "pairs (pattern, queue)")):
        if not isinstance(each, tuple) or len(each) != 2:
            raise ConfigError(f"binding {index} must be a pair (pattern, queue), not {shown(each)}")
        found[Binding(check_pattern(each[0]), str(check_name(name(each[1]))))] = None
    return list(found)


class Router:
    """The bindings of this process, shared by its threads: a trie, and a cache of the results of lookups.

    `trie` has the bindings. *cache* is how many results are kept, 0 for none; *form* and *rollup* are those of
    `shardq.routing.ctrie.Ctrie`.

    ConfigError for a bad argument.

    >>> router = Router()
    >>> router.bind_many([("orders.*.created", "billing"), ("orders.#", "audit")])
    []
    >>> sorted(router.match("orders.eu.created"))
    ['audit', 'billing']
    """

    def __init__(self, *, cache: int = 16_384, form: str | None = None, rollup: bool = True) -> None:
        if type(cache) is not int or not 0 <= cache <= 16_777_216:
            raise ConfigError("cache must be an int from 0 to 16,777,216: how many results of lookups are kept")
        self.trie: Ctrie = Ctrie(form=form, rollup=flag("rollup", rollup))
        self.cache: Cache | None = Cache(cache) if cache else None

    def bind(self, pattern: str, queue: str) -> bool:
        """Route topics that *pattern* matches to *queue*; False if they are already. PatternError, ConfigError.

        >>> router.bind("users.#", "audit"), router.bind("users.#", "audit")
        (True, False)
        """
        check_bindable(pattern)
        return self._write(self.trie.insert, pattern, str(check_name(queue)))

    def unbind(self, pattern: str, queue: str) -> bool:
        """Remove that binding; False if it did not exist. Other patterns of the queue stay. PatternError, ConfigError.

        >>> router.unbind("orders.#", "audit"), router.unbind("orders.#", "audit")
        (True, False)
        """
        check_pattern(pattern)
        return self._write(self.trie.remove, pattern, str(check_name(queue)))

    def bind_many(self, bindings: Iterable[tuple[str, str]]) -> list[Binding]:
        """Add many bindings, one after another; return those that existed. All are checked first.

        PatternError, ConfigError: nothing was added.

        >>> router.bind_many([("orders.#", "audit"), ("users.*", "audit")])
        [Binding(pattern='orders.#', queue='audit')]
        """
        found = bindings_of(bindings)
        for each in found:
            check_bindable(each.pattern)
        return [each for each in found if not self._write(self.trie.insert, *each)]

    def unbind_many(self, bindings: Iterable[tuple[str, str]]) -> list[Binding]:
        """Remove many bindings, one after another; return those that did not exist. All are checked first.

        PatternError, ConfigError: nothing was removed.

        >>> router.unbind_many([("orders.#", "audit"), ("users.*", "audit")])
        [Binding(pattern='users.*', queue='audit')]
        """
        return [each for each in bindings_of(bindings) if not self._write(self.trie.remove, *each)]

    def match(self, topic: str) -> frozenset[str]:
        """The names of the queues that *topic* goes to, each once, as of one instant during the call.

        PatternError for a bad topic.

        >>> router.match("orders.eu.paid"), router.match("users.7")
        (frozenset({'audit'}), frozenset())
        """
        cache = self.cache
        if cache is None:
            return self.trie.lookup(check_topic(topic))
        if type(topic) is str:
            result = cache.get(topic)
            if result is not None:
                return result
        check_topic(topic)
        ticket = cache.ticket(topic)
        result = self.trie.lookup(topic)
        if ticket is not None:
            cache.put(topic, ticket, result)
        return result

    def has_interest(self, topic: str) -> bool:
        """Whether *topic* goes to any queue, as of one instant during the call; stops at the first match.

        PatternError for a bad topic.

        >>> router.has_interest("orders.eu.paid"), router.has_interest("users.7")
        (True, False)
        """
        check_topic(topic)
        result = None if self.cache is None else self.cache.get(topic)
        return self.trie.has_interest(topic) if result is None else bool(result)

    def num_interest(self, topic: str) -> int:
        """How many queues *topic* goes to, as of one instant during the call. PatternError for a bad topic.

        >>> router.num_interest("orders.eu.created")
        2
        """
        return len(self.match(topic))

    def bindings(self) -> Iterator[Binding]:
        """All bindings at one instant, in no order; bindings that are added meanwhile are not among them.

        It raises nothing.

        >>> sorted(each.pattern for each in router.bindings())
        ['orders.#', 'orders.*.created']
        """
        return map(Binding._make, self.trie)

    def routes_of(self, queue: str) -> list[str]:
        """The patterns bound to *queue*, sorted, at one instant; looks at all bindings. ConfigError for a bad name.

        >>> router.routes_of("audit")
        ['orders.#']
        """
        name = check_name(queue)
        return sorted(pattern for pattern, bound in self.trie if bound == name)

    def covered_by(self, pattern: str) -> list[Binding]:
        """The bindings whose pattern matches only topics that *pattern* matches, too; sorted, at one instant.

        PatternError for a bad pattern.

        >>> router.covered_by("orders.*.*")
        [Binding(pattern='orders.*.created', queue='billing')]
        """
        return sorted(map(Binding._make, self.trie.related(Covering(check_pattern(pattern)))))

    def overlapping(self, pattern: str) -> list[Binding]:
        """The bindings whose pattern matches some topic that *pattern* matches, too; sorted, at one instant.

        PatternError for a bad pattern.

        >>> router.overlapping("*.eu.paid")
        [Binding(pattern='orders.#', queue='audit')]
        """
        return sorted(map(Binding._make, self.trie.related(Overlapping(check_pattern(pattern)))))

    def __len__(self) -> int:
        """How many bindings there are, counted in a snapshot."""
        return len(self.trie)

    def _write(self, act: Callable[[str, str], bool], pattern: str, queue: str) -> bool:
        cache = self.cache
        if cache is None:
            return act(pattern, queue)
        token = cache.begin_write(pattern, wild=wild_words(pattern) is not None)
        try:
            return act(pattern, queue)
        finally:
            cache.end_write(token)

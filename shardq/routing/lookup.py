"""The values of all patterns that match a topic, as of one instant, without a lock and without waiting.

The trie is walked breadth first, by pairs of an I-node and how many words of the topic lead to it. A branch under `#` is
entered once for each number of words that the `#` may have stood for; no pair is entered twice. So a lookup takes
O(nodes x words) steps, however many `#` a pattern has; walking each way by itself would take exponentially many.

Several nodes cannot be read at once. After the walk all of them are looked at again: if each still holds what it held,
then between the two passes all of it was true at the same time, and that is when the lookup happened. Otherwise a write
came in between, and the lookup is repeated.
"""

from __future__ import annotations

from typing import Any

from shardq.routing.nodes import BITS, FAN

NOTHING: frozenset[str] = frozenset()


def lookup(head: Any, topic: str) -> frozenset[str]:
    """The values of the patterns in the trie of *head* that match *topic*."""
    while True:
        root = head.root
        top = root.main
        walk = Walk(top, topic)
        if walk.holds() and root.main is top and head.root is root:
            return frozenset(walk.found) if walk.found else NOTHING


class Walk:
    """One walk over the trie."""

    __slots__ = ("found", "mains", "nodes", "seen")

    def __init__(self, top: list[Any], topic: str) -> None:
        self.found: list[str] = []
        self.seen: list[tuple[Any, Any]] = []
        literals, wild = top
        entry = self._entry(literals, topic)
        if entry is not None:
            self._take(entry)
        words = topic.split(".") if topic else []
        self.nodes: list[tuple[Any, int]] = [(wild, 0)]
        self.mains: list[Any] = []
        self._wild("." + topic, words, len(words))

    def holds(self) -> bool:
        """Whether everything that was read is still as it was."""
        for (node, _), main in zip(self.nodes, self.mains, strict=True):
            if node.main is not main:
                return False
        return all(node.main is main for node, main in self.seen) if self.seen else True

    def _wild(self, dotted: str, topic: list[str], size: int) -> None:
        """Walk the patterns with wildcards; the list of nodes grows while it is walked."""
        nodes, mains, found = self.nodes, self.mains, self.found
        lowest: dict[int, int] = {}
        for node, at in nodes:
            main = node.main
            mains.append(main)
            run, values, star, many, words = main
            if run:
                start, at = at, at + len(run)  # noqa: PLW2901 - the words of the run are consumed
                if at > size or not _same(run, topic, start):
                    continue
            if many is not None:
                self._many(many, topic, at, size, lowest)
            if at == size:
                if values is not None:
                    self._take(values)
                continue
            if words is None:
                word = None
            elif type(words) is dict:
                word = words.get(topic[at])
            elif type(words) is tuple:
                wanted = topic[at]
                word = words[1] if words[0] == wanted else words[3] if len(words) > 2 and words[2] == wanted else None
            else:
                word = self._entry(words, topic[at])
            at += 1  # noqa: PLW2901 - so is this word
            for branch in (star, word):
                kind = type(branch)
                if branch is None:
                    continue
                if kind is str:
                    if at == size:
                        found.append(branch)
                elif kind is tuple:
                    tail = branch[0]
                    if not tail:
                        if at == size:
                            found += branch[1:]
                    elif tail[0] == "*":
                        if _fits(tail.split("."), topic, at, size):
                            found += branch[1:]
                    elif dotted.endswith(tail) and tail.count(".") == size - at:
                        found += branch[1:]
                else:
                    nodes.append((branch, at))

    def _many(self, branch: Any, topic: list[str], at: int, size: int, lowest: dict[int, int]) -> None:
        """What is under `#`: it goes on after any of the words from *at* on."""
        kind = type(branch)
        if kind is str or (kind is tuple and not branch[0]):
            self._take(branch)
            return
        below = lowest.get(id(branch), size + 1)
        if at >= below:
            return
        lowest[id(branch)] = at
        if kind is not tuple:
            self.nodes += [(branch, after) for after in range(at, below)]
            return
        tail = branch[0].split(".")
        if any(_fits(tail, topic, after, size) for after in range(at, below)):
            self.found += branch[1:]

    def _take(self, values: Any) -> None:
        kind = type(values)
        if kind is str:
            self.found.append(values)
        elif kind is tuple:
            self.found += values[1:]
        else:
            self._all(values)

    def _entry(self, page: Any, key: str) -> Any:
        """What the page has under *key*."""
        bits, seen = hash(key), self.seen
        main = page.main
        seen.append((page, main))
        while type(main) is list:
            page = main[bits & FAN - 1]
            if page is None:
                return None
            main = page.main
            seen.append((page, main))
            bits >>= BITS
        return main.get(key)

    def _all(self, page: Any) -> None:
        """All values in a page."""
        todo = [page]
        for each in todo:
            main = each.main
            self.seen.append((each, main))
            if type(main) is list:
                todo += filter(None, main)
            else:
                self.found += main


def _same(run: tuple[str, ...], topic: list[str], at: int) -> bool:
    """Whether the run is the topic's words from *at* on; it has no `#`."""
    for word in run:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True


def _fits(tail: list[str], topic: list[str], at: int, size: int) -> bool:
    """Whether the words after the first of *tail* match all words from *at* on; only the last may be `#`."""
    wanted = len(tail) - 1
    if tail[-1] == "#":
        wanted -= 1
        if size - at < wanted:
            return False
    elif size - at != wanted:
        return False
    for word in tail[1 : wanted + 1]:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True

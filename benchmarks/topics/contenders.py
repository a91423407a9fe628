"""What one would use to route topics, each with `insert`, `remove` and `lookup`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from shardq.routing import Router
from shardq.routing.ctrie import Ctrie


class Locked:
    """Another contender behind one lock."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._lock = inner, threading.RLock()

    def insert(self, pattern: str, value: str) -> None:
        with self._lock:
            self._inner.insert(pattern, value)

    def remove(self, pattern: str, value: str) -> None:
        with self._lock:
            self._inner.remove(pattern, value)

    def lookup(self, topic: str) -> Any:
        with self._lock:
            return self._inner.lookup(topic)


class DictTrie:
    """A node per word: [values, branches]; `#` by trying every rest of the topic."""

    def __init__(self) -> None:
        self._root: list[Any] = [set(), {}]

    def insert(self, pattern: str, value: str) -> None:
        node = self._root
        for word in pattern.split("."):
            node = node[1].setdefault(word, [set(), {}])
        node[0].add(value)

    def remove(self, pattern: str, value: str) -> None:
        node, way = self._root, []
        for word in pattern.split("."):
            way.append((node, word))
            node = node[1][word]
        node[0].discard(value)
        for above, word in reversed(way):
            if node[0] or node[1]:
                break
            del above[1][word]
            node = above

    def lookup(self, topic: str) -> set[str]:
        found: set[str] = set()
        self._find(self._root, topic.split("."), 0, found)
        return found

    def _find(self, node: list[Any], words: list[str], at: int, found: set[str]) -> None:
        values, branches = node
        many = branches.get("#")
        if many is not None:
            for after in range(at, len(words) + 1):
                self._find(many, words, after, found)
        if at == len(words):
            found |= values
            return
        for word in (words[at], "*"):
            below = branches.get(word)
            if below is not None:
                self._find(below, words, at + 1, found)


class Paho:
    """paho's `MQTTMatcher`: one value per filter, `#` last only, no lock. Its words for wildcards come ready-made."""

    def __init__(self) -> None:
        from paho.mqtt.matcher import MQTTMatcher

        self._matcher: Any = MQTTMatcher()  # type: ignore[no-untyped-call, unused-ignore]

    def insert(self, pattern: str, value: str) -> None:
        self._matcher[pattern] = value

    def remove(self, pattern: str, value: str) -> None:
        del self._matcher[pattern]

    def lookup(self, topic: str) -> list[str]:
        return list(self._matcher.iter_match(topic))


class Routed:
    """The router with its cache."""

    def __init__(self) -> None:
        router = Router(cache=65_536)
        self.insert, self.remove, self.lookup = router.bind, router.unbind, router.match
        self.router = router


CONTENDERS: dict[str, Callable[[], Any]] = {
    "shardq": Ctrie,
    "shardq, no roll-up": lambda: Ctrie(rollup=False),
    "shardq, cached": Routed,
    "shardq, lock": lambda: Ctrie(form="lock"),
    "shardq, one lock": lambda: Locked(Ctrie()),
    "dict trie, one lock": lambda: Locked(DictTrie()),
    "paho": Paho,
    "paho, one lock": lambda: Locked(Paho()),
}


def spelled(name: str, text: str) -> str:
    """A pattern or topic in the contender's own words, made before anything is timed."""
    return text.replace(".", "/").replace("*", "+") if name.startswith("paho") else text

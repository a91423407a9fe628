"""Results of lookups, kept by topic, bounded, and never older than the trie.

A write says so before it changes the trie (`writing`) and after (`written`), when it also replaces a stamp: that of
its topic's cell if the pattern is literal, the one for all topics if it has wildcards. A result carries the stamps
that were there before its lookup began. It is used only while no write that could concern it is on its way and both
stamps still are the same: then no write took effect between the lookup and now, so it is what a lookup would say.
Stamps are objects compared by identity, so replacing one is a plain store; nobody counts, locks or waits.

Two generations bound it: when the young one is full it becomes the old one, whose results are forgotten together; a hit
in the old one moves to the young. Topics seen once do not drive out those seen often, and nothing is ever swept.
"""

from __future__ import annotations

from typing import Any

ALL = -1
CELLS = 4096
Result = frozenset[str]


class Cache:
    """Up to *size* results; `hits` and `misses` are counted without a lock, so they may miss some."""

    __slots__ = ("_cells", "_half", "_old", "_wild", "_writing", "_young", "hits", "misses")

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self._young: dict[str, tuple[object, int, object, Result]] = {}
        self._old = self._young
        self._wild = object()
        self._cells = [object()] * CELLS
        self._writing: dict[object, int] = {}
        self.hits = self.misses = 0

    def __len__(self) -> int:
        """How many results are kept."""
        young, old = self._young, self._old
        return len(young) + (0 if old is young else len(old))

    def get(self, topic: str) -> Result | None:
        """The result for *topic*, None if there is none to be used."""
        entry = self._young.get(topic) or self._promoted(topic)
        if entry is not None:
            wild, cell, stamp, result = entry
            if not self._concerned(cell) and wild is self._wild and stamp is self._cells[cell]:
                self.hits += 1
                return result
        self.misses += 1
        return None

    def ticket(self, topic: str) -> tuple[object, int, object] | None:
        """To be taken before a lookup and given to `put`; None while its result may not be kept."""
        cell = hash(topic) % CELLS
        ticket = (self._wild, cell, self._cells[cell])
        return None if self._concerned(cell) else ticket

    def put(self, topic: str, ticket: tuple[object, int, object], result: Result) -> None:
        """Keep *result*."""
        young = self._young
        if len(young) >= self._half:
            self._old = young
            self._young = young = {}
        young[topic] = (*ticket, result)

    def writing(self, pattern: str, *, wild: bool) -> object:
        """A write begins; what `written` takes when it ended."""
        token = object()
        self._writing[token] = ALL if wild else hash(pattern) % CELLS
        return token

    def written(self, token: Any) -> None:
        """The write that got *token* ended."""
        cell = self._writing[token]
        if cell == ALL:
            self._wild = object()
        else:
            self._cells[cell] = object()
        del self._writing[token]

    def _concerned(self, cell: int) -> bool:
        """Whether a write is on its way that could change what is looked up in *cell*."""
        writing = self._writing
        if not writing:
            return False
        cells = list(writing.values())
        return ALL in cells or cell in cells

    def _promoted(self, topic: str) -> tuple[object, int, object, Result] | None:
        entry = self._old.get(topic)
        if entry is not None and self._old is not self._young:
            self.put(topic, entry[:3], entry[3])
        return entry

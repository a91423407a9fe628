"""A bounded cache of the results of lookups, by topic, which never returns a result older than the trie.

A writer calls `begin_write` before it changes the trie and `end_write` afterwards. `end_write` replaces a stamp: topics
are divided into `CELLS` cells by their hash, and a literal pattern replaces the stamp of its cell; a pattern with
wildcards replaces the one stamp that all topics share. A result is kept with the two stamps from before its lookup. It
is used only while both are unchanged and no write that could concern its topic is under way: then no write took effect
since the lookup, which would have the same result now. Stamps are objects that are compared by identity, so to replace
one is a plain store, without a counter or a lock.

The cache has two generations. When the young one is full it becomes the old one, and the former old one is forgotten as
a whole. A hit in the old one is copied to the young one. So topics that are seen once do not displace those that are
seen often, and there is no scan for results to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

ALL = -1
CELLS = 4096
Result = frozenset[str]
_UNTOUCHED: Final[Sequence[object]] = (object(),) * CELLS
_FIRST_LOCK: Final = Lock()


class Cache:
    """Up to *size* results. `hits` and `misses` are counted without a lock, so the counts may be a little too low."""

    __slots__ = ("_cells", "_half", "_old", "_wild", "_writing", "_young", "hits", "misses")

    def __init__(self, size: int) -> None:
        self._half = max(1, size // 2)
        self._young: dict[str, tuple[object, int, object, Result]] = {}
        self._old = self._young
        self._wild = object()
        self._cells: Sequence[object] = _UNTOUCHED
        self._writing: dict[object, int] = {}
        self.hits = self.misses = 0

    def __len__(self) -> int:
        """How many results are kept."""
        young, old = self._young, self._old
        return len(young) + (0 if old is young else len(old))

    def get(self, topic: str) -> Result | None:
        """The result for *topic*, None if there is none or it may be out of date."""
        entry = self._young.get(topic) or self._promoted(topic)
        if entry is not None:
            wild, cell, stamp, result = entry
            if not self._being_written(cell) and wild is self._wild and stamp is self._cells[cell]:
                self.hits += 1
                return result
        self.misses += 1
        return None

    def ticket(self, topic: str) -> tuple[object, int, object] | None:
        """Take this before a lookup, and give it to `put` with the result. None: do not keep that result."""
        cell = hash(topic) % CELLS
        ticket = (self._wild, cell, self._cells[cell])
        return None if self._being_written(cell) else ticket

    def put(self, topic: str, ticket: tuple[object, int, object], result: Result) -> None:
        """Keep *result*, whose lookup began after *ticket* was taken."""
        young = self._young
        if len(young) >= self._half:
            self._old = young
            self._young = young = {}
        young[topic] = (*ticket, result)

    def begin_write(self, pattern: str, *, wild: bool) -> object:
        """Say that a write of *pattern* begins; returns a token for `end_write`."""
        token = object()
        self._writing[token] = ALL if wild else hash(pattern) % CELLS
        return token

    def end_write(self, token: Any) -> None:
        """Say that the write with that *token* has ended, whether it changed the trie or not."""
        cell = self._writing[token]
        if cell == ALL:
            self._wild = object()
        else:
            self._touched()[cell] = object()
        del self._writing[token]

    def _touched(self) -> list[object]:
        """Return the stamps of the cells: a name has its own from the first write on, as most names have no router."""
        if not isinstance(self._cells, list):
            with _FIRST_LOCK:
                if not isinstance(self._cells, list):
                    self._cells = [*_UNTOUCHED]
        return self._cells

    def _being_written(self, cell: int) -> bool:
        """Whether a write is under way that could change results of *cell*."""
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

"""The zstd dictionaries that clients have sent, kept over connections within a bound of bytes.

A dictionary belongs to the token's name: under one id two clients may offer different contents, and nobody's messages
may be decompressed with a stranger's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

from shardq.datasink.frames import BadFrame, loaded

MAX_DICTIONARY_BYTES = 128 * 1024
"""Bytes that one dictionary may have."""


class Dictionaries:
    """A cache. When it is full, the token that has most in it loses the one that it used least lately."""

    def __init__(self, most_bytes: int = 16 * 1024 * 1024) -> None:
        self._most, self._bytes = most_bytes, 0
        self._digests: dict[str, OrderedDict[int, bytes]] = {}
        self._loaded: dict[bytes, tuple[Any, int, int]] = {}  # by digest: the dictionary, its bytes, how many name it

    @property
    def size(self) -> int:
        """How many bytes all contents have."""
        return self._bytes

    def find(self, name: str, number: int) -> Any:
        """Return dictionary *number* of the token *name*, None if it is not known."""
        own = self._digests.get(name)
        if own is None or number not in own:
            return None
        own.move_to_end(number)
        return self._loaded[own[number]][0]

    def keep(self, name: str, number: int, content: bytes) -> Any:
        """Remember and return a dictionary, in place of an earlier one with this id. BadFrame if it is none."""
        if len(content) > MAX_DICTIONARY_BYTES:
            raise BadFrame(f"dictionary {number} has {len(content):,} bytes, more than {MAX_DICTIONARY_BYTES:,}")
        digest = hashlib.sha256(content).digest()
        known = self._loaded.get(digest)
        if known is None or int.from_bytes(content[4:8], "little") != number:
            known = loaded(number, content), len(content), 0  # refuses what is known under another number
            self._bytes += len(content)
        dictionary, size, users = known
        self._loaded[digest] = dictionary, size, users + 1
        self._forget(name, number)
        self._digests.setdefault(name, OrderedDict())[number] = digest
        while self._bytes > self._most and len(self._loaded) > 1:
            largest = max(self._digests, key=self._bytes_of)
            self._forget(largest, next(iter(self._digests[largest])))
        return dictionary

    def _bytes_of(self, name: str) -> int:
        return sum(self._loaded[digest][1] for digest in self._digests[name].values())

    def _forget(self, name: str, number: int) -> None:
        own = self._digests.get(name, OrderedDict[int, bytes]())
        digest = own.pop(number, None)
        if digest is None:
            return
        if not own:
            del self._digests[name]
        dictionary, size, users = self._loaded.pop(digest)
        if users > 1:
            self._loaded[digest] = dictionary, size, users - 1
        else:
            self._bytes -= size

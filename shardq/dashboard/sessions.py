"""Sessions of people who have logged in: few, with an end, and made by the page alone."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from shardq.clock import Clock

MAX_AGE: Final = 12 * 3600.0
"""Seconds from a login until one has to log in again."""
MAX_SESSIONS: Final = 1000
"""Sessions of all; the oldest ends if there are more."""
MAX_SESSIONS_A_PERSON: Final = 20
"""Sessions of one person; the oldest ends if there are more."""


class Session(NamedTuple):
    """One login: the *name* of the person, the *digest* of the token that was shown, and *when*."""

    name: str
    digest: bytes
    when: float


class Sessions:
    """All sessions of one page. It keeps the hashes of their keys, in the order of logins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_hash: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, name: str, digest: bytes) -> str:
        """Return the key of a new session."""
        key = secrets.token_urlsafe(32)
        mine = [each for each, session in self._by_hash.items() if session.name == name]
        for each in mine[: max(0, len(mine) - MAX_SESSIONS_A_PERSON + 1)]:
            del self._by_hash[each]
        while len(self._by_hash) >= MAX_SESSIONS:
            self._by_hash.popitem(last=False)
        self._by_hash[_hash(key)] = Session(name, digest, self._clock.monotonic())
        return key

    def find(self, key: str) -> Session | None:
        """Return the session with that key; None if there is none, or it has ended."""
        session = self._by_hash.get(_hash(key))
        if session is not None and self._clock.monotonic() - session.when >= MAX_AGE:
            self.end(key)
            return None
        return session

    def end(self, key: str) -> None:
        """End the session with that key, if there is one."""
        self._by_hash.pop(_hash(key), None)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()

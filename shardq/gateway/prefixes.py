"""The prefixes of one call: the contents of its batches, with which the frames of later ones are made.

On a full link most of what a producer sends was in the stream before: names, keys, parts of values. So a client may ask
the gateway to remember the last megabytes of members. Each frame still stands alone: it needs the prefix that it
names, and no frame that came before it. A forgotten prefix costs the client to send a frame again, without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import dropwhile
from typing import Any, Final

from shardq.clock import Clock
from shardq.datasink.frames import zstd
from shardq.files import MIB
from shardq.gateway.memory import MemoryBudget, MemoryShare

MAX_PREFIX_BYTES: Final = 3 * MIB
"""Bytes of a prefix, and of the parts that are remembered for the next one."""
MAX_READY: Final = 2
"""A client knows of a new prefix some time later, and uses the one before until then."""
MIN_PART: Final = 4 * 1024
BYTES_DIVISOR: Final = 3
"""Prefixes take at most a third of the bytes that a gateway may hold for its clients."""
IDLE_SECONDS: Final = 60.0
"""Seconds without a frame that names one, after which prefixes give way to those of others."""


class PrefixRoom:
    """The bytes that all prefixes of a gateway may have. Each token has a share of them, as `MemoryBudget` gives it."""

    def __init__(self, memory: MemoryBudget, clock: Clock) -> None:
        self._memory, self._clock = memory, clock
        self._own = MemoryBudget(memory.most // BYTES_DIVISOR)
        self._all: set[Prefixes] = set()

    def of(self, name: str, changed: Callable[[], None]) -> Prefixes:
        """Return those of a new call of the token *name*. *changed* is called when they were forgotten for others."""
        return Prefixes(self, self._own.share(name), changed)

    @property
    def now(self) -> float:
        """The time, in seconds of a monotonic clock."""
        return self._clock.monotonic()

    def take(self, who: Prefixes, share: MemoryShare, size: int) -> bool:
        """Take *size* bytes for *who*, if there is room. Those that nobody uses give way."""
        if not self._fits(share, size):
            for each in [each for each in self._all if each is not who and each.used_at + IDLE_SECONDS < self.now]:
                each.give_way()
        if not self._fits(share, size):
            return False
        self._all.add(who)
        share.take(size)
        self._memory.take(size)
        return True

    def _fits(self, share: MemoryShare, size: int) -> bool:
        return not share.is_full and self._own.used + size <= self._own.most

    def give(self, who: Prefixes, share: MemoryShare, size: int) -> None:
        """Give *size* bytes of *who* back."""
        share.give(size)
        self._memory.give(size)
        if not who.bytes:
            self._all.discard(who)


class Prefixes:
    """The last parts that a client has sent, and up to two prefixes made of them. `bytes` are those of all."""

    def __init__(self, room: PrefixRoom, share: MemoryShare, changed: Callable[[], None]) -> None:
        self._room, self._share, self._changed = room, share, changed
        self._parts = deque[tuple[int, bytes]]()
        self._end = 0
        self._ready: dict[int, Any] = {}
        self.bytes, self.used_at = 0, room.now

    @property
    def known(self) -> list[int]:
        """The numbers of those that frames may name."""
        return [*self._ready]

    def find(self, number: int) -> Any:
        """Return prefix *number*, for `decompressed`; None if it is not known. Those before it are forgotten."""
        found = self._ready.get(number)
        if found is None:
            return None
        self._keep_from(number)
        self.used_at = self._room.now
        return found.as_prefix

    def add(self, at: int, content: bytes) -> None:
        """Remember *content* as the part that follows *at* bytes; those before a hole are forgotten."""
        if at != self._end:
            self._forget_parts()
        self._end = at + len(content)
        if MIN_PART <= len(content) <= MAX_PREFIX_BYTES:
            while self._parts and self._end - self._parts[0][0] > MAX_PREFIX_BYTES:
                self._forget_part()
            while not self._take(len(content)):
                if not self._parts:
                    return
                self._forget_part()
            self._parts.append((at, content))
        else:
            self._forget_parts()

    def offered(self, number: int, at: int, size: int) -> None:
        """Let frames name the prefix *number*, the parts from *at* on with a sum of *size* bytes, if they are here."""
        if number <= max(self._ready, default=0):
            return
        found, parts = 0, list[bytes]()
        for _, content in dropwhile(lambda part: part[0] != at, self._parts):
            if (longer := found + len(content)) > size:
                break
            found = longer
            parts.append(content)
        if not parts or found != size or not self._take(size):
            return
        self._ready[number] = zstd.ZstdDict(b"".join(parts), is_raw=True)
        self._keep_from([*self._ready][-MAX_READY:][0])
        self.used_at = self._room.now

    def forget(self) -> None:
        """Forget all of them."""
        self._parts.clear()
        self._ready.clear()
        self._give(self.bytes)

    def give_way(self) -> None:
        """Forget all of them, since others want the room, and say so."""
        self.forget()
        self._changed()

    def _keep_from(self, number: int) -> None:
        for each in [each for each in self._ready if each < number]:
            self._give(len(self._ready.pop(each)))

    def _forget_parts(self) -> None:
        while self._parts:
            self._forget_part()

    def _forget_part(self) -> None:
        self._give(len(self._parts.popleft()[1]))

    def _take(self, size: int) -> bool:
        is_taken = self._room.take(self, self._share, size)
        self.bytes += size if is_taken else 0
        return is_taken

    def _give(self, size: int) -> None:
        if size:
            self.bytes -= size
            self._room.give(self, self._share, size)

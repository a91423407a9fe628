"""A cache of shards that takes 24 bytes for each, so that many shard keys have room in it."""

from __future__ import annotations

from struct import Struct
from typing import Final

MAX_SHARD_STREAMS: Final = 8
"""Shards of more streams are not kept: few queues have any."""

MIN_SLOTS: Final = 1024
MAX_SLOTS: Final = 2**15
"""Slots of a cache, which doubles while it fills: 24 kB at first, 0.8 MB at most: tenants choose the keys."""

_SLOT: Final = 24
_FORMS: Final = tuple(Struct(f"=q{width}H") for width in range(MAX_SHARD_STREAMS + 1))


class ShardCache:
    """A direct-mapped cache: a mark of 64 bits says what a slot holds, and its low bits say which slot that is.

    If two marks have one slot, the later one stays. If more keys come in turn than there is room for, most are found,
    where a cache that drops the oldest would have none. A mark stands for its key: if two keys have the same one, odds
    of 1 in 2**64, the second would get the first one's shard.

    A slot is read and written in one step each, so threads need no lock.
    """

    __slots__ = ("_free", "_slots")

    def __init__(self) -> None:
        self._slots = bytearray(MIN_SLOTS * _SLOT)
        self._free = MIN_SLOTS // 4

    def get(self, mark: int, width: int) -> tuple[int, ...] | None:
        """Return the shard of *width* streams with this mark."""
        slots = self._slots
        found: tuple[int, ...] = _FORMS[width].unpack_from(slots, (mark & (len(slots) // _SLOT - 1)) * _SLOT)
        return found[1:] if found[0] == mark else None

    def put(self, mark: int, shard: tuple[int, ...]) -> None:
        """Keep *shard*. The mark must differ for each width, and is not 0, which stands for an empty slot."""
        slots = self._slots
        _FORMS[len(shard)].pack_into(slots, (mark & (len(slots) // _SLOT - 1)) * _SLOT, mark, *shard)
        self._free -= 1
        if self._free < 0:
            self._grow()

    def _grow(self) -> None:
        """Double it. A mark's new slot is its old one, or that of the second half: so each half is a copy."""
        slots = self._slots
        if len(slots) < MAX_SLOTS * _SLOT:
            self._slots = slots = slots + slots
        self._free = len(slots) // _SLOT // 4

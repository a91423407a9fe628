"""Homes: hashing deals each shard key one of the partitions that are written to.

As in `shardq.sharding`, the highest of the scores that one SHAKE-128 output has decides, under a name of its own::

    score of partition i = bytes [8i, 8i+8) of SHAKE-128("shardq/p1" NUL key), unsigned, big-endian

So one more partition takes its part of the keys from all others, and no key moves between those. Version 1 must never
change: processes of different versions write to the same queue. tests/golden/homes.json has test vectors.

>>> [home("acme", written) for written in (1, 2, 3, 8)]
[0, 1, 1, 6]
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import Final

from shardq.sharding import key_bytes

_HASHED: Final = hashlib.shake_128(b"shardq/p1\0", usedforsecurity=False)
MAX_REMEMBERED: Final = 4096
"""Homes that a process remembers: a tenth of the time that it takes to deal one."""


@lru_cache(maxsize=MAX_REMEMBERED)
def home(key: str | bytes, written: int) -> int:
    """Return the partition, from 0 on, that a shard key is dealt where *written* partitions are written to.

    A str counts as its UTF-8. ConfigError for what is no shard key. Safe across threads.
    """
    hashed = _HASHED.copy()
    hashed.update(key_bytes(key))
    scores = struct.unpack(f">{written}Q", hashed.digest(8 * written))
    return scores.index(max(scores))

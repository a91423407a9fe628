"""The cost of streams and shards, from measured figures.

The times come from benchmarks/results/reads.md, measured on one small machine, so take them as ratios. A read costs
the same for 8 streams as for 1,024 ("Many streams, few of them busy"). Only the number of keys that a write declares
grows ("An empty script with so many keys declared"). The bytes come from Valkey 9.1 and Redis 7.0, and a test measures
them again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from shardq.sharding import check_width

READ_US: Final = 37.0
"""Server time of a read in µs. It does not depend on N."""

KEY_SERVER_US: Final = 0.027
KEY_CLOCK_US: Final = 0.28
"""The cost of one more declared key, in µs: server time, and time that the caller waits (262 keys against 1)."""

WRITE_KEYS: Final = 14
"""Keys that a batch of writes declares in addition to its streams."""

PLAIN_WRITE_KEYS: Final = 5
"""The same of a plain write of one message. With a delay, a dedup key or a unique key it declares those of a batch."""

MAX_DECLARED: Final = 255
"""Streams up to which a batch that may use nearly all streams declares all of them."""

QUEUE_BYTES: Final = 13_000
STREAM_BYTES: Final = 400
"""Memory of an empty queue and of each of its streams, after all of them have been used: between Valkey 9.1, which
takes 220 bytes, and Redis 7.0, which takes 570."""

DEAL_US: Final = 4.0
DEAL_STREAM_US: Final = 0.1
"""A client's cost of dealing a shard that it has not cached, in µs: a fixed part, and a part per stream."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of N streams with M per shard. Sizes are in bytes, times in µs.

    `cost` returns one.
    """

    memory: int
    """Bytes of Redis memory without any message."""
    read: float
    """Server time of a read."""
    write_keys: int
    """Keys declared by the plain write of one message."""
    write_server: float
    """How much of the server time of such a write is due to its streams."""
    write_clock: float
    """How much of the time that the caller waits is due to its streams."""
    batch_keys: float
    """Keys declared by a batch of 100 messages of 100 tenants, on average; see `MAX_DECLARED`."""
    deal: float
    """The client's time for dealing a shard that it has not cached."""


def cost(streams: int, streams_per_shard: int) -> Cost:
    """The cost of a queue with this many streams, and this many per shard.

    ConfigError for invalid numbers.

    >>> cost(64, 4).write_keys, cost(64, 4).memory
    (9, 38600)
    """
    width = check_width(streams, streams_per_shard)
    every = streams <= MAX_DECLARED and streams <= 100 * width
    spread = streams if every else streams * (1 - (1 - width / streams) ** 100)
    return Cost(
        memory=QUEUE_BYTES + STREAM_BYTES * streams,
        read=READ_US,
        write_keys=PLAIN_WRITE_KEYS + width,
        write_server=KEY_SERVER_US * width,
        write_clock=KEY_CLOCK_US * width,
        batch_keys=WRITE_KEYS + spread,
        deal=DEAL_US + DEAL_STREAM_US * streams,
    )

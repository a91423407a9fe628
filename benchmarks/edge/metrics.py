"""Traffic of a site's metrics: messages of 10 to 25 KB, with an entropy like that of the seed's.

The seed (pl-rants, "Asynchronous Messaging Over gRPC", 2020) sent points of many series, partitioned so that a message
has little in common with itself: zstd alone made messages 2.2 times smaller (314 s became 144 s). Here a site has
machines, on which services run in containers with random names, as schedulers give them. A series is a metric of a
container, such as `disk.read.bytes|io=nvme0n1`. Each is in one of the partitions, at random, and a message has the
points of the next series of one partition: a key, a time in ms, and a value as a 64-bit float. Half of the metrics are
counters and whole numbers, the other half means and ratios, with all their digits. Values are random walks.

What one message has not, the stream has: each series comes again in every interval.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from random import Random
from typing import Final

LEAST, MOST = 10_000, 25_000
"""Bytes of a message, evenly distributed."""

PARTITIONS: Final = 54
INTERVAL: Final = 10.0
_POINT: Final = struct.Struct("<Bqd")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_METRICS: Final = (
    ("cpu.user.ratio", False), ("cpu.system.ratio", False), ("cpu.throttled.seconds", False), ("mem.rss.bytes", True),
    ("mem.cache.bytes", True), ("mem.faults.total", True), ("disk.read.bytes|io=nvme0n1", True),
    ("disk.write.bytes|io=nvme0n1", True), ("disk.await.ms|io=nvme0n1", False), ("net.rx.bytes|if=eth0", True),
    ("net.tx.bytes|if=eth0", True), ("net.retransmits.ratio", False), ("http.requests.total|code=200", True),
    ("http.requests.total|code=500", True), ("http.latency.mean", False), ("http.latency.p99", False),
    ("gc.pause.mean", False), ("queue.wait.mean", False),
)  # fmt: skip
_SERVICES: Final = ("checkout", "search", "ads", "feed", "auth", "media", "billing", "geo", "mail", "graph")


class Site:
    """A site with so many *containers*, each with a series of every metric. The same *seed* gives the same messages."""

    def __init__(self, containers: int = 2000, seed: int = 1) -> None:
        self._rng = Random(seed)
        self._time = 1_700_000_000.0
        partitions: list[list[_Series]] = [[] for _ in range(PARTITIONS)]
        for _ in range(containers):
            name = f"{self._rng.choice(_SERVICES)}-{self._word(9)}-{self._word(5)}"
            host = f"r{self._rng.randrange(40):02}h{self._rng.randrange(24):02}"
            for metric, is_whole in _METRICS:
                self._rng.choice(partitions).append(_Series(f"{host}/{name}/{metric}".encode(), is_whole, self._rng))
        for series in partitions:
            self._rng.shuffle(series)
        self._partitions = partitions
        self._next = [0] * PARTITIONS

    def messages(self, total: int) -> Iterator[tuple[str, bytes]]:
        """Yield (partition, message) until the messages have *total* bytes."""
        size = number = 0
        while size < total:
            partition = number % PARTITIONS
            if partition == 0:
                self._time += INTERVAL
            message = self._message(partition)
            yield f"partition-{partition}", message
            size, number = size + len(message), number + 1

    def _message(self, partition: int) -> bytes:
        series, wanted = self._partitions[partition], self._rng.randint(LEAST, MOST)
        parts: list[bytes] = []
        size = 0
        while size < wanted:
            each = series[self._next[partition] % len(series)]
            self._next[partition] += 1
            point = _POINT.pack(len(each.key), int(self._time * 1000) + self._rng.randrange(1000), each.move(self._rng))
            parts += (point, each.key)
            size += len(point) + len(each.key)
        return b"".join(parts)

    def _word(self, length: int) -> str:
        return "".join(self._rng.choices(_LETTERS, k=length))


class _Series:
    """One series: its key, and its value, which walks."""

    __slots__ = ("is_whole", "key", "value")

    def __init__(self, key: bytes, is_whole: bool, rng: Random) -> None:
        self.key, self.is_whole = key, is_whole
        self.value = float(int(10 ** rng.uniform(2, 9))) if is_whole else 10 ** rng.uniform(-3, 2)

    def move(self, rng: Random) -> float:
        """Take the next step, and return the value."""
        if self.is_whole:
            self.value += int(rng.expovariate(1.0) * math.sqrt(self.value))
        else:
            self.value *= math.exp(rng.gauss(0, 0.1))
        return self.value

"""The number of a queue's partitions, with the map of them that Redis keeps as the setting (shardq/partitions)."""

from __future__ import annotations

import re
from typing import Final, Self

import msgspec

from shardq.errors import ConfigError
from shardq.model.stats import QueueStats

MAX_PARTITIONS: Final = 64
"""The most partitions that one queue may have: more than nodes that it pays for."""

KIND: Final = "{'^%d+:[%w,:@]*$', 2048}"
"""The pattern and the greatest length of the map in Redis, as Lua checks it: room for 63 salts and former numbers."""

_NUMBER: Final = re.compile(r"([1-9]\d?):[0-9a-z,:@]*")


class Partitions(int):
    """How many partitions a queue writes to. `map` is the text that says where they are.

    A number that a program gives has no map yet: the queue gets its partitions when it is made.

    >>> found = Partitions.parse("3:4,a")
    >>> found, found.map
    (3, '3:4,a')
    """

    map: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what *text* says, as Redis keeps it. ValueError if it is no map."""
        found = _NUMBER.fullmatch(text)
        if found is None or int(found[1]) > MAX_PARTITIONS:
            raise ValueError(text[:100])
        number = cls(found[1])
        number.map = text
        return number


class Partition(msgspec.Struct, frozen=True):
    """One of the parts of a queue, as `Queue.partitions` lists them.

    `node` is the host and port of the cluster's master that has it, '' where there is no cluster. `is_written` says
    whether shard keys are dealt to it; if not, it is read until it is empty, and removed later. Its numbers are in
    `stats`, None if it does not answer, or `is_gone`: its keys were deleted, or lost. To `resize` creates it again.
    """

    number: int
    node: str
    is_written: bool
    stats: QueueStats | None
    is_gone: bool = False


def map_of(partitions: int) -> str:
    """Return the text of the map; "1:", a queue with one partition, for a number that has none yet."""
    return getattr(partitions, "map", "1:")


def read_of(partitions: int) -> int:
    """Return how many partitions are read by the map of a setting; 1 for a number that has none yet.

    >>> read_of(Partitions.parse("2:4,a:3@1795897620221")), read_of(Partitions.parse("1:")), read_of(3)
    (3, 1, 1)
    """
    salts = map_of(partitions).split(":")[1]
    return 1 + len(salts.split(",")) if salts else 1


def is_parted(partitions: int) -> bool:
    """Return whether a queue with this setting has more than one partition, also if it writes to one of them alone."""
    return partitions != 1 or map_of(partitions) != "1:"


def check_partitions(name: str, value: int) -> None:
    """ConfigError unless *value* is a number of partitions."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PARTITIONS:
        raise ConfigError(f"{name} must be an int from 1 to {MAX_PARTITIONS}")

"""The map of a queue: which partitions it has, and to how many of them is written. The head keeps it as a setting."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from shardq.errors import ConfigError
from shardq.model.partitions import MAX_PARTITIONS

_FORMER: Final = r":(\d{1,2})@(\d{1,16})"
_TEXT: Final = re.compile(rf"(\d{{1,2}}):((?:[0-9a-z]{{1,4}}(?:,[0-9a-z]{{1,4}}){{0,62}})?)((?:{_FORMER}){{0,64}})")


class PartitionMap(msgspec.Struct, frozen=True):
    """Which partitions there are: the first `written` ones are written to, and all are read.

    Partition 0 is the head, the queue itself. The others have a salt each, which puts them into their cluster slots.
    `others` are other numbers of partitions, by which shard keys were dealt before, or will be: until a time in ms of
    the head's clock, what has a dedup or unique key may be known where these put it.

    >>> found = PartitionMap.parse("3:4,a:2@1795897620221")
    >>> found.read, found.name_of("jobs", 0), found.name_of("jobs", 2)
    (3, 'jobs', 'jobs#2.a')
    """

    written: int = 1
    salts: tuple[str, ...] = ()
    others: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """ConfigError if it is no map."""
        is_known = 1 <= self.written <= self.read <= MAX_PARTITIONS
        are_known = all(1 <= number <= MAX_PARTITIONS for number, _ in self.others)
        if not (is_known and are_known) or not _TEXT.fullmatch(self._spelled()):
            raise ConfigError(
                f"a map has 1 to {MAX_PARTITIONS} partitions, of which it writes to some; its salts are 1 to 4 of 0-9 "
                "and a-z"
            )

    @classmethod
    def parse(cls, text: str) -> PartitionMap:
        """Return the map that *text* spells; '' spells that of a queue with one partition. ConfigError if it is none.

        >>> PartitionMap.parse("") == PartitionMap()
        True
        """
        if not text:
            return cls()
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ConfigError(
                "the setting 'partitions' of this queue is no map: was it changed by hand, or by a later version?"
            )
        salts = tuple(found[2].split(",")) if found[2] else ()
        others = tuple([(int(number), int(until)) for number, until in re.findall(_FORMER, found[3])])
        return cls(int(found[1]), salts, others)

    @property
    def text(self) -> str:
        """The text that `parse` takes."""
        return "" if self == PartitionMap() else self._spelled()

    @property
    def read(self) -> int:
        """How many partitions are read."""
        return 1 + len(self.salts)

    def name_of(self, queue: str, number: int) -> str:
        """Return the name of the queue that is partition *number* of *queue*. IndexError if there is no such one."""
        return queue if number == 0 else f"{queue}#{number}.{self.salts[number - 1]}"

    def remembering(self, number: int, until: int, now: int) -> PartitionMap:
        """Return the same map with one more of the `others`, which counts *until* then. Those that are over go."""
        others = dict(self.others) | {number: until}
        return replace(self, others=tuple(sorted((each, end) for each, end in others.items() if end > now)))

    def _spelled(self) -> str:
        return f"{self.written}:{','.join(self.salts)}{''.join(f':{each}@{until}' for each, until in self.others)}"

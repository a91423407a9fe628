"""The map of a queue: which partitions it has, and to how many of them is written. The head keeps it as a setting."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from shardq.errors import ConfigError
from shardq.model.partitions import MAX_PARTITIONS

_FORMER: Final = r":(\d{1,2})@(\d{1,16})"
_SALTS: Final = r"(?:[0-9a-z]{1,4}(?:,[0-9a-z]{1,4}){0,62})?"
_TEXT: Final = re.compile(rf"(\d{{1,2}}):({_SALTS})((?:{_FORMER}){{0,64}})(?::to(\d{{1,2}})@(\d{{1,16}}))?")


class PartitionMap(msgspec.Struct, frozen=True):
    """Which partitions there are: the first `written` ones are written to, and all are read.

    Partition 0 is the head, the queue itself. The others have a salt each, which puts them into their cluster slots.
    `others` are other numbers of partitions, by which shard keys were dealt before: until a time in ms of the head's
    clock, messages with a dedup or unique key may be known where these put them. A resize that is under way goes
    `towards` a number, and this counts until such a time.

    >>> found = PartitionMap.parse("3:4,a:2@1795897620221")
    >>> found.read, found.name_of("jobs", 0), found.name_of("jobs", 2)
    (3, 'jobs', 'jobs#2.a')
    """

    written: int = 1
    salts: tuple[str, ...] = ()
    others: tuple[tuple[int, int], ...] = ()
    towards: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """ConfigError if it is no map."""
        is_known = 1 <= self.written <= self.read <= MAX_PARTITIONS
        are_known = all(1 <= number <= MAX_PARTITIONS for number, _ in (*self.others, self.towards or (1, 0)))
        if not (is_known and are_known) or not _TEXT.fullmatch(self._spelled()):
            raise ConfigError(
                f"a map has 1 to {MAX_PARTITIONS} partitions, and writes to some of them; its salts are 1 to 4 of 0-9 "
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
        n = len(found.groups())
        return cls(int(found[1]), salts, others, (int(found[n - 1]), int(found[n])) if found[n] else None)

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
        """Return the same map with one more of the `others`, which counts *until* then. Those that are over go.

        It goes towards no other.
        """
        others = dict(self.others) | {number: until}
        kept = sorted((each, end) for each, end in others.items() if end > now)
        return replace(self, others=tuple(kept), towards=None)

    def _spelled(self) -> str:
        others = "".join(f":{each}@{until}" for each, until in self.others)
        towards = f":to{self.towards[0]}@{self.towards[1]}" if self.towards else ""
        return f"{self.written}:{','.join(self.salts)}{others}{towards}"

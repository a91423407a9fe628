"""Placing: which salts put the partitions of a queue on different nodes of a cluster.

A salt is a part of a partition's name, and so of its hash tag. The first one is taken whose slot lies on a master with
the fewest partitions of this queue: clients that do so at the same time take the same.

>>> thirds = Slots([(0, 5460, "a"), (5461, 10922, "b"), (10923, 16383, "c")])
>>> placed("jobs", 3, thirds)
('0', '2')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from shardq.partitions.map import PartitionMap
from shardq.protocol.keys import slot

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
MAX_SALTS: Final = 36**3
"""Salts that are tried: a master with one slot in a thousand has one of them all but surely."""


class HashSlots:
    """Which master has which slots: ranges (first, last, name of the master), in any order.

    Without any, as on a server that is no cluster, all lies on one.
    """

    def __init__(
        self, ranges: Iterable[tuple[int, int, str]], addresses: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._ranges, self._addresses = sorted(ranges), addresses
        self.masters = sorted({name for _, _, name in self._ranges}) or [""]

    @classmethod
    def of_reply(cls, reply: Sequence[Any]) -> HashSlots:
        """Return what CLUSTER SLOTS answered: for each range its first and last slot, its master, and replicas."""
        masters = {_name(master): f"{_text(master[0] or '')}:{master[1]}" for _, _, master, *_ in reply}
        return cls([(int(first), int(last), _name(master)) for first, last, master, *_ in reply], masters)

    def address_of(self, queue: str) -> str:
        """Return the host and port of the master that has the queue of this name; '' if nobody knows any."""
        return self._addresses.get(self.master_of(queue) or "", "")

    def master_of(self, queue: str) -> str | None:
        """Return the master that has the keys of the queue of this name; None if nobody serves that slot."""
        if not self._ranges:
            return self.masters[0]
        number = slot(f"{{{queue}}}")
        return next((name for first, last, name in self._ranges if first <= number <= last), None)


def placed(queue: str, wanted: int, slots: HashSlots, there: PartitionMap | None = None) -> tuple[str, ...]:
    """Return the salts of *queue* with *wanted* partitions. Those that are *there* keep theirs."""
    there = there or PartitionMap()
    names = [there.name_of(queue, number) for number in range(there.read)]
    loads = Counter(dict.fromkeys(slots.masters, 0))
    loads.update([master for name in names if (master := slots.master_of(name)) is not None])
    salts = [*there.salts]
    for number in range(there.read, wanted):
        salts.append(_salt(queue, number, slots, loads))
        loads[slots.master_of(f"{queue}#{number}.{salts[-1]}") or ""] += 1
    return tuple(salts)


def _salt(queue: str, number: int, slots: HashSlots, loads: Counter[str]) -> str:
    fewest = min(loads[master] for master in slots.masters)
    for at in count():
        salt = _spelled(at)
        master = slots.master_of(f"{queue}#{number}.{salt}")
        if at >= MAX_SALTS or (master is not None and loads[master] == fewest):
            return salt
    raise AssertionError


def _spelled(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def _name(master: Sequence[Any]) -> str:
    """Return a name of a node: its id, or with a server that tells none its address."""
    told = master[2] if len(master) > 2 else f"{_text(master[0])}:{master[1]}"
    return _text(told)


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)

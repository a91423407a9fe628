"""Which node owns a slot. A queue lives in one slot, so a queue's calls all go to one node.

Owners are learnt from redirections: a node that does not own a slot says who does. When a node is out of reach, the
others are asked; after a failover they know the new owner. redis-py's cluster client is not used, since it can neither
wait for replicas on the connection that wrote nor leave retries to the caller's deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.drivers.target import Address
from shardq.ops.steps import Call
from shardq.protocol.keys import slot


class Topology:
    """The nodes that are known, and the owners that were learnt."""

    def __init__(self, seeds: tuple[Address, ...]) -> None:
        self._known = list(seeds)
        self._owners: dict[int, Address] = {}
        self._next = 0

    def owner(self, slot: int) -> Address:
        """The node to ask for *slot*; one of the known ones in turn if its owner is not known."""
        owner = self._owners.get(slot)
        if owner is None:
            owner = self._known[self._next % len(self._known)]
        return owner

    def moved(self, slot: int, address: Address) -> None:
        """A node said that *address* owns *slot*."""
        self.add(address)
        self._owners[slot] = address

    def add(self, address: Address) -> None:
        """*address* is a node of this cluster."""
        if address not in self._known:
            self._known.append(address)

    def lost(self, slot: int, address: Address) -> None:
        """*address* cannot be reached: ask another one next time."""
        if self._owners.get(slot) == address:
            del self._owners[slot]
        if self._known[self._next % len(self._known)] == address:
            self._next += 1


def by_owner(topology: Topology | None, calls: Sequence[Call]) -> dict[Address | None, list[int]]:
    """The places of *calls*, by the node to ask; all under None where there is but one."""
    if topology is None:
        return {None: list(range(len(calls)))}
    indexes: dict[Address | None, list[int]] = {}
    for at, call in enumerate(calls):
        indexes.setdefault(topology.owner(slot(call.keys[0])), []).append(at)
    return indexes

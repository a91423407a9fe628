"""Which node of a cluster owns a slot. All keys of a queue are in one slot, so all its calls go to one node.

Owners are learnt from redirections: a node that does not own a slot names the owner. If a node cannot be reached, other
nodes are asked, which know the new owner after a failover. redis-py's cluster client is not used, because it cannot
wait for replicas on the connection that wrote, and does not leave retries to the caller's deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.drivers.target import Address
from shardq.ops.queue.steps import Call
from shardq.protocol.keys import slot


class Topology:
    """The known nodes, and the learnt owners of slots."""

    def __init__(self, seeds: tuple[Address, ...]) -> None:
        self._known = list(seeds)
        self._owners: dict[int, Address] = {}
        self._next = 0

    def owner(self, slot: int) -> Address:
        """Return the node to ask about *slot*: its owner, or one of the known nodes if the owner is not known."""
        owner = self._owners.get(slot)
        if owner is None:
            owner = self._known[self._next % len(self._known)]
        return owner

    def moved(self, slot: int, address: Address) -> None:
        """Note that *address* owns *slot*, as a node said."""
        self.add(address)
        self._owners[slot] = address

    def add(self, address: Address) -> None:
        """Note that *address* is a node of this cluster."""
        if address not in self._known:
            self._known.append(address)

    def lost(self, slot: int, address: Address) -> None:
        """Note that *address* could not be reached, so that the next try asks another node."""
        if self._owners.get(slot) == address:
            del self._owners[slot]
        if self._known[self._next % len(self._known)] == address:
            self._next += 1


def by_owner(topology: Topology | None, calls: Sequence[Call]) -> dict[Address | None, list[int]]:
    """Return the indexes of *calls* by the node to ask; all under None if there is a single node."""
    if topology is None:
        return {None: list(range(len(calls)))}
    indexes: dict[Address | None, list[int]] = {}
    for at, call in enumerate(calls):
        indexes.setdefault(topology.owner(slot(call.keys[0])), []).append(at)
    return indexes

"""A cluster of which each primary has a replica that can take its place, and whose nodes keep what they have.

A node that is killed has the same data when it is started again. No replica takes over by itself: a machine that stands
still would lose what no replica had yet.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from redis.exceptions import ResponseError

from tests.servers import Cluster, Server, ServerKind, free_ports
from tests.waiting import eventually

NODE_TIMEOUT = 15_000
"""Milliseconds: longer than any outage that a test makes."""

OPTIONS = {
    "cluster-enabled": "yes", "cluster-node-timeout": str(NODE_TIMEOUT), "cluster-replica-no-failover": "yes",
    "cluster-require-full-coverage": "no", "repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1",
    "auto-aof-rewrite-percentage": "0",
}  # fmt: skip


class SpareCluster(Cluster):
    """Three primaries that share the slots, each with a replica. `members` are all six; who is what changes."""

    def __init__(self, kind: ServerKind | None, folder: Path, *, size: int = 3) -> None:
        super().__init__(kind, size=size)
        self.size, ports = size, free_ports(4 * size)
        self._spares: dict[Server, Server] = {}
        self._bus = ports[2 * size :]
        self.members = [
            Server(kind, port=port, directory=folder / str(at), options={**OPTIONS, "cluster-port": str(bus)})
            for at, (port, bus) in enumerate(zip(ports, self._bus, strict=False))
        ]

    def primaries(self) -> list[Server]:
        """The nodes that have slots now, in no order that counts."""
        return [each for each in self.members if each.info("replication")["role"] == "master"]

    def spare_of(self, primary: Server) -> Server:
        """The replica of *primary*."""
        found = primary.info("replication")
        port = int(found["slave0"]["port"])
        return next(each for each in self.members if each.port == port)

    @property
    def spares(self) -> dict[Server, Server]:
        """Of each primary its replica, as it was when the cluster was whole the last time: also of one that is dead."""
        return self._spares

    def restart_one(self, primary: Server) -> None:
        """Kill a primary and start it again before anybody takes its place: it has all that it answered for."""
        primary.kill9()
        primary.start()
        self.wait_whole()

    def hand_over(self, primary: Server) -> None:
        """Let the replica of *primary* take its place when it has all that this one has."""
        spare = self.spare_of(primary)
        spare.run("CLUSTER", "FAILOVER")
        eventually(lambda: spare.info("replication")["role"] == "master", what="it has taken over")
        self.wait_whole()

    def promote(self, primary: Server) -> int:
        """Let the replica of *primary*, which was killed, take its place by force. Return the offset that it was at.

        It has all that *primary* had at this offset, and nothing of what came after it. *primary* is its replica then.
        """
        spare = self.spares[primary]
        eventually(lambda: spare.info("replication")["master_link_status"] == "down", what="it has read to the end")
        offset = int(spare.info("replication")["slave_repl_offset"])
        eventually(lambda: _takes_over(spare), every=0.1, what="it has taken over")
        primary.start()
        self.wait_whole()
        return offset

    def move_on(self, key: str) -> None:
        """Move the slot of *key* to another primary."""
        slot, primaries = self.slot_of(key), self.primaries()
        at = primaries.index(self.members[self.owner(slot)])
        self.move_slot(slot, self.members.index(primaries[(at + 1) % len(primaries)]))
        self.wait_whole()

    def wait_whole(self) -> None:
        """Return once each node agrees with all others, and each primary has a replica that follows it."""
        self.wait_ok(60)
        eventually(self._is_whole, 60, every=0.05, what="each primary has a replica")
        for each in self.primaries():
            offset = each.info("replication")["master_repl_offset"]
            eventually(lambda each=each, offset=offset: self._is_followed(each, offset), 60, what="in sync")  # type: ignore[misc]
        self._spares = {each: self.spare_of(each) for each in self.primaries()}

    def _is_whole(self) -> bool:
        primaries = self.primaries()
        return len(primaries) == self.size and all("slave0" in each.info("replication") for each in primaries)

    @staticmethod
    def _is_followed(primary: Server, offset: int) -> bool:
        """Whether its replica has all that *primary* had at that *offset*: also keys that came with a slot."""
        found = primary.info("replication").get("slave0", {})
        return found.get("state") == "online" and int(found["offset"]) >= offset

    def takers(self) -> list[Server]:
        """The nodes that are told where a slot is: replicas hear it of their primary."""
        return self.primaries()

    def _assemble(self) -> None:
        everyone, self.members = self.members, self.members[: self.size]
        super()._assemble()
        self.members = everyone
        for at, spare in enumerate(everyone[self.size :], self.size):
            for peer, bus in zip(everyone[:at], self._bus, strict=False):
                spare.run("CLUSTER", "MEET", *peer.address, bus)
        self._ids = [each.run("CLUSTER", "MYID").decode() for each in everyone]
        self.wait_ok()
        for spare, master in zip(everyone[self.size :], self._ids, strict=False):
            eventually(lambda spare=spare, master=master: spare.run("CLUSTER", "REPLICATE", master) == b"OK")  # type: ignore[misc]
        self.wait_whole()


def _takes_over(spare: Server) -> bool:
    if spare.info("replication")["role"] == "master":
        return True
    with contextlib.suppress(ResponseError):  # it is about to
        spare.run("CLUSTER", "FAILOVER", "FORCE")
    return False

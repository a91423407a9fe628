"""The servers of the hour: a cluster with replicas, a pair that sentinels watch, and one whose clock and link fail.

Each has its queues. A server of a pair or cluster that is killed has the same data when it is started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from shardq import Client
from tests.fault.partitions.spares import SpareCluster
from tests.fault.server.test_clock import Shimmed
from tests.parts import GCC
from tests.proxy import Proxy
from tests.servers import Replicated, Sentinels, Server, ServerKind
from tests.soak.hour.edges import EDGED
from tests.soak.hour.notes import CLOCKED

COMMON: Final[Mapping[str, Any]] = {"streams": 8, "streams_per_shard": 2, "max_deliveries": 1000, "journal": 500}
SCHEDULED: Final = "scheduled"
"""A queue of the cluster for a schedule's calls: nobody else writes to it, and it has workers of its own."""

PARTITIONS: Final = 4
"""How many a queue has that has some."""

CLUSTERED: Final[Mapping[str, Mapping[str, Any]]] = {
    "plain": {},
    "parted": {"partitions": PARTITIONS},
    "sure": {},
    "keyed": {"dedup_window": 60.0},
    "removed": {},
    "fair": {"parents": 1, "max_in_flight": 50, "rate": 200.0},
    "results": {"result_ttl": 60.0},
    "dying": {"max_deliveries": 4},
    EDGED: {},
}
"""The queues of the cluster, by what is special about them."""

SURE: Final = "replica(1)"
"""The level of durability of the queue `sure`; that of all others is `process`."""

TOPICS: Final = ("hour.*.made", "hour.#")
"""What `plain` is bound to: of what several match there is one copy."""


@dataclass(frozen=True)
class Site:
    """A place with queues: how clients reach it."""

    name: str
    url: str
    queues: Sequence[str]


class World:
    """All servers and queues."""

    def __init__(self, kind: ServerKind | None, folder: Path) -> None:
        self._kind, self._folder, self._stack = kind, folder, ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.cluster = stack.enter_context(SpareCluster(self._kind, self._folder / "cluster"))
            self.pair = stack.enter_context(Replicated(self._kind, folder=self._folder / "pair"))
            self.sentinels = stack.enter_context(Sentinels(self.pair, self._kind))
            self.single = stack.enter_context(self._single())
            self.proxy = stack.enter_context(Proxy(self.single.url))
            self._declare()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def sites(self) -> list[Site]:
        """Where queues are."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.sentinels.addresses)
        return [
            Site("cluster", self.cluster.url, list(CLUSTERED)),
            Site("pair", f"redis+sentinel://{hosts}/{self.sentinels.service}/0", ["paired"]),
            Site("single", self.proxy.url, [CLOCKED]),
        ]

    def site_of(self, queue: str) -> Site:
        """Where a queue is."""
        asked = "plain" if queue == SCHEDULED else queue
        return next(each for each in self.sites if asked in each.queues)

    @property
    def is_clocked(self) -> bool:
        """Whether the clock of the single server can be moved."""
        return isinstance(self.single, Shimmed)

    def servers(self) -> dict[str, Server]:
        """All servers that hold messages, by name."""
        named = {f"cluster-{at}": each for at, each in enumerate(self.cluster.members)}
        return {**named, **{f"pair-{at}": each for at, each in enumerate(self.pair.members)}, "single": self.single}

    def _single(self) -> Server:
        folder = self._folder / "single"
        folder.mkdir()
        if self._kind is not None and GCC.is_there():
            return Shimmed(self._kind, self._folder, directory=folder)
        return Server(self._kind, directory=folder)

    def _declare(self) -> None:
        for site in self.sites:
            with Client.from_url(site.url, timeout=60) as client:
                for name in site.queues:
                    client.queue(name, create=True, **{**COMMON, **CLUSTERED.get(name, {})}).declare()
                if "plain" in site.queues:
                    client.queue(SCHEDULED, create=True, **COMMON).declare()
                    for pattern in TOPICS:
                        client.bind(pattern, "plain")
                if "fair" in site.queues:
                    self._share(client)

    @staticmethod
    def _share(client: Client) -> None:
        """Give the tenants of `fair` plans, limits and weights."""
        queue = client.queue("fair", create=False)
        queue.set_plan("small", max_in_flight=3, rate=20, weight=1)
        queue.set_plan("large", max_in_flight=20, weight=3)
        queue.set_limits({"plan-0": "small", "plan-1": "large"})
        queue.set_weights({"plan-2": 2})

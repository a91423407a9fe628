"""The faults of the hour, by name: what each does, to whom, and when it is over."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import RedisError

from tests.fault.server.test_clock import Shimmed
from tests.servers import Server
from tests.soak.hour.dealer import Fault, Probes, Strike, level_of
from tests.soak.hour.notes import CLOCKED, Notes
from tests.soak.hour.staff import Staff
from tests.soak.hour.world import World
from tests.waiting import eventually

SHORT: Final = (0.5, 3.0)
"""Seconds that a fault lasts, at least and at most: up to the length of a lease."""

JUMPS: Final = (-3600, -60, -5, 5, 20)
"""Seconds by which a clock jumps. Back from a later time all that was leased or delayed there lasts so much longer."""

LAG: Final = 1.0
"""Seconds by which a replica may be behind though nothing holds it up."""


class Faults:
    """All that can be done to servers, links, clocks and processes."""

    def __init__(self, world: World, staff: Staff, probes: Probes, notes: Notes, rng: random.Random) -> None:
        self._world, self._staff, self._probes, self._notes, self._rng = world, staff, probes, notes, rng
        self._never = threading.Event()

    def deck(self) -> dict[str, Fault]:
        """Every fault that this machine can have, by name."""
        found: dict[str, Fault] = {
            "process killed": self.process_killed,
            "process stopped": self.process_stopped,
            "node killed": self.node_killed,
            "node stopped": self.node_stopped,
            "failover": self.failover,
            "promotion": self.promotion,
            "promotion by Sentinel": self.sentinel_promotion,
            "slots moved": self.slots_moved,
            "connections cut": self.connections_cut,
            "link cut": self.link_cut,
            "link slow": self.link_slow,
            "link black": self.link_black,
            "functions flushed": self.functions_flushed,
            "memory full": self.memory_full,
        }
        if self._world.is_clocked:
            found["clock jumped"] = self.clock_jumped
        return found

    # --- processes

    def process_killed(self, strike: Strike) -> None:
        """SIGKILL."""
        name = self._rng.choice(self._staff.posts())
        self._staff.replace(name)
        strike.over(name, works=lambda: self._staff.works(name))

    def process_stopped(self, strike: Strike) -> None:
        """SIGSTOP for less or more than a lease."""
        name = self._rng.choice(self._staff.posts())
        self._staff.signal(name, signal.SIGSTOP)
        self._last(0.5, 5.0)
        self._staff.signal(name, signal.SIGCONT)
        before = self._staff.notes(name)
        strike.over(name, works=lambda: self._staff.works(name) and self._staff.notes(name) != before)

    # --- nodes

    def node_killed(self, strike: Strike) -> None:
        """SIGKILL, and started again: it has all that it answered for."""
        name, node = self._any_primary()
        queues = self._queues_on(node)
        node.kill9()
        node.start()
        strike.over(name, queues)
        self._settle()

    def node_stopped(self, strike: Strike) -> None:
        """SIGSTOP, as when a machine stands still. Nobody takes its place so soon."""
        name, node = self._any_primary()
        queues = self._queues_on(node)
        with paused(node):
            self._last(0.2, 2.0)
        strike.over(name, queues)
        self._settle()

    def failover(self, strike: Strike) -> None:
        """A replica takes over in order: it has everything."""
        name, node = self._any_primary("cluster")
        queues = self._queues_on(node)
        self._world.cluster.hand_over(node)
        strike.over(name, queues)

    def promotion(self, strike: Strike) -> None:
        """A primary is killed, at times while its replica hears nothing, and the replica takes its place by force."""
        cluster = self._world.cluster
        name, node = self._any_primary("cluster")
        queues, spare = self._queues_on(node), cluster.spares[node]
        self._allow_loss("promotion", queues, self._unheard_and_killed(node, spare))
        strike.over(name, queues)
        cluster.promote(node)

    def sentinel_promotion(self, strike: Strike) -> None:
        """The same, and sentinels do the rest."""
        pair, sentinels = self._world.pair, self._world.sentinels
        old, (spare,) = pair.primary, pair.replicas
        self._allow_loss("promotion by Sentinel", ["paired"], self._unheard_and_killed(old, spare))
        strike.over("pair", ["paired"])
        eventually(lambda: sentinels.primary_port() == spare.port, 60, every=0.1, what="another primary")
        old.start()
        pair.primary, pair.replicas = spare, [old]
        eventually(lambda: _is(spare, "master"), 60, every=0.1, what="it is promoted")
        eventually(lambda: _is(old, "slave"), 60, every=0.1, what="the old one follows")
        pair.wait_in_sync(60)
        for each in sentinels.members:
            eventually(lambda each=each: _knows_replica(each, sentinels.service), 60, every=0.1, what="all is known")  # type: ignore[misc]

    def _unheard_and_killed(self, node: Server, spare: Server) -> float:
        """Kill a primary. Return since when what it answers may be lost."""
        if self._rng.random() < 0.5:
            node.kill9()
            return time.monotonic() - LAG
        begun = time.monotonic()
        with paused(spare):
            node.run("CLIENT", "KILL", "TYPE", "replica")
            self._last(0.2, 1.0)
            node.kill9()
        return begun - LAG

    def _allow_loss(self, why: str, queues: list[str], since: float) -> None:
        until = time.monotonic()
        for each in queues:
            self._notes.add("lost_allowed", queue=each, why=level_of(each), by=why, **{"from": since, "until": until})

    def slots_moved(self, strike: Strike) -> None:
        """The slot of a queue, or of one of its partitions, goes to another node, a few keys at a time."""
        name = self._rng.choice(self._world.site_of("plain").queues)
        self._world.cluster.move_on(self._rng.choice(self._places(name)))
        strike.over(name, [name])

    # --- links

    def connections_cut(self, strike: Strike) -> None:
        """All connections to one site end at once."""
        site = self._rng.choice(self._world.sites)
        for node in self._primaries(site.name):
            node.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        strike.over(site.name, site.queues)

    def link_cut(self, strike: Strike) -> None:
        """The link to the single server is cut again and again."""
        for _ in range(self._rng.randint(1, 5)):
            self._world.proxy.drop()
            self._last(0.05, 0.3)
        strike.over("single", [CLOCKED])

    def link_slow(self, strike: Strike) -> None:
        """Answers are late, or come bit by bit."""
        proxy = self._world.proxy
        proxy.delay(self._rng.uniform(0.02, 0.3)) if self._rng.random() < 0.5 else proxy.throttle(20_000)
        self._last(*SHORT)
        proxy.heal()
        strike.over("single", [CLOCKED])

    def link_black(self, strike: Strike) -> None:
        """Nothing passes, and no connection ends."""
        self._world.proxy.blackhole()
        self._last(*SHORT)
        self._world.proxy.heal()
        strike.over("single", [CLOCKED])

    # --- what servers hold

    def functions_flushed(self, strike: Strike) -> None:
        """No server of a site knows the library any more."""
        site = self._rng.choice(self._world.sites)
        for node in self._primaries(site.name):
            node.run("FUNCTION", "FLUSH")
            node.run("SCRIPT", "FLUSH")
        strike.over(site.name, site.queues)

    def memory_full(self, strike: Strike) -> None:
        """A server has no memory for writes."""
        name, node = self._any_primary()
        queues = self._queues_on(node)
        node.run("CONFIG", "SET", "maxmemory", max(1, int(node.info("memory")["used_memory"]) - 200_000))
        self._last(*SHORT)
        node.run("CONFIG", "SET", "maxmemory", 0)
        strike.over(name, queues)

    def clock_jumped(self, strike: Strike) -> None:
        """The clock of the single server jumps, and later back."""
        server = self._world.single
        assert isinstance(server, Shimmed)
        server.jump(self._rng.choice(JUMPS) * 1000)
        self._last(0.5, 5.0)
        server.jump(0)
        strike.over("single", [CLOCKED])

    # --- who is where

    def _any_primary(self, site: str | None = None) -> tuple[str, Server]:
        site = site or self._rng.choice(self._world.sites).name
        node = self._rng.choice(self._primaries(site))
        return next((name, each) for name, each in self._world.servers().items() if each is node)

    def _primaries(self, site: str) -> list[Server]:
        if site == "cluster":
            return self._world.cluster.primaries()
        return [self._world.pair.primary if site == "pair" else self._world.single]

    def _queues_on(self, node: Server) -> list[str]:
        """The queues of which a part is on a node."""
        if node not in self._world.cluster.members:
            return [CLOCKED] if node is self._world.single else ["paired"]
        cluster = self._world.cluster
        at = cluster.members.index(node)
        names = self._world.site_of("plain").queues
        return [name for name in names if any(cluster.owner(cluster.slot_of(key)) == at for key in self._places(name))]

    def _places(self, name: str) -> list[str]:
        """A key of each partition of a queue."""
        queue: Any = self._probes.patient(name).queue(name, create=False)
        queue.len()
        states = queue.state.parts.states if queue.state.parts else [queue.state]
        return [each.keys.meta for each in states]

    def _settle(self) -> None:
        """Wait until replicas follow."""
        self._world.cluster.wait_whole()
        self._world.pair.wait_in_sync(60)

    def _last(self, least: float, most: float) -> None:
        self._never.wait(self._rng.uniform(least, most))


@contextmanager
def paused(node: Server) -> Iterator[None]:
    """A server stands still."""
    node.pause()
    try:
        yield
    finally:
        node.resume()


def _is(server: Server, role: str) -> bool:
    """Whether a server has that role. While it gets one it closes its connections."""
    with contextlib.suppress(RedisError, OSError):
        return bool(server.info("replication")["role"] == role)
    return False


def _knows_replica(sentinel: Server, service: str) -> bool:
    with sentinel.client() as client:
        try:
            found: Any = client.sentinel_slaves(service)  # type: ignore[no-untyped-call, unused-ignore]
        except (RedisError, OSError):
            return False
    return any(not each["is_sdown"] and not each["is_disconnected"] for each in found if "is_sdown" in each)

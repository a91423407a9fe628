"""Real servers for tests: one, a primary with replicas, sentinels, a cluster. All of them end with this process."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from shardq.drivers.target import DRIVER_INFO
from shardq.embedded import EmbeddedServer, ServerBinary, find_server, probe_server
from shardq.errors import ServerUnfit
from tests.waiting import eventually

SLOTS = 16_384
DOWN_AFTER = 2_500  # ms: a primary that is only not run for a while is not replaced


@dataclass(frozen=True)
class ServerKind:
    """A server that tests can start: its product ("valkey", "redis"), and the program."""

    product: str
    binary: str
    label: str  # "redis 7.0.15"


def available() -> list[ServerKind]:
    """What this machine has, one program per product: the default one, then those on PATH."""
    found: dict[str, ServerBinary] = {}
    with contextlib.suppress(ServerUnfit):
        default = find_server()
        found[default.product] = default
    for name in ("valkey-server", "redis-server"):
        with contextlib.suppress(ServerUnfit):
            program = probe_server(shutil.which(name) or name)
            found.setdefault(program.product, program)
    return [ServerKind(each.product, each.path, each.name) for each in found.values()]


class Server(EmbeddedServer):
    """An embedded server that can be killed, restarted and suspended; DEBUG is enabled.

    With a `directory` it writes its log before each answer. By itself an embedded server syncs the log every second,
    and answers before it has written while that goes on: what is killed then loses acknowledged writes
    (docs/durability.md).
    """

    def __init__(
        self,
        kind: ServerKind | None = None,
        *,
        directory: str | Path | None = None,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        settings = {"enable-debug-command": "yes", "appendfsync": "no", **(options or {})}
        super().__init__(directory, port=port, binary=kind.binary if kind else None, options=settings)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a server that listens on TCP."""
        assert self.port
        return "127.0.0.1", self.port

    def client(self, **settings: Any) -> redis.Redis:
        """A plain redis-py client: bytes, RESP2, no retries; use it as a context manager."""
        defaults: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0), "socket_timeout": 30}
        return redis.Redis.from_url(self.url, **(DRIVER_INFO | defaults | settings))

    def run(self, *words: str | bytes | int) -> Any:
        """One command on a connection of its own; returns its reply."""
        with self.client() as client:
            return client.execute_command(*words)  # type: ignore[no-untyped-call, unused-ignore]

    def info(self, section: str) -> dict[str, Any]:
        """One section of INFO, parsed."""
        with self.client() as client:
            answer: dict[str, Any] = client.info(section)  # type: ignore[assignment, unused-ignore]
            return answer

    def kill9(self) -> None:
        """SIGKILL, and wait until it is gone; `start` brings it back, same URL (and data, with a `directory`)."""
        assert self._process
        self._process.end()

    def restart(self, *, grace: float = 0) -> None:
        """`kill9`, or with a `grace` (seconds) SIGTERM first, then `start`: same directory, same URL."""
        assert self._process
        self._process.end(grace)
        self.start()

    def pause(self) -> None:
        """SIGSTOP, and wait until it is suspended: connections stay open, nothing answers."""
        assert self.pid
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        """SIGCONT; it goes on where it was."""
        assert self.pid
        os.kill(self.pid, signal.SIGCONT)


class _Group:
    """Several servers that start at once and stop together."""

    members: list[Server]

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(max(1, len(self.members))) as pool:
                list(pool.map(Server.start, self.members))
            self._assemble()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all of them."""
        for member in self.members:
            member.stop()

    def _assemble(self) -> None:
        raise NotImplementedError


class Replicated(_Group):
    """A primary and its replicas, in sync when the context is entered; what is in a `folder` survives their death."""

    def __init__(
        self,
        kind: ServerKind | None = None,
        *,
        replicas: int = 1,
        folder: Path | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        quick = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1", "repl-timeout": "5"}
        self.members = [
            Server(kind, port=0, directory=folder / str(at) if folder else None, options=quick | {**(options or {})})
            for at in range(1 + replicas)
        ]
        self.primary, *self.replicas = self.members

    def wait_in_sync(self, timeout: float = 30.0) -> None:
        """Return once every replica has all that the primary had when this was called, and the primary counts on it."""
        offset = self.primary.info("replication")["master_repl_offset"]
        for replica in self.replicas:
            eventually(lambda replica=replica: _follows(replica, offset), timeout, what="in sync")  # type: ignore[misc]
        # A link is up at the replica's end first: the primary counts it from its first acknowledgement on.
        eventually(lambda: self.primary.run("WAIT", 0, 0) == len(self.replicas), timeout, what="acknowledged")

    def promote(self, replica: Server) -> None:
        """Make `replica` the primary, and all others its replicas; returns when they are in sync."""
        replica.run("REPLICAOF", "NO", "ONE")
        self.primary, self.replicas = replica, [each for each in self.members if each is not replica]
        self._assemble()

    def _assemble(self) -> None:
        for replica in self.replicas:
            replica.run("REPLICAOF", *self.primary.address)
        self.wait_in_sync()


def _follows(replica: Server, offset: int) -> bool:
    state = replica.info("replication")
    return state.get("master_link_status") == "up" and int(state["slave_repl_offset"]) >= offset


class Sentinel(Server):
    """One sentinel; its configuration file names the primary, as sentinels want it."""

    def __init__(self, kind: ServerKind | None, service: str, primary: Server, quorum: int) -> None:
        super().__init__(kind, port=0)
        self._monitor = (service, primary, quorum)

    def _command(self) -> list[str]:
        service, primary, quorum = self._monitor
        host, port = primary.address
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"unixsocket {self._home.socket}",
            f"dir {self._home.path}",
            f"sentinel monitor {service} {host} {port} {quorum}",
            f"sentinel down-after-milliseconds {service} {DOWN_AFTER}",
            f"sentinel failover-timeout {service} 1000",
        ]
        config = self._home.path / "sentinel.conf"
        if not config.exists():  # on a restart it holds what the sentinel has learnt
            config.write_text("\n".join(lines) + "\n")
        return [self._program().path, str(config), "--sentinel"]


class Sentinels(_Group):
    """Sentinels that watch a `Replicated` under the name `service`, aware of one another when entered."""

    service = "shardq"

    def __init__(self, watched: Replicated, kind: ServerKind | None = None, *, count: int = 3) -> None:
        self._watched, self._kind, self._count = watched, kind, count
        self.members: list[Server] = []

    def __enter__(self) -> Self:
        quorum = self._count // 2 + 1
        self.members = [Sentinel(self._kind, self.service, self._watched.primary, quorum) for _ in range(self._count)]
        return super().__enter__()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each sentinel."""
        return [member.address for member in self.members]

    def primary_port(self) -> int:
        """The port of what the first sentinel holds for the primary now."""
        return int(self.members[0].run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)[1])

    def _assemble(self) -> None:
        # In ms. A replica is fit for promotion while its last INFO, asked for each second, is within 5 ping periods.
        for member in self.members:
            member.run(
                "SENTINEL", "DEBUG", "publish-period", 100, "ask-period", 100, "ping-period", 300, "info-period", 100,
                "tilt-trigger", 30_000,
            )  # fmt: skip
        for member in self.members:
            eventually(lambda member=member: self._aware(member), what="sentinels know all")  # type: ignore[misc]

    def _aware(self, member: Server) -> bool:
        with member.client() as client:
            seen: dict[str, Any] = client.sentinel_master(self.service)
        peers, replicas = seen["num-other-sentinels"], seen["num-slaves"]
        return bool(peers == self._count - 1 and replicas == len(self._watched.replicas))


class Cluster(_Group):
    """A real cluster of `size` primaries that share the slots evenly; every slot is served when entered."""

    def __init__(self, kind: ServerKind | None = None, *, size: int = 3, node_timeout: int = 5_000) -> None:
        ports = free_ports(2 * size)
        self._bus = ports[size:]
        self.members = [
            Server(kind, port=port, options=_cluster_options(bus, node_timeout))
            for port, bus in zip(ports, self._bus, strict=False)
        ]
        self._ids: list[str] = []

    @property
    def nodes(self) -> list[Server]:
        """The nodes, in the order of their first slots at the start."""
        return self.members

    @property
    def name(self) -> str:
        """Such as "valkey 9.1.2, cluster of 3"."""
        return f"{self.members[0].name}, cluster of {len(self.members)}"

    @property
    def url(self) -> str:
        """`redis+cluster://host:port` of the first node."""
        return f"redis+cluster://127.0.0.1:{self.members[0].port}"

    def client(self, **settings: Any) -> redis.RedisCluster:
        """A plain redis-py cluster client; use it as a context manager."""
        host, port = self.members[0].address
        return redis.RedisCluster(host=host, port=port, **({"protocol": 2} | settings))

    @staticmethod
    def slot_of(key: str | bytes) -> int:
        """The slot of a key, hash tags included."""
        return int(key_slot(key.encode() if isinstance(key, str) else key))

    def owner(self, slot: int) -> int:
        """The index in `nodes` of the node that serves `slot`, as that node itself says."""
        for index, node in enumerate(self.members):
            if any(first <= slot <= last for first, last in _own_slots(_text(node.run("CLUSTER", "NODES")))):
                return index
        raise AssertionError(f"nobody serves slot {slot}")

    def flush(self) -> None:
        """Delete every key on every node."""
        for node in self.members:
            node.run("FLUSHALL")

    def wait_ok(self, timeout: float = 30.0) -> None:
        """Return once every node serves, sees every other and all slots."""
        for node in self.members:
            eventually(lambda node=node: self._agrees(node), timeout, what="cluster_state ok")  # type: ignore[misc]

    def move_slot(self, slot: int, to: int, *, batch: int = 10, between: Callable[[int], object] | None = None) -> int:
        """Migrate a slot and its keys, live, to the node with index `to`; returns the number of keys moved.

        `between` is called with the number of keys moved so far: before the first batch (the slot is then already
        open on both sides) and after each. If it raises, the slot stays half moved, and the same call again ends it.
        """
        source = self.owner(slot)
        if source == to:
            return 0
        giver, taker = self.members[source], self.members[to]
        taker.run("CLUSTER", "SETSLOT", slot, "IMPORTING", self._ids[source])
        giver.run("CLUSTER", "SETSLOT", slot, "MIGRATING", self._ids[to])
        moved = self._move_keys(slot, giver, taker, batch, between or (lambda _: None))
        # The taker first: if the giver let go first, the slot would have no owner for a moment.
        others = [node for node in self.takers() if node not in (giver, taker)]
        for node in (taker, giver, *others):
            node.run("CLUSTER", "SETSLOT", slot, "NODE", self._ids[to])
        return moved

    def takers(self) -> list[Server]:
        """The nodes that are told where a slot is."""
        return self.members

    @staticmethod
    def _move_keys(slot: int, giver: Server, taker: Server, batch: int, between: Callable[[int], object]) -> int:
        moved = 0
        between(moved)
        with giver.client() as client:
            run: Callable[..., Any] = client.execute_command
            while keys := run("CLUSTER", "GETKEYSINSLOT", slot, batch):
                run("MIGRATE", *taker.address, "", 0, 5_000, "KEYS", *keys)
                moved += len(keys)
                between(moved)
        return moved

    def _assemble(self) -> None:
        edges = [SLOTS * index // len(self.members) for index in range(len(self.members) + 1)]
        for index, node in enumerate(self.members):
            node.run("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            node.run("CLUSTER", "ADDSLOTSRANGE", edges[index], edges[index + 1] - 1)
            for peer, bus in zip(self.members[:index], self._bus, strict=False):
                node.run("CLUSTER", "MEET", *peer.address, bus)
        self._ids = [_text(node.run("CLUSTER", "MYID")) for node in self.members]
        self.wait_ok()

    def _agrees(self, node: Server) -> bool:
        state = _text(node.run("CLUSTER", "INFO")).splitlines()
        return {"cluster_state:ok", f"cluster_known_nodes:{len(self.members)}", f"cluster_slots_ok:{SLOTS}"} <= set(
            state
        )


def _cluster_options(bus: int, node_timeout: int) -> dict[str, str]:
    return {"cluster-enabled": "yes", "cluster-port": str(bus), "cluster-node-timeout": str(node_timeout)}


def _own_slots(nodes: str) -> list[tuple[int, int]]:
    """The ranges in the line about the node itself; a slot that is being moved is also in brackets, left out here."""
    mine = next(line.split() for line in nodes.splitlines() if "myself" in line)
    spans = [span.split("-") for span in mine[8:] if not span.startswith("[")]
    return [(int(span[0]), int(span[-1])) for span in spans]


def _text(reply: str | bytes) -> str:
    return reply.decode() if isinstance(reply, bytes) else reply


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports on 127.0.0.1 that nobody listens on now.

    They are below those that Linux gives to outgoing connections, one of which might take them before the server does.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.SystemRandom().randrange(20_000, 32_000)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
        return ports

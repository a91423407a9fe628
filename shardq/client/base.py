"""What `Client` and `AsyncClient` share: their settings, and what they know of queues and routers."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn, Self, TypedDict, TypeVar, Unpack

from shardq.arguments import seconds, shown, whole
from shardq.clock import Clock, SystemClock
from shardq.codec import Codec, Codecs
from shardq.drivers import Target
from shardq.durability import Durability
from shardq.embedded import EmbeddedServer
from shardq.errors import ConfigError
from shardq.model.settings import queue_config
from shardq.ops.opening import check_legacy
from shardq.ops.routing import RouterState
from shardq.ops.state import QueueState
from shardq.protocol.keys import QueueKeys, RouterKeys

T = TypeVar("T")
log = logging.getLogger("shardq")
MAX_SLICE = 5.0
MAX_PAYLOAD = 512 * 1024 * 1024  # Redis's proto-max-bulk-len


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of `Client` and `Client.from_url`, documented there; the base has defaults and bounds."""

    codec: Codec | None
    codecs: Sequence[Codec]
    timeout: float
    durability: str
    max_connections: int
    max_payload: int
    wait_slice: float
    name: str | None
    clock: Clock | None


class BaseClient:
    """The settings of a client, and what it knows of its queues. `from_url` documents the settings."""

    def __init__(self, target: Target, **settings: Unpack[ClientSettings]) -> None:
        if not isinstance(target, Target):
            raise ConfigError(f"make a client with {type(self).__name__}.from_url(url)")
        if unknown := sorted(set(settings) - ClientSettings.__annotations__.keys()):
            known = ", ".join(sorted(ClientSettings.__annotations__))
            raise ConfigError(f"unknown client setting {unknown[0]!r}; known are {known}")
        self.clock: Clock = settings.get("clock") or SystemClock()
        self.codecs = Codecs(settings.get("codec"), *settings.get("codecs", ()))
        self.timeout = seconds("timeout", settings.get("timeout", 10.0), 0.01, 3600)
        self.wait_slice = seconds("wait_slice", settings.get("wait_slice", 1.0), 0.05, MAX_SLICE)
        self.durability = Durability.parse(settings.get("durability", "none"))
        self.max_connections = whole("max_connections", settings.get("max_connections", 32), 1, 2**31)
        self.max_payload = whole("max_payload", settings.get("max_payload", 1024 * 1024), 1, MAX_PAYLOAD)
        self._name = _checked_name(settings.get("name"))
        self._settings = settings
        self._states: dict[str, QueueState] = {}
        self._all_states: weakref.WeakSet[QueueState] = weakref.WeakSet()  # all that some queue object has
        self._routers: dict[str, RouterState] = {}
        self._lock = threading.RLock()
        self._inspected = False
        self._closed = False
        self._server: EmbeddedServer | None = None
        if target.kind == "embedded":
            self._server = EmbeddedServer(target.settings.get("directory")).start()
            target = Target.parse(self._server.url)
        self._target = target

    @classmethod
    def from_url(cls, url: str, **settings: Unpack[ClientSettings]) -> Self:
        """A client for `redis://`, `rediss://`, `unix://`, `redis+cluster://`, `redis+sentinel://`, `shardq://embedded`.

        Settings: `codec` encodes payloads, `codecs` are only read with; `timeout` is how many seconds a call may keep
        trying; `durability` is "none", "process", "disk" or "replica(n)"; `max_payload` is in bytes; `wait_slice` is
        how many seconds a blocked reader waits at most before it looks for itself; `name` is what journals call the
        client, `host-pid` by default. ConfigError for a bad one.

        A call's own `timeout` counts for all of it: waiting in line for one of `max_connections` to a server, and the
        tries, of which the last has at least 0.1 s. No try waits for more than 5 s for an answer, or for more of one
        that has begun. A thread that must make a connection to a server that hangs may take as much longer.
        """
        return cls(Target.parse(url), **settings)

    @classmethod
    def beside(cls, other: BaseClient, *, timeout: float | None = None) -> Self:
        """A client of this class for the server of *other*, with its settings (or another *timeout*).

        They share no connection. For a thread beside an event loop, say. Close it before *other*.
        """
        settings = other._settings.copy()
        settings["clock"] = other.clock
        if timeout is not None:
            settings["timeout"] = timeout
        mine = cls(other._target, **settings)
        mine.codecs = other.codecs
        return mine

    @property
    def name(self) -> str:
        """What the journals of queues call this client."""
        return self._name or f"{_host()}-{os.getpid()}"

    def __repr__(self) -> str:
        """Where it connects to; no password."""
        return f"{type(self).__name__}({self._target})"

    def __reduce__(self) -> NoReturn:
        """A client is of one process: its connections cannot be handed to another."""
        raise ConfigError(f"a {type(self).__name__} cannot be pickled or copied: make one in each process by from_url")

    def state_of(self, name: str, settings: Mapping[str, Any]) -> QueueState:
        """What this client knows of the queue called *name*; ConfigError for a bad name or setting."""
        requested = queue_config(settings)
        with self._lock:
            known = self._states.get(name)
            if known is None or (settings and known.requested != requested):
                known = QueueState(
                    keys=QueueKeys(name),
                    requested=requested,
                    clock=self.clock,
                    durability=self.durability,
                    timeout=self.timeout,
                    wait_slice=self.wait_slice,
                    max_payload=self.max_payload,
                    cluster=self._target.kind == "cluster",
                    client=self.name,
                    explicit=frozenset(settings),
                )
                check_legacy(known, requested)
                self._states[name] = known
                self._all_states.add(known)
            return known

    def router_state(self, name: str = "default") -> RouterState:
        """What this client knows of the router called *name*: its bindings, their version and age. ConfigError."""
        with self._lock:
            known = self._routers.get(name)
            if known is None:
                known = self._routers[name] = RouterState(RouterKeys(name), self.clock, self.timeout, self.durability)
            return known

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()


@cache
def _host() -> str:
    """This machine's name, as far as it fits."""
    return re.sub(r"[^!-~]", "_", socket.gethostname())[:80] or "unknown"


def _checked_name(name: str | None) -> str | None:
    """A client's name, if it is one; else ConfigError."""
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"[!-~]{1,100}", name)):
        raise ConfigError(f"name must be 1 to 100 visible ASCII characters without blanks, not {shown(name)}")
    return name


def warn(findings: list[str]) -> None:
    """Log what the server does not give."""
    for finding in findings:
        log.warning("%s", finding)


def queue_name(queue: Any) -> str:
    """The name of a queue that is given as itself or by its name."""
    return str(queue.name) if hasattr(queue, "state") else queue

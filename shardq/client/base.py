"""The base class of `Client` and `AsyncClient`: their settings, and what they remember of queues and routers."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from shardq.arguments import MAX_BLOCK, check_clock, check_known, check_name, flag, of_type, seconds, shown, whole
from shardq.client.kept import Kept
from shardq.client.leases import Leases
from shardq.clock import Clock, SystemClock
from shardq.codec import Codec, Codecs
from shardq.drivers import Target
from shardq.durability import Durability
from shardq.errors import ConfigError
from shardq.model.settings import queue_config
from shardq.ops import topics
from shardq.ops.operate.declare import OnMismatch, on_mismatch
from shardq.ops.queue.fitness import inspect_server
from shardq.ops.queue.opening import check_legacy
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.protocol.keys import QueueKeys, RouterKeys
from shardq.telemetry import Spans
from shardq.telemetry.options import of_environment
from shardq.telemetry.server import server_of
from shardq.telemetry.telemetry import Telemetry
from shardq.timing import Timer

if TYPE_CHECKING:
    from shardq.embedded import EmbeddedServer
    from shardq.ops.topics.bindings import RouterState

T = TypeVar("T")
log = logging.getLogger("shardq")
_INSIDE = frozenset(
    {
        "leases",
        "timer",
        "new_state",
        "router_state",
        "store",
        "post",
        "share",
        "look",
        "run",
        "state_of",
        "state_beside",
        "state_of_part",
        "queue_of",
        "end_wait",
        "prepare",
        "lend",
        "telemetry_of",
        "server",
    }
)
MAX_SLICE = 5.0
MAX_PAYLOAD = 512 * 1024 * 1024  # Redis's proto-max-bulk-len


class ClientSettings(TypedDict, total=False):
    """The keyword arguments of `Client.from_url`, which documents them. `BaseClient` has their defaults and bounds."""

    codec: Codec | None
    codecs: Sequence[Codec]
    timeout: float
    durability: str
    max_connections: int
    max_payload: int
    wait_slice: float
    name: str | None
    clock: Clock | None
    spans: Spans | None


class DriverSettings(TypedDict):
    """The keyword arguments that both drivers take."""

    max_connections: int
    block: float
    timeout: float
    clock: Clock


class BaseClient:
    """The settings of a client, and what it remembers of queues and routers. `from_url` documents the settings.

    `timer` is the one timer of the client. Its wheel holds the ends of the leases that the client holds (`leases`), the
    deadlines of its waiting tasks, the debts of its workers, and whatever else has a time: `timer.call_at(until,
    callback)` returns an entry with `cancel()`. Its thread or loop serves all of them, so callbacks must be short.
    """

    timer: Timer
    leases: Leases

    def __init__(self, target: Target, **settings: Unpack[ClientSettings]) -> None:
        if not isinstance(target, Target):
            raise ConfigError(f"make a client with {type(self).__name__}.from_url(url)")
        check_known(type(self).__name__, settings, ClientSettings.__annotations__)
        self.clock: Clock = _clock_of(settings.get("clock"))
        codecs = of_type("codecs", settings.get("codecs", ()), (list, tuple), "a list of codecs")
        self.codecs: Codecs = Codecs(settings.get("codec"), *codecs)
        self.timeout: float = seconds("timeout", settings.get("timeout", 10.0), 0.01, 3600)
        self.wait_slice: float = seconds("wait_slice", settings.get("wait_slice", 5.0), 0.05, MAX_SLICE)
        self.durability: Durability = Durability.parse(settings.get("durability", "none"))
        self.max_connections: int = whole(
            "max_connections", settings.get("max_connections", target.max_connections), 1, 2**31
        )
        self.max_payload: int = whole("max_payload", settings.get("max_payload", 1024 * 1024), 1, MAX_PAYLOAD)
        self._name = _checked_name(settings.get("name"))
        spans = settings.get("spans")
        self.spans: Spans = of_environment() if spans is None else of_type("spans", spans, Spans, "a shardq.Spans")
        self._settings = settings
        self._telemetries: weakref.WeakKeyDictionary[QueueState, Telemetry] = weakref.WeakKeyDictionary()
        self._states: Kept[QueueState] = Kept(lambda state: state.opened or state.creates)
        self._all_states: weakref.WeakSet[QueueState] = (
            weakref.WeakSet()
        )  # `_states` has the latest of each name; a `Queue` may still use an earlier one
        self._routers: Kept[RouterState] = Kept(lambda router: router.version > 0)
        self._lock = threading.RLock()
        self._inspected = False
        self._closed = False
        self._server: EmbeddedServer | None = None
        if target.kind == "embedded":
            from shardq.embedded import EmbeddedServer  # only here: most programs have a server

            self._server = EmbeddedServer(target.settings.get("directory")).start()
            target = Target.parse(self._server.url)
        self._target = target
        self.server = server_of(target)

    @classmethod
    def from_url(cls, url: str, **settings: Unpack[ClientSettings]) -> Self:
        """Return a client for a URL.

        It begins with `redis://`, `rediss://`, `unix://`, `redis+cluster://`, `redis+sentinel://` or
        `shardq://embedded`; `valkey` and `valkeys` mean what `redis` and `rediss` do. ConfigError for a bad URL or
        setting. These are the settings:

        Each client of `shardq://embedded` has a server of its own: others get at it by `Client.beside`, or by the URL
        of an `EmbeddedServer`.

        `codec` encodes payloads; `codecs` only decode them. `timeout` is for how many seconds a call is tried.
        `durability` is "none", "process", "disk" or "replica(n)". `max_connections` is for each server, 32 unless the
        URL says `?max_connections=`. `max_payload` is in bytes. A blocked read asks the server again at least every
        `wait_slice` seconds. `name` is the client's name in journals, by default `host-pid`. `spans` says how its
        OpenTelemetry spans look (`Spans`); by default the environment does.

        The `timeout` of a call covers all of it: waiting for one of `max_connections`, and the tries; the last one
        has at least 0.1 s. A try ends when the server is silent for 5 s. Connecting to a server that hangs can add up
        to 5 s. If a firewall forgets connections, put `?health_check_interval=30` into the URL: one that was idle for
        30 s is then replaced before it is used again.

        >>> other = Client.from_url("redis://localhost:6379", timeout=5, name="web-1")
        >>> other.name
        'web-1'
        """
        return cls(Target.parse(url), **settings)

    @classmethod
    def beside(cls, other: BaseClient, *, timeout: float | None = None) -> Self:
        """Return a client of this class for the server of *other*, with its settings, or another *timeout*.

        The two share no connections. Use it, for example, in a thread beside an event loop. Close it before *other*.
        ConfigError for a bad *timeout*.

        >>> other = Client.beside(client, timeout=2)
        >>> other.timeout
        2.0
        """
        settings = other._settings.copy()
        settings["clock"] = other.clock
        if timeout is not None:
            settings["timeout"] = timeout
        client = cls(other._target, **settings)
        client.codecs = other.codecs
        other.lend(client)
        return client

    def lend(self, client: BaseClient) -> None:
        """Give a client beside this one what it needs; nothing, since it connects to the server itself."""

    @property
    def name(self) -> str:
        """The name of this client in the journals of queues."""
        return self._name or f"{host_name()}-{os.getpid()}"

    def __repr__(self) -> str:
        """Show where it connects to, without a password."""
        return f"{type(self).__name__}({self._target})"

    def __dir__(self) -> list[str]:
        """The names that programs call: without those for other parts of shardq."""
        return sorted({*super().__dir__()} - _INSIDE)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: another process cannot use the connections."""
        raise ConfigError(f"a {type(self).__name__} cannot be pickled or copied: make one in each process by from_url")

    def state_of(
        self,
        name: str,
        settings: Mapping[str, Any],
        remember: float | None = None,
        *,
        create: bool | None = None,
        mismatch: OnMismatch = "warn",
    ) -> QueueState:
        """Return what this client remembers of the queue called *name*. ConfigError for a bad name or setting.

        Writes of one with *remember* keep their dedup keys for this many seconds, not for the queue's `dedup_window`.
        The client may *create* the queue; by default if it has *settings* for it. *mismatch* says what it does if the
        queue has others.
        """
        check_name(name)
        requested, deals_with = queue_config(settings), on_mismatch(mismatch)
        creates = bool(settings) if create is None else flag("create", create)
        if remember is not None:
            seconds("remember", remember, 0, MAX_BLOCK)
        with self._lock:
            known = self._states.get((name, remember))
            if known is None or (settings and (known.requested, known.on_mismatch) != (requested, deals_with)):
                known = self.new_state(name, settings, remember, deals_with)
                self._states.put((name, remember), known)
            known.creates = known.creates or creates
            return known

    def new_state(
        self,
        name: str,
        settings: Mapping[str, Any],
        remember: float | None = None,
        deals_with: Callable[[QueueState, Any], Any] | None = None,
    ) -> QueueState:
        """Do as `state_of`, but return a state of its own, which the client does not keep."""
        requested = queue_config(settings)
        state = QueueState(
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
            remember=remember,
            on_mismatch=deals_with,
            learn=weakref.WeakMethod(self._learn),
        )
        check_legacy(state, requested)
        with self._lock:
            self._all_states.add(state)
        return state

    def state_of_part(self, head: QueueState, number: int, name: str) -> QueueState:
        """Return a state of partition *number* of the queue of *head*, which has this *name*. It creates nothing.

        *head* shares all knowledge of partition 0, the queue itself.
        """
        if number == 0:
            found = head.beside(self.name)
            found.creates = False
        else:
            found = QueueState(
                keys=QueueKeys(name),
                requested=replace(head.requested, partitions=1),
                clock=self.clock,
                durability=self.durability,
                timeout=self.timeout,
                wait_slice=self.wait_slice,
                max_payload=self.max_payload,
                cluster=head.cluster,
                client=self.name,
                remember=head.remember,
                number=number,
            )
        with self._lock:
            self._all_states.add(found)
        return found

    def state_beside(self, state: QueueState) -> QueueState:
        """Return this client's state of a queue that a client beside it knows by *state*: both know what one learns."""
        found = state.beside(self.name)
        found.learn = weakref.WeakMethod(self._learn)
        with self._lock:
            self._all_states.add(found)
        return found

    def _learn(self, state: QueueState) -> None:
        """Take note of the partitions that a queue of this client is seen to have."""
        from shardq.partitions.parts import learn  # few programs have any

        learn(state, self.state_of_part, self.codecs, self._run_in_background)
        with self._lock:  # another thread may make a queue
            faces = [*state.faces]
        for queue in faces:
            queue._spread()

    def _run_in_background(self, op: Op[Any]) -> None:
        """Start *op* beside the calls of the program. Its failure is ignored."""
        raise NotImplementedError

    def telemetry_of(self, state: QueueState) -> Telemetry:
        """Return the telemetry of the calls on a queue of this client."""
        found = self._telemetries.get(state)
        if found is None:
            found = self._telemetries[state] = Telemetry(state.keys.name, self.clock, self.server, self.spans)
        return found

    def router_state(self, name: str = "default") -> RouterState:
        """Return this client's copy of the router called *name*, with version and age. ConfigError for a bad name."""
        check_name(name)
        with self._lock:
            known = self._routers.get(name)
            if known is None:
                known = topics.bindings.RouterState(RouterKeys(name), self.clock, self.timeout, self.durability)
                self._routers.put(name, known)
            return known

    def _until(self, timeout: float | None) -> float:
        """Return the local time at which a call that starts now gives up. ConfigError for a bad *timeout*."""
        lasts = self.timeout if timeout is None else seconds("timeout", timeout, 0, MAX_BLOCK)
        return self.clock.monotonic() + lasts

    def _driver_settings(self) -> DriverSettings:
        return DriverSettings(
            max_connections=self.max_connections, block=self.wait_slice, timeout=self.timeout, clock=self.clock
        )

    def _inspection(self) -> Op[None]:
        """Compare the server with the durability level, once, and log the warnings."""
        for finding in (yield from inspect_server(self.clock, self.durability, self.timeout)):
            log.warning("%s", finding)
        self._inspected = True

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()


def _clock_of(clock: Clock | None) -> Clock:
    """Return *clock*, by default the system's. ConfigError if it is none."""
    if clock is None:
        return SystemClock()
    check_clock(clock)
    return clock


@cache
def host_name() -> str:
    """Return this machine's name, with at most 80 visible ASCII characters."""
    return re.sub(r"[^!-~]", "_", socket.gethostname())[:80] or "unknown"


def _checked_name(name: str | None) -> str | None:
    """Return *name* if it can be the name of a client; else ConfigError."""
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"[!-~]{1,100}", name)):
        raise ConfigError(f"name must be 1 to 100 visible ASCII characters without blanks, not {shown(name)}")
    return name


def queue_name(queue: Any) -> str:
    """Return the name of a queue, which is given as a `Queue` or by its name."""
    return str(queue.name) if hasattr(queue, "state") else queue

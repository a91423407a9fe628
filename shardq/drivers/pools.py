"""A client's pools of connections, and the settings of these connections."""

from __future__ import annotations

import os
import socket
from typing import Any

from redis.backoff import NoBackoff

from shardq.drivers.target import DRIVER_INFO, Address, Target
from shardq.drivers.wire import BLOCK_MARGIN, CONNECT_TIMEOUT

UNLIMITED = 2**31
"""The limit of a pool. redis-py would raise an error at a lower one; callers must wait instead, for permits."""


class Pools(dict[tuple[Address | None, bool], Any]):
    """The pools, by node and by whether their connections are for blocking reads. A pool is made on its first use.

    *redis* is the module whose classes are used, `redis` or `redis.asyncio`, and *special* are settings for its
    connections. Commands must be answered within *timeout* seconds; blocking reads wait up to *block* seconds. A
    connection that was idle for `most_idle` seconds is not used again; 0 means that it is, however long it was idle.
    """

    def __init__(self, redis: Any, target: Target, *, block: float, timeout: float, **special: Any) -> None:
        super().__init__()
        self._redis, self._target, self._block, self._timeout, self._special = redis, target, block, timeout, special
        self.sentinels: list[Any] = []
        self.closed = False  # whether the client was closed
        self.most_idle: float = target.settings.get("health_check_interval", 0)

    def __missing__(self, which: tuple[Address | None, bool]) -> Any:
        return self.setdefault(which, self._make(*which))  # two threads that come at once get the same pool

    def forget(self) -> None:
        """Forget all pools without closing them: in a forked child the connections belong to the parent."""
        self.clear()
        self.sentinels = []

    def _make(self, address: Address | None, blocking: bool) -> Any:
        redis, target = self._redis, self._target
        options = settings(target, block=self._block if blocking else None, timeout=self._timeout) | self._special
        options["retry"] = redis.retry.Retry(NoBackoff(), 0)  # operations repeat calls, and know when they may
        if target.kind == "sentinel":
            return self._of_sentinels(options)
        if address is not None:
            options |= {"host": address[0], "port": address[1]}
        if "path" in options:
            options["connection_class"] = redis.UnixDomainSocketConnection
        elif target.tls:
            options["connection_class"] = redis.SSLConnection
        return redis.ConnectionPool(max_connections=UNLIMITED, **options)

    def _of_sentinels(self, options: dict[str, Any]) -> Any:
        target, sentinel = self._target, self._redis.sentinel
        sentinel_settings = {"socket_timeout": CONNECT_TIMEOUT, "protocol": 2}
        sentinels = sentinel.Sentinel(list(target.addresses), sentinel_kwargs=sentinel_settings)
        self.sentinels += sentinels.sentinels
        kind = sentinel.SentinelManagedSSLConnection if target.tls else sentinel.SentinelManagedConnection
        return sentinel.SentinelConnectionPool(
            target.service, sentinels, connection_class=kind, max_connections=UNLIMITED, **options
        )


def leads_to_master(pool: Any, connection: Any) -> bool:
    """Return whether *connection* of *pool* still leads to the master. Sentinels may have named another one since."""
    master = getattr(pool, "master_address", None)  # only pools with sentinels have it
    return master is None or master == (connection.host, connection.port)


def settings(target: Target, *, block: float | None, timeout: float) -> dict[str, Any]:
    """Return the settings of a pool's connections: for blocking reads of *block* seconds, or if None for commands."""
    role = "read" if block is not None else "call"
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": timeout if block is None else block + BLOCK_MARGIN,
        "client_name": f"shardq-{role}-{socket.gethostname()[:40].replace(' ', '_')}-{os.getpid()}",
    }
    options |= DRIVER_INFO | target.settings
    options |= {"protocol": 2, "decode_responses": False}
    options.pop("health_check_interval", None)  # links heed it: see `Pools.most_idle`
    if "path" in options:
        del options["socket_connect_timeout"]
    else:
        options["socket_keepalive"] = True
    return options

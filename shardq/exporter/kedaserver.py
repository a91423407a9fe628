"""Serves KEDA's external scaler: a server of gRPC in an event loop of its own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

from shardq.extras import extra

with extra("scaler"):
    import grpc

from shardq.client import AsyncClient
from shardq.errors import ConfigError
from shardq.exporter.asking import Asking
from shardq.exporter.certificates import ServerCertificates
from shardq.exporter.keda import MAX_REQUEST, MAX_STREAMS, ExternalScaler
from shardq.exporter.poller import Poller
from shardq.exporter.watcher import Watchers
from shardq.sockets import UNIX, check_address

MAX_CALLS: Final = 2 * MAX_STREAMS
"""Calls at once, of all clients: those that stay open, and as many others."""
MAX_CONNECTIONS: Final = 256
MAX_METADATA: Final = 8 * 1024
"""Bytes of what a call has besides its request."""
GRACE: Final = 2.0
"""Seconds in which calls that are under way may end."""
KEEPALIVE_MS: Final = 20_000
"""Milliseconds after which a silent client is asked whether it is still there."""


class KedaServer:
    """Serves on `HOST:PORT` or `unix:PATH` from `open` until `close`. ConfigError for a bad address.

    The numbers of queues come from *poller*. *connect* makes the client with which messages are waited for.
    """

    def __init__(
        self,
        listen: str,
        poller: Poller,
        connect: Callable[[], AsyncClient],
        certificates: ServerCertificates | None = None,
    ) -> None:
        self._listen, self._poller, self._connect = check_address("the address", listen), poller, connect
        self._certificates = certificates
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        self.address = listen
        """Where it listens, with the real port if 0 was asked for."""

    def open(self) -> None:
        """Begin to serve. ConfigError if it cannot listen."""
        ready: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="shardq-keda", daemon=True)
        self._thread.start()
        if (failed := ready.get()) is not None:
            self._thread.join()
            raise ConfigError(f"grpc cannot listen on {self._listen}: {failed}") from None

    def close(self) -> None:
        """Take no more calls, end those that stay open, and the others within 2 s."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._closing.set)
            thread.join()
        self._loop = self._thread = None

    def _run(self, ready: SimpleQueue[BaseException | None]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except Exception as error:  # noqa: BLE001 - `open` raises it
            ready.put(error)

    async def _serve(self, ready: SimpleQueue[BaseException | None]) -> None:
        self._loop = asyncio.get_running_loop()
        asking = Asking(self._poller)
        try:
            async with self._connect() as client:
                watchers = Watchers(client, asking.stats, self._poller.partitions)
                scaler = ExternalScaler(asking, watchers)
                server = grpc.aio.server(options=_options(), maximum_concurrent_rpcs=MAX_CALLS)
                server.add_generic_rpc_handlers(scaler.handlers())
                self._bind(server)
                await server.start()
                ready.put(None)
                await self._closing.wait()
                scaler.close()
                await server.stop(GRACE)
                await watchers.close()
        finally:
            asking.close()

    def _bind(self, server: Any) -> None:
        host, _, port = self._listen.rpartition(":")
        where = self._listen if host else f"[::]:{port}"
        if self._certificates is None:
            bound = server.add_insecure_port(where)
        else:
            bound = server.add_secure_port(where, self._certificates.credentials())
        if not self._listen.startswith(UNIX):
            self.address = f"{host}:{bound}"


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # else a second scaler would take a part of the calls
        ("grpc.max_receive_message_length", MAX_REQUEST),
        ("grpc.max_metadata_size", MAX_METADATA),
        ("grpc.absolute_max_metadata_size", 2 * MAX_METADATA),
        ("grpc.max_concurrent_streams", MAX_CALLS),  # KEDA has one connection for all triggers
        ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: requests are bounded as they come
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.max_connection_idle_ms", 300_000),
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]

"""The gateway: a gRPC server of the service DataSink, its connections, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc

from shardq.client import AsyncClient
from shardq.clock import Clock
from shardq.datasink import messages
from shardq.errors import ConfigError, ShardqError
from shardq.gateway.checks import Broken
from shardq.gateway.connection import Connection
from shardq.gateway.counters import Counters
from shardq.gateway.dictionaries import Dictionaries
from shardq.gateway.interceptor import TokenInterceptor, secret_of
from shardq.gateway.rates import Rates
from shardq.gateway.releases import Releases
from shardq.gateway.settings import EXTRA, GatewaySettings
from shardq.gateway.storing import Storage
from shardq.gateway.tokens import UNCHECKED, Token, Tokens

try:
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
except ImportError:
    raise ConfigError("the gateway needs grpcio-health-checking: pip install 'shardq[gateway]'") from None

log = logging.getLogger("shardq.gateway")
METADATA = 8 * 1024
MORE_CALLS = 64
"""Calls beyond those of Send that may be under way: of health and reflection, and those that are being refused."""
COMPLAINTS = 10.0
"""Seconds between two lines about Redis being in trouble."""


class Gateway:
    """Serves edge producers, and stores what they send with *client*, which it does not close."""

    def __init__(self, client: AsyncClient, settings: GatewaySettings) -> None:
        self.client, self.settings = client, settings
        self.clock: Clock = client.clock
        self.counters = Counters()
        self.draining = False
        self.connections: set[Connection] = set()
        self.tokens = Tokens.read(settings.tokens) if settings.tokens else None
        self.storage = Storage(client, settings.remember, settings.router)
        self.releases = Releases(client, self.counters, settings.release_after, settings.remember)
        self.dictionaries = Dictionaries()
        self._rates: dict[str, Rates] = {}
        self._complained = -COMPLAINTS
        self._health = health.aio.HealthServicer()
        self._server: Any = None
        self._forgetting: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listen. Return the address, with the real port if 0 was asked for. ConfigError if that is not possible."""
        settings = self.settings
        tls = settings.read_tls()
        interceptor = TokenInterceptor(self._find, self._denied)
        self._server = grpc.aio.server(
            interceptors=[interceptor],
            options=_options(settings),
            maximum_concurrent_rpcs=settings.max_connections + MORE_CALLS,
        )
        handlers = {"Send": grpc.stream_stream_rpc_method_handler(self._send)}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(messages.SERVICE, handlers)])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            _reflect(self._server)
        try:
            port = self._bind(tls)
        except (RuntimeError, ValueError):  # grpc says the same of all causes
            port = -1
        if port < 0 or (port == 0 and not settings.listen.startswith("unix:")):
            raise ConfigError(f"cannot listen on {settings.listen}: is the address free, and are the TLS files right?")
        await self._server.start()
        for name in ("", messages.SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._forgetting = asyncio.create_task(self.releases.run())
        if settings.listen.startswith("unix:"):
            return settings.listen
        return f"{settings.listen.rpartition(':')[0]}:{port}"

    def _bind(self, tls: tuple[bytes, bytes, bytes | None] | None) -> int:
        if tls is None:
            return int(self._server.add_insecure_port(self.settings.listen))
        key, chain, authority = tls
        credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=authority is not None)
        return int(self._server.add_secure_port(self.settings.listen, credentials))

    async def stop(self, grace: float | None = None) -> None:
        """Take no new connections, store and ack what was received within *grace* seconds, and end."""
        self.draining = True
        await self._health.enter_graceful_shutdown()
        for connection in list(self.connections):
            connection.drain()
        if self._server is not None:
            await self._server.stop(self.settings.grace if grace is None else grace)
        if self._forgetting is not None:
            self._forgetting.cancel()
            await asyncio.gather(self._forgetting, return_exceptions=True)

    def reload(self) -> bool:
        """Read the file of tokens anew. If it is bad, keep the tokens, log why, and return False."""
        if self.settings.tokens is None:
            return False
        try:
            self.tokens = Tokens.read(self.settings.tokens)
        except ConfigError as error:
            log.error("the tokens stay as they are: %s", error)
            return False
        log.info("read %d tokens", len(self.tokens.by_name))
        for connection in list(self.connections):
            token = self.tokens.by_name.get(connection.token.name)
            if token is None or not set(connection.token.digests) & set(token.digests):
                connection.revoke()
            else:
                connection.token = token
        self._rates = {name: kept for name, kept in self._rates.items() if name in self.tokens.by_name}
        return True

    def rates_of(self, token: Token) -> Rates:
        """Return the rates that all connections of *token* share."""
        rates = self._rates.get(token.name)
        if rates is None or rates.limits != (token.messages_per_second, token.bytes_per_second):
            rates = self._rates[token.name] = Rates(token, self.clock)
        return rates

    def troubled(self, problem: ShardqError | None) -> None:
        """Note that Redis could not take something for now. Every ten seconds one line says why."""
        now = self.clock.monotonic()
        if now - self._complained >= COMPLAINTS:
            self._complained = now
            log.warning("messages wait, and are tried again: %s", problem)

    def totals(self) -> Counters:
        """Return the counters of all connections, also of those that are open."""
        found = Counters()
        for each in (self.counters, *(connection.counters for connection in self.connections)):
            found.add(each)
        return found

    def _find(self, metadata: Sequence[tuple[str, Any]] | None) -> Token | None:
        if self.tokens is None:
            return UNCHECKED
        secret = secret_of(metadata)
        return self.tokens.find(secret) if secret else None

    def _denied(self) -> None:
        self.counters.denied += 1

    async def _send(self, _requests: Any, context: Any) -> None:
        """Serve one call of Send."""
        token = self._find(context.invocation_metadata())
        if token is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this gateway needs a bearer token that it knows")
            return
        if self.draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this gateway is about to end: connect again elsewhere")
        same = sum(1 for each in self.connections if each.token.name == token.name)
        if len(self.connections) >= self.settings.max_connections or same >= self.settings.connections_per_token:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many connections: try again later")
        connection = Connection(self, token, context)
        self.connections.add(connection)
        log.info("%s connected from %s", token.name, context.peer())
        reason = "cut off"
        try:
            reason = await connection.run()
            if reason == "revoked":
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this token holds no more")
        except Broken as broken:
            reason = str(broken)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        finally:
            self.connections.discard(connection)
            self.counters.add(connection.counters)
            who = f"{token.name} ({connection.name})" if connection.name else token.name
            log.info("%s left, %s: %s: %s", who, context.peer(), connection.counters.text(), reason)


def _options(settings: GatewaySettings) -> list[tuple[str, int]]:
    options = [
        ("grpc.max_receive_message_length", settings.max_message + EXTRA),
        ("grpc.max_metadata_size", METADATA),
        ("grpc.absolute_max_metadata_size", 2 * METADATA),
        ("grpc.so_reuseport", 0),  # two gateways on one port are a mistake
        ("grpc.keepalive_time_ms", round(settings.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", round(settings.keepalive * 500)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.ping_timeout_ms", round(settings.keepalive * 500)),
        ("grpc.http2.max_pings_without_data", 0),  # else a silent client is pinged twice, and then hardly ever
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.max_connection_idle_ms", 300_000),
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]
    if settings.max_age is not None:
        options += [
            ("grpc.max_connection_age_ms", round(settings.max_age * 1000)),
            ("grpc.max_connection_age_grace_ms", round(settings.grace * 1000)),
        ]
    return options


def _reflect(server: Any) -> None:
    try:
        from grpc_reflection.v1alpha import reflection
    except ImportError:
        raise ConfigError("--reflection needs grpcio-reflection: pip install 'shardq[gateway]'") from None
    reflection.enable_server_reflection([messages.SERVICE], server, pool=messages.descriptors())

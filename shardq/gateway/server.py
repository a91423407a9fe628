"""The gateway: a gRPC server of the service DataSink, its connections, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shardq.extras import extra

with extra("gateway"):
    import grpc
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shardq.client import AsyncClient
from shardq.clock import Clock
from shardq.datasink import messages
from shardq.errors import ConfigError, ShardqError
from shardq.gateway.certificates import check_bound
from shardq.gateway.checks import Broken
from shardq.gateway.connection import ProducerConnection
from shardq.gateway.counters import Counters
from shardq.gateway.dictionaries import Dictionaries
from shardq.gateway.door import Door
from shardq.gateway.interceptor import UNKNOWN, Doorman, secret_of
from shardq.gateway.memory import MemoryBudget, budget_of
from shardq.gateway.notices import Notices
from shardq.gateway.prefixes import PrefixRoom
from shardq.gateway.rates import Rates
from shardq.gateway.readiness import Readiness
from shardq.gateway.releases import Releases
from shardq.gateway.reports import report_of
from shardq.gateway.settings import EXTRA, GatewaySettings
from shardq.gateway.status import StatusSocket
from shardq.gateway.storing import Storage
from shardq.gateway.tenants import check_queues
from shardq.gateway.tokens import UNCHECKED, Token, Tokens
from shardq.gateway.turns import GatewayTurns

log = logging.getLogger("shardq.gateway")
METADATA = 8 * 1024
WINDOW = 256 * 1024
"""Bytes that gRPC itself may hold of a connection, in each direction."""
LEAVING = 5.0
"""Seconds that connections which were cut off may take to end."""
LOOK_INTERVAL = 1.0
"""Seconds between two looks for tokens that have expired."""
LIVENESS = "liveness"
"""The service that the health check reports as SERVING as long as the gateway lives."""
MIN_STREAMS = 100
"""Calls that a client may have on one connection, at least; RFC 9113 wants no less."""


class Gateway:
    """Serves edge producers, and stores what they send with *client*, which it does not close.

    `calls` are those under way, of all methods, by the name of their token. `by_token` counts what connections did that
    have ended, `counters` what belongs to no token that there is.
    """

    def __init__(self, client: AsyncClient, settings: GatewaySettings) -> None:
        self.client, self.settings = client, settings
        self.clock: Clock = client.clock
        self.counters = Counters()
        self.by_token: dict[str, Counters] = {}
        self.draining = False
        self.connections: set[ProducerConnection] = set()
        self._left = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.tokens = Tokens.read(settings.tokens) if settings.tokens else None
        self.certificates = settings.certificates()
        self.storage = Storage(client, settings.remember, settings.router)
        self.memory = MemoryBudget(budget_of(settings.max_memory, settings.max_message))
        self.prefixes = PrefixRoom(self.memory, self.clock)
        self.turns = GatewayTurns()
        self.releases = Releases(
            client,
            self.storage.queues,
            self.storage.places,
            self.memory,
            self.counters,
            settings.release_after,
            settings.remember,
        )
        self.dictionaries = Dictionaries()
        self._rates: dict[str, Rates] = {}
        self.notices = Notices(self.clock)
        self.door = Door(settings, self.clock, self.notices)
        self._reloading = asyncio.Lock()
        self._health = health.aio.HealthServicer()
        self._server: Any = None
        self.status = StatusSocket(settings.status_socket, lambda: report_of(self)) if settings.status_socket else None
        self._tasks: list[asyncio.Task[None]] = []
        self.readiness = Readiness(client, self._tell, lambda: self.totals().stored, self._queues, self.notices)

    async def start(self) -> str:
        """Listen. Return the address, with the real port if 0 was asked for. ConfigError if that is not possible."""
        settings = self.settings
        doorman = Doorman(self._find, self.door, settings, self.notices, self.calls, self.rates_of)
        await self._check_tenants()
        self._server = grpc.aio.server(interceptors=[doorman], options=_options(settings))
        handlers = {"Send": grpc.stream_stream_rpc_method_handler(self._send)}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(messages.SERVICE, handlers)])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            _reflect(self._server)
        try:
            self._bind()
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"grpc cannot listen on {self.door.inside}, or use the TLS files: {error}") from None
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.readiness.look()
        await self._server.start()
        if self.status is not None:
            await self.status.open()
        self.door.listen()
        runs = (self.releases.run(), self.readiness.run(), self.notices.run(), self._expire())
        self._tasks = [asyncio.create_task(each) for each in runs]
        return self.door.entrances[0].address

    async def _check_tenants(self) -> None:
        """Refuse tokens that could be any number of tenants, and say what such tokens may do that name no rates."""
        if self.tokens is None:
            log.warning("there are no tokens: each client that reaches this gateway may be any number of tenants")
            return
        check_bound(self.tokens.by_name.values(), self.settings.client_ca)
        await check_queues(self.client, self.tokens.by_name.values())
        log.info("%s", Rates.told(self.settings))

    def _bind(self) -> None:
        inside = f"unix:{self.door.inside}"
        if self.certificates is None:
            self._server.add_insecure_port(inside)
        else:
            self._server.add_secure_port(inside, self.certificates.credentials())

    async def stop(self, grace: float | None = None) -> None:
        """Take no new connections, store and ack what was received within *grace* seconds, and end."""
        self.draining = True
        self.door.shut()
        await self._health.enter_graceful_shutdown()
        for connection in list(self.connections):
            connection.drain()
        if self._server is not None:
            await self._server.stop(self.settings.grace if grace is None else grace)
        await self._all_left()
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.notices.sum_up()

    async def _all_left(self) -> None:
        """Wait until all connections have ended: grpc cuts them off at the end of the grace, and waits for none.

        They count what they did, and must not find the client of Redis closed.
        """
        until = self.clock.monotonic() + LEAVING
        while self.connections and self.clock.monotonic() < until:
            self._left.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - self.clock.monotonic()):
                    await self._left.wait()
        await asyncio.sleep(0)  # grpc's own part of the last one

    def close(self) -> None:
        """Leave no sockets behind. Connections that are open end at once."""
        self.door.close()
        if self.status is not None:
            self.status.close()

    async def reload(self) -> bool:
        """Read the files of tokens and for TLS again. If one is bad, keep what it had, and log why.

        Return whether the tokens were read. One reload waits for another, so that the file is what it was at last.
        """
        async with self._reloading:
            return await self._reload()

    async def _reload(self) -> bool:
        if self.certificates is not None:
            self.certificates.reload()
        if self.settings.tokens is None:
            return False
        try:
            tokens = Tokens.read(self.settings.tokens)
            check_bound(tokens.by_name.values(), self.settings.client_ca)
            await check_queues(self.client, tokens.by_name.values())
        except ConfigError as error:
            log.error("the tokens stay as they are: %s", error)
            return False
        self.tokens = tokens
        log.info("read %d tokens", len(tokens.by_name))
        for connection in list(self.connections):
            token = tokens.by_name.get(connection.token.name)
            if token is None or not connection.token.goes_on_as(token):
                connection.revoke()
            else:
                connection.renew(token)
        for name in self.by_token.keys() - tokens.by_name.keys():
            self.counters.add(self.by_token.pop(name))
        self._rates = {name: kept for name, kept in self._rates.items() if name in tokens.by_name}
        return True

    def rates_of(self, token: Token) -> Rates:
        """Return the rates that all connections of *token* share."""
        rates = self._rates.get(token.name)
        if rates is None or rates.token is not token:
            rates = self._rates[token.name] = Rates(token, self.settings, self.clock)
        return rates

    def troubled(self, problem: ShardqError | None) -> None:
        """Note that Redis could not take something for now. Every ten seconds one line says why."""
        self.readiness.troubled()
        self.notices.say("waiting", "redis", f"messages wait, and are tried again: {problem}")

    def totals(self) -> Counters:
        """Return the counters of all connections, also of those that are open."""
        found = Counters()
        for each in (self.counters, *self.by_token.values(), *(connection.counters for connection in self.connections)):
            found.add(each)
        found.denied += sum(address.denied for address in self.door.addresses)
        return found

    def _find(self, metadata: Sequence[tuple[str, Any]] | None) -> Token | None:
        if self.tokens is None:
            return UNCHECKED
        secret = secret_of(metadata)
        token = self.tokens.find(secret) if secret else None
        if token is None or not self._is_over(token):
            return token
        self.notices.say("expired", token.name, f"the token {token.name} has expired, and is still used")
        return None

    def _is_over(self, token: Token) -> bool:
        return token.expires <= self.clock.wall()

    async def _expire(self) -> None:
        """End the connections of tokens that have expired, again and again."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            for connection in [each for each in self.connections if self._is_over(each.token)]:
                connection.revoke()

    async def _tell(self, is_able: bool) -> None:
        """Let the health check say whether messages can be stored."""
        status = health_pb2.HealthCheckResponse.SERVING if is_able else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", messages.SERVICE):
            await self._health.set(name, status)

    def _queues(self) -> list[str]:
        """Return the queues to which tokens may write by their names."""
        tokens = self.tokens.by_name.values() if self.tokens else ()
        return [name.decode() for token in tokens for name in sorted(token.queues.exact)]

    async def _send(self, _requests: Any, context: Any) -> None:
        """Serve one call of Send."""
        token = self._find(context.invocation_metadata())
        if token is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN)
            return
        visitor = self.door.visitor(context.peer())
        if self.draining or visitor is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this gateway is about to end: connect again elsewhere")
            return
        connection = ProducerConnection(self, token, context, visitor.ahead)
        self.connections.add(connection)
        log.info("%s connected from %s", token.name, visitor.peer)
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
            self._left.set()
            self.by_token.setdefault(token.name, Counters()).add(connection.counters)
            who = f"{token.name} ({connection.name})" if connection.name else token.name
            log.info("%s left, %s: %s: %s", who, visitor.peer, connection.counters.text(), reason)


def _options(settings: GatewaySettings) -> list[tuple[str, int]]:
    options = [
        ("grpc.max_receive_message_length", settings.max_message + EXTRA),
        ("grpc.max_metadata_size", METADATA),
        ("grpc.absolute_max_metadata_size", 2 * METADATA),
        ("grpc.max_concurrent_streams", max(MIN_STREAMS, settings.connections_per_token)),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: payloads are compressed by the client, and bounded
        ("grpc.keepalive_time_ms", round(settings.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", round(settings.keepalive * 500)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.ping_timeout_ms", round(settings.keepalive * 500)),
        ("grpc.http2.max_pings_without_data", 0),  # else a silent client is pinged twice, and then hardly ever
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.max_connection_idle_ms", 300_000),
        # The bytes that a client may send while it is not read from. Else gRPC lets it grow to megabytes for each
        # connection.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW),
        ("grpc.http2.write_buffer_size", WINDOW),
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]
    if settings.max_age is not None:
        options += [
            ("grpc.max_connection_age_ms", round(settings.max_age * 1000)),
            ("grpc.max_connection_age_grace_ms", round(settings.grace * 1000)),
        ]
    return options


def _reflect(server: Any) -> None:
    with extra("gateway", "--reflection"):
        from grpc_reflection.v1alpha import reflection
    reflection.enable_server_reflection([messages.SERVICE], server, pool=messages.descriptors())

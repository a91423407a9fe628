"""One call of DataSink.Send: requests go out, responses come in."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

from shardq.datasink.messages import SEND, VERSION, ClientInfo, Request
from shardq.edge.answers import MAX_ANSWER_BYTES, BadAnswer, Naming, response_of
from shardq.edge.settings import EdgeSettings
from shardq.errors import BackendError
from shardq.extras import extra

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its library writes to stderr when a connection ends
with extra("edge"):
    import grpc

WELCOME: Final = 10.0
"""Seconds in which a gateway says what it can take."""
LEAVE_SECONDS: Final = 1.0
"""Seconds in which gRPC is done with a call that was cancelled. It takes some milliseconds."""
OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel would wait for the back-off of the one before
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
)


class ConnectionEnded(BackendError):
    """The call with the gateway is over. Messages that were not acked go out again with the next one."""


class GatewayConnection:
    """An open call. `welcome` is what the gateway said first. One task may send, and one may read."""

    def __init__(self, gateway: str, call: Any) -> None:
        self._gateway, self._call = gateway, call
        self._under_way, self._naming = set[asyncio.Future[Any]](), Naming()
        self.welcome: Any = None

    async def greet(self, info: Any) -> None:
        """Hear what the gateway can take, and tell it of this producer. ConnectionEnded."""
        try:
            async with asyncio.timeout(WELCOME):
                # A gateway speaks first. A client that writes while it refuses the call gets an internal error instead
                # of the reason (https://github.com/grpc/grpc/issues/36066).
                first = await self._read()
                await self.send(Request(version=VERSION, info=info))
        except TimeoutError:
            raise ConnectionEnded(f"the gateway {self._gateway} did not answer within {WELCOME:g} s") from None
        if first.WhichOneof("response") != "info":
            raise ConnectionEnded(f"the gateway {self._gateway} did not say what it can take")
        self.welcome = first.info

    async def send(self, request: Any, count: int = 0) -> None:
        """Send a request with *count* messages; wait while HTTP/2 takes no more. ConnectionEnded."""
        self._naming.sent(count)
        try:
            await self._done(self._call.write(request))
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            raise await self._ended(error) from None

    async def responses(self) -> AsyncIterator[Any]:
        """Yield what the gateway says, until the call ends. ConnectionEnded."""
        while True:
            yield await self._read()

    async def inform(self, **fields: Any) -> None:
        """Tell the gateway something about this producer. ConnectionEnded."""
        await self.send(Request(version=VERSION, info=ClientInfo(**fields)))

    async def _read(self) -> Any:
        try:
            raw = await self._done(self._call.read())
        except grpc.RpcError as error:
            raise await self._ended(error) from None
        if raw is grpc.aio.EOF:
            raise await self._ended(None)
        try:
            response, named = response_of(raw)
            self._naming.named(named)
        except BadAnswer as bad:
            raise ConnectionEnded(f"the gateway {self._gateway} answered with {bad}") from None
        return response

    async def _done(self, operation: Awaitable[Any]) -> Any:
        """Wait for what gRPC does. If the caller is cancelled, it continues until the call ends: `end` waits for it."""
        task = asyncio.ensure_future(operation)
        self._under_way.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Where the caller is gone nobody else asks for it, and the loop would print a traceback.
            task.exception()

    async def end(self) -> None:
        """End the call, and wait until gRPC is done with it.

        gRPC's thread reports the end of each operation to the loop that began it, and another loop of the process logs
        a traceback if that one is closed by then.
        """
        self._call.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=LEAVE_SECONDS)

    async def _ended(self, error: Exception | None) -> ConnectionEnded:
        """The error that says how the call ended. Texts of a gateway are its own, so only their beginning is shown."""
        where = self._gateway
        if not self._call.done() and error is not None and not isinstance(error, grpc.RpcError):
            return ConnectionEnded(f"the call with the gateway {where} ended")
        code, text = await self._call.code(), await self._call.details() or ""
        name = code.name if code is not None else "UNKNOWN"
        return ConnectionEnded(f"the gateway {where} ended the call: {name} {text[:200]!a}")


@contextlib.asynccontextmanager
async def connected(settings: EdgeSettings, info: Any) -> AsyncIterator[GatewayConnection]:
    """Open a connection, which ends with the block. ConnectionEnded."""
    async with _channel(settings) as channel:
        send = channel.stream_stream(SEND, request_serializer=Request.SerializeToString)  # answers come as bytes
        metadata = (("authorization", f"Bearer {settings.token}"),) if settings.token else ()
        call = send(metadata=metadata)
        connection = GatewayConnection(settings.gateway, call)
        try:
            await connection.greet(info)
            yield connection
        finally:
            await connection.end()


def _channel(settings: EdgeSettings) -> Any:
    if not settings.is_secure:
        return grpc.aio.insecure_channel(settings.gateway, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(settings.root_certificates, settings.key, settings.certificate)
    return grpc.aio.secure_channel(settings.gateway, credentials, options=OPTIONS)

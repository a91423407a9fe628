"""The beginning of a call: the gateway speaks first, so that a refusal is told with its reason."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from shardq.datasink.messages import SEND, SERVICE, ClientInfo, Request, Response, ServiceMessage
from shardq.edge.connection import ConnectionEnded, GatewayConnection, connected
from shardq.edge.settings import EdgeSettings

WELCOME = Response(version=1, info=ServiceMessage(capacity=7))
Send = Callable[[Any, Any], Any]


@asynccontextmanager
async def served(
    send: Send, path: Path, *, is_raw: bool = False
) -> AsyncIterator[AbstractAsyncContextManager[GatewayConnection]]:
    """A connection to a gateway in this event loop, whose method Send is *send*. With *is_raw* it writes bytes."""
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        send, Request.FromString, None if is_raw else Response.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {SEND.rpartition("/")[2]: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield connected(EdgeSettings(gateway=f"127.0.0.1:{port}", spool=path / "spool.db"), ClientInfo(name="site-7"))
    finally:
        await server.stop(0)


async def test_nothing_is_sent_before_the_gateway_has_spoken(tmp_path: Path) -> None:
    early: list[Any] = []
    names: list[str] = []

    async def send(_requests: Any, context: Any) -> None:
        reading = asyncio.create_task(context.read())
        early.extend((await asyncio.wait([reading], timeout=0.2))[0])
        await context.write(WELCOME)
        names.append((await reading).info.name)

    async with served(send, tmp_path) as made, made as connection:
        assert connection.welcome.capacity == 7
        with pytest.raises(ConnectionEnded, match="OK"):
            await anext(connection.responses())
    assert (early, names) == ([], ["site-7"])


async def test_the_reason_of_a_refusal_is_told(tmp_path: Path) -> None:
    async def send(_requests: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "which token?")

    async with served(send, tmp_path) as made:
        with pytest.raises(ConnectionEnded, match=r"ended the call: UNAUTHENTICATED 'which token\?'"):
            async with made:
                pass


async def test_a_gateway_that_begins_with_something_else_is_left(tmp_path: Path) -> None:
    async def send(_requests: Any, context: Any) -> None:
        await context.write(Response(version=1))
        await context.read()

    async with served(send, tmp_path) as made:
        with pytest.raises(ConnectionEnded, match="did not say what it can take"):
            async with made:
                pass


async def test_a_call_that_fails_when_nobody_waits_for_it_any_more_prints_nothing() -> None:
    """A command ends while gRPC still tries to connect."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    fails = asyncio.Event()

    class Call:
        async def read(self) -> None:
            await fails.wait()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

        def cancel(self) -> None:
            fails.set()

    connection = GatewayConnection("127.0.0.1:1", Call())
    greeting = asyncio.create_task(connection.greet(ClientInfo(name="site-7")))
    await asyncio.sleep(0)
    greeting.cancel()
    await asyncio.wait([greeting])
    await connection.end()
    del greeting, connection
    gc.collect()
    await asyncio.sleep(0)
    assert told == []

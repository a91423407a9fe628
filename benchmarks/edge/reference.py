"""Ends for the references of the benchmark: they take what comes, ack it, and store nothing.

`gzip` takes one message in each gRPC message, compressed by gRPC itself; a gateway refuses that. `http` takes one in
each request of HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

import grpc

from shardq.datasink.messages import SEND, SERVICE, AckMessage, Request, Response

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


def _tell(port: int) -> None:
    print(json.dumps({"address": f"127.0.0.1:{port}"}), flush=True)


async def _ack(requests: Any, _context: Any) -> Any:
    async for request in requests:
        yield Response(version=1, ack=AckMessage(message_ids=[request.message_id]))


async def serve_gzip() -> None:
    """Ack each message of a stream."""
    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        _ack, request_deserializer=Request.FromString, response_serializer=Response.SerializeToString
    )
    method = SEND.rpartition("/")[2]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {method: handler}),))
    _tell(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(ANSWER)
            await writer.drain()
    writer.close()


async def serve_http() -> None:
    """Answer each request."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    _tell(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run({"gzip": serve_gzip, "http": serve_http}[sys.argv[1]]())

"""A producer of the benchmark, in a process of its own: it sends a file of messages, and waits for all acks.

`steady` is an `Edge` that has sent some before, and has a dictionary of its traffic already.

`gzip` and `http` are references without a gateway and a spool: a stream of gRPC that compresses each message, and a
request for each over `CONNECTIONS` connections.
"""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import grpc

from shardq.datasink.messages import SEND, VERSION, Request, Response
from shardq.edge import Edge, EdgeMessage

QUEUE: Final = "metrics"
CONNECTIONS: Final = 54
PATIENCE: Final = 3600.0
WINDOW: Final = 1000
BEFORE: Final = 4_000_000
"""Bytes that `steady` sends before: enough for a dictionary."""
REFERENCES: Final = ("gzip", "http")
_LENGTHS: Final = struct.Struct("<HI")


def write_file(path: Path, messages: Iterable[tuple[str, bytes]]) -> tuple[int, int]:
    """Write (shard key, payload) pairs. Return how many there are, and the bytes of their payloads."""
    count = size = 0
    with path.open("wb") as file:
        for key, payload in messages:
            file.write(_LENGTHS.pack(len(key), len(payload)) + key.encode() + payload)
            count, size = count + 1, size + len(payload)
    return count, size


def read_file(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield what `write_file` wrote."""
    with path.open("rb") as file:
        while head := file.read(_LENGTHS.size):
            key, payload = _LENGTHS.unpack(head)
            yield file.read(key).decode(), file.read(payload)


async def send_by_gzip(gateway: str, messages: Iterator[tuple[str, bytes]]) -> None:
    """Send all in one stream of gRPC, which compresses each message, with up to `WINDOW` on their way."""
    async with grpc.aio.insecure_channel(gateway, compression=grpc.Compression.Gzip) as channel:
        call = channel.stream_stream(
            SEND, request_serializer=Request.SerializeToString, response_deserializer=Response.FromString
        )()
        room = asyncio.Semaphore(WINDOW)

        async def read() -> None:
            async for response in call:
                for _ in response.ack.message_ids:
                    room.release()

        reading = asyncio.ensure_future(read())
        for sent, (key, payload) in enumerate(messages):
            await room.acquire()
            request = Request(version=VERSION, message_id=sent.to_bytes(16, "big"), queue=QUEUE, plain_message=payload)
            request.shard_key = key.encode()
            await call.write(request)
        await call.done_writing()
        await reading


async def send_by_http(gateway: str, messages: Iterator[tuple[str, bytes]]) -> None:
    """Send each in a request of its own, with the few headers that it must have."""
    host, _, port = gateway.rpartition(":")
    numbers = iter(range(2**60))

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for key, payload in messages:
            head = (
                f"POST /queues/{QUEUE}/messages HTTP/1.1", f"Host: {gateway}", f"Idempotency-Key: {next(numbers):032x}",
                f"Shard-Key: {key}", f"Content-Length: {len(payload)}", "", "",
            )  # fmt: skip
            writer.write("\r\n".join(head).encode() + payload)
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    await asyncio.gather(*(one_connection() for _ in range(CONNECTIONS)))


def send_by_edge(gateway: str, messages: Iterator[tuple[str, bytes]], direct: str) -> dict[str, Any]:
    """Send all by an `Edge`, through a spool, and those of before to the *direct* address. What it says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        spool = f"{folder}/spool.db"
        with Edge(direct, spool=spool) as edge:
            _put(edge, _until(messages, BEFORE))
            edge.flush(PATIENCE)
            while edge.spool.kept("dictionary") is None:
                time.sleep(0.05)
        begun, used = time.monotonic(), _cpu()
        with Edge(gateway, spool=spool) as edge:
            _put(edge, messages)
            edge.flush(PATIENCE)
            progress = edge.status().delivery
        said = {name: getattr(progress, name) for name in ("window", "sent", "again", "plain_bytes", "frame_bytes")}
    return {"seconds": time.monotonic() - begun, "cpu": _cpu() - used, **said}


def _put(edge: Edge, messages: Iterator[tuple[str, bytes]]) -> None:
    for some in _pieces(messages, 50):
        edge.send_many([EdgeMessage(payload, key, QUEUE) for key, payload in some])


def _until(messages: Iterator[tuple[str, bytes]], total: int) -> Iterator[tuple[str, bytes]]:
    """Yield the first messages, of *total* bytes."""
    while total > 0:
        key, payload = next(messages)
        total -= len(payload)
        yield key, payload


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _pieces(messages: Iterator[tuple[str, bytes]], size: int) -> Iterator[list[tuple[str, bytes]]]:
    while some := list(islice(messages, size)):
        yield some


def main(kind: str, gateway: str, path: str, direct: str) -> None:
    messages = read_file(Path(path))
    begun, used = time.monotonic(), _cpu()
    references = {"gzip": send_by_gzip, "http": send_by_http}
    said: dict[str, Any] = {}
    if kind in references:
        asyncio.run(references[kind](gateway, messages))
    else:
        said = send_by_edge(gateway, messages, direct)
    found = {"seconds": time.monotonic() - begun, "cpu": _cpu() - used}
    print(json.dumps({**found, **said}))


if __name__ == "__main__":
    main(*sys.argv[1:])

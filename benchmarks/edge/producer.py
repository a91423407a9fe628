"""A producer of the benchmark, in a process of its own: it sends a file of messages, and waits for all acks.

`sync` has many connections, each with one message at a time: the next one goes out when the ack is there, as in the
seed's first system. It has no spool. The others are `Edge`: `plain` without compression, `zstd`, and `trained`, which
is the default, with a dictionary of its own traffic.
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

from shardq.datasink.messages import VERSION, ClientInfo, Request
from shardq.edge import Edge, EdgeMessage
from shardq.edge.connection import connected
from shardq.edge.settings import EdgeSettings

QUEUE: Final = "metrics"
CONNECTIONS: Final = 54
PATIENCE: Final = 3600.0
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"compress": False}, "zstd": {"dictionary": False}, "trained": {},
}  # fmt: skip
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


async def send_singly(gateway: str, messages: Iterator[tuple[str, bytes]]) -> None:
    """Send all over `CONNECTIONS` connections, on each one message after the other."""
    numbers = iter(range(2**60))

    async def one_connection() -> None:
        async with connected(EdgeSettings(gateway=gateway, spool=""), ClientInfo(name="sync")) as connection:
            responses = connection.responses()
            for key, payload in messages:
                message_id = next(numbers).to_bytes(8, "big")
                request = Request(version=VERSION, message_id=message_id, queue=QUEUE, shard_key=key.encode())
                request.plain_message = payload
                await connection.send(request)
                async for response in responses:
                    if message_id in response.ack.message_ids:
                        break
                    if response.WhichOneof("response") == "refused":
                        raise SystemExit(f"refused: {response}")

    await asyncio.gather(*(one_connection() for _ in range(CONNECTIONS)))


def send_by_edge(gateway: str, messages: Iterator[tuple[str, bytes]], settings: dict[str, Any]) -> dict[str, Any]:
    """Send all by an `Edge`, through a spool. Return what it says of itself."""
    with tempfile.TemporaryDirectory() as folder, Edge(gateway, spool=f"{folder}/spool.db", **settings) as edge:
        for some in _pieces(messages, 50):
            edge.send_many([EdgeMessage(payload, key, QUEUE) for key, payload in some])
        edge.flush(PATIENCE)
        progress = edge.status().delivery
        return {name: getattr(progress, name) for name in ("window", "sent", "again", "plain_bytes", "frame_bytes")}


def _pieces(messages: Iterator[tuple[str, bytes]], size: int) -> Iterator[list[tuple[str, bytes]]]:
    while some := list(islice(messages, size)):
        yield some


def main(kind: str, gateway: str, path: str) -> None:
    messages = read_file(Path(path))
    begun = time.monotonic()
    said: dict[str, Any] = {}
    if kind == "sync":
        asyncio.run(send_singly(gateway, messages))
    else:
        said = send_by_edge(gateway, messages, SETTINGS[kind])
    seconds = time.monotonic() - begun
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024, **said}))


if __name__ == "__main__":
    main(*sys.argv[1:])

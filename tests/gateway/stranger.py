"""A client of HTTP/2 that says whatever a test wants, frame by frame, and shows no token unless it is given one."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, CONTINUATION = 1, 2, 3, 4, 6, 9
ACK, END_HEADERS = 1, 4
CHECK: Final = "/grpc.health.v1.Health/Check"
NOBODY: Final = "127.0.0.2"
"""The address from which strangers come; the others of a test come from 127.0.0.1."""


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header in HPACK, as it is and never indexed."""
    return b"\x10" + b"".join(_length(len(each)) + each.encode() for each in (name, value))


def _length(size: int) -> bytes:
    if size < 127:
        return bytes([size])
    size, found = size - 127, bytearray(b"\x7f")
    while size >= 128:
        found.append(size % 128 | 128)
        size //= 128
    return bytes([*found, size])


def headers(path: str = CHECK, token: str = "") -> bytes:
    pairs = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    pairs["content-type"] = "application/grpc"
    if token:
        pairs["authorization"] = f"Bearer {token}"
    return b"".join(literal(*each) for each in pairs.items())


def calls(count: int, path: str = CHECK, token: str = "", *, first: int = 1) -> bytes:
    """Frames that begin so many calls, whose requests never come."""
    block = headers(path, token)
    return b"".join(frame(HEADERS, END_HEADERS, first + 2 * at, block) for at in range(count))


def resets(count: int, path: str, token: str = "", *, first: int = 1) -> bytes:
    """Frames that begin so many calls, and reset each at once."""
    block, cancel = headers(path, token), (8).to_bytes(4)
    numbers = range(first, first + 2 * count, 2)
    return b"".join(frame(HEADERS, END_HEADERS, at, block) + frame(RST_STREAM, 0, at, cancel) for at in numbers)


class Stranger:
    """One connection. What came is in `frames`, as (kind, stream); `gone` is set when the other side has ended it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.frames: list[tuple[int, int]] = []
        self.gone = asyncio.Event()
        self.some = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def come(cls, address: str, source: str = NOBODY, *, says: bytes = b"") -> Self:
        """Connect, say hello and *says*. OSError if it is turned away at once."""
        host, _, port = address.rpartition(":")
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)  # what is not taken waits in few bytes here
        plain.setblocking(False)
        plain.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=plain)
        self = cls(reader, writer)
        self.say(PREFACE + frame(SETTINGS) + says)
        return self

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def pour(self, data: bytes, pieces: int) -> None:
        """Say *data* so many times, as fast as the other side takes it, or until it ends the connection."""
        try:
            for _ in range(pieces):
                self._writer.write(data)
                await self._writer.drain()
        except OSError:
            pass

    @property
    def waits(self) -> bool:
        """Whether the other side takes no more for now."""
        transport = self._writer.transport
        return transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                await self._reader.readexactly(int.from_bytes(head[:3]))
                self.frames.append((head[3], int.from_bytes(head[5:])))
                if head[3] == SETTINGS and not head[4] & ACK:
                    self.say(frame(SETTINGS, ACK))  # else the other side ends it by itself after a while
                self.some.set()
        except (OSError, asyncio.IncompleteReadError):
            self.gone.set()
            self.some.set()

    async def until(self, condition: Any, timeout: float = 60.0) -> None:
        """Wait until *condition* holds, which is looked at whenever something came."""
        async with asyncio.timeout(timeout):
            while not condition():
                self.some.clear()
                if condition():
                    return
                await self.some.wait()

    async def leave(self) -> None:
        self._reading.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._reading, return_exceptions=True)

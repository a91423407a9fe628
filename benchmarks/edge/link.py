"""A link between networks, on loopback: a TCP proxy that shapes what goes through it.

A kernel's netem needs root and a module that not every machine has, so the link is a model. All connections share its
bandwidth in each direction, behind a buffer that drops at its tail. Each connection has a congestion window as TCP Reno
has it (RFC 5681): slow start from ten segments, one segment more for each round trip after that, and half of it after a
loss. A lost segment comes one round trip late, and so do those behind it. There are no retransmission time-outs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import deque
from dataclasses import dataclass
from random import Random

SEGMENT = 1448
FIRST_WINDOW = 10 * SEGMENT
READ = 256 * 1024
BUFFER = 0.1
"""The buffer holds what the link carries in so many seconds, and at least thirty segments."""


@dataclass(frozen=True)
class Quality:
    """What a link is like: bits per second, seconds of a round trip, and the share of segments that get lost."""

    bandwidth: float = 40e6
    round_trip: float = 0.02
    loss: float = 0.0


class Direction:
    """One direction of the link, which all connections share. `carried` counts bytes."""

    def __init__(self, quality: Quality, rng: Random) -> None:
        self.quality, self.rng = quality, rng
        self.free_at, self.carried = 0.0, 0

    def send(self, size: int, now: float) -> tuple[float, bool]:
        """Return when a segment of *size* bytes arrives, and whether it, or one like it, was lost on the way."""
        quality = self.quality
        waits = max(0.0, self.free_at - now)
        is_lost = waits > max(BUFFER, 30 * SEGMENT * 8 / quality.bandwidth) or self.rng.random() < quality.loss
        self.free_at = max(now, self.free_at) + size * 8 / quality.bandwidth
        self.carried += size
        return self.free_at + quality.round_trip / 2 + (quality.round_trip if is_lost else 0.0), is_lost


class Flow:
    """What one connection sends in one direction: segments in flight, and its congestion window."""

    def __init__(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.direction, self.reader, self.writer = direction, reader, writer
        self.window, self.threshold, self.recovers_at = float(FIRST_WINDOW), float("inf"), 0.0
        self.in_flight, self.last = 0, 0.0
        self.arriving: deque[tuple[float, bytes]] = deque()
        self.acks: deque[tuple[float, int]] = deque()
        self.has_more, self.has_room, self.is_over = asyncio.Event(), asyncio.Event(), False
        self.is_lost = False

    async def run(self) -> None:
        """Carry all that comes, until one end closes."""
        delivering = asyncio.ensure_future(self._deliver())
        try:
            while data := await self.reader.read(READ):
                for at in range(0, len(data), SEGMENT):
                    await self._send(data[at : at + SEGMENT])
        except (ConnectionError, OSError):
            pass
        finally:
            self.is_over = True
            self.has_more.set()
            await delivering

    async def _send(self, segment: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._count_acks(loop.time())
        while self.in_flight + len(segment) > self.window and self.acks:
            await asyncio.sleep(max(0.0, self.acks[0][0] - loop.time()))
            self._count_acks(loop.time())
        now = loop.time()
        arrives, is_lost = self.direction.send(len(segment), now)
        if is_lost and now >= self.recovers_at:  # once in a round trip, however many are lost in it
            self.threshold = max(self.window / 2, 2 * SEGMENT)
            self.window, self.recovers_at = self.threshold, arrives
        self.last = max(self.last, arrives)
        self.in_flight += len(segment)
        self.arriving.append((self.last, segment))
        self.acks.append((self.last + self.direction.quality.round_trip / 2, len(segment)))
        self.has_more.set()

    def _count_acks(self, now: float) -> None:
        while self.acks and self.acks[0][0] <= now:
            size = self.acks.popleft()[1]
            self.in_flight -= size
            self.window += size if self.window < self.threshold else SEGMENT * size / self.window

    async def _deliver(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError, OSError):
            while True:
                if not self.arriving:
                    if self.is_over:
                        break
                    self.has_more.clear()
                    await self.has_more.wait()
                    continue
                if (left := self.arriving[0][0] - loop.time()) > 0:
                    await asyncio.sleep(left)
                due, now = [], loop.time()
                while self.arriving and self.arriving[0][0] <= now:
                    due.append(self.arriving.popleft()[1])
                if not self.is_lost:
                    self.writer.write(b"".join(due))
                await self.writer.drain()
        with contextlib.suppress(ConnectionError, OSError):
            if self.writer.can_write_eof():
                self.writer.write_eof()


class Link:
    """The proxy: what connects to `port` on loopback reaches *target* ("host:port") over a link of this quality."""

    def __init__(self, target: str, quality: Quality, seed: int = 0) -> None:
        rng = Random(seed)
        self._host, _, port = target.rpartition(":")
        self._to = int(port)
        self.up, self.down = Direction(quality, rng), Direction(quality, rng)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._flows: set[Flow] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Link:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)
        await asyncio.sleep(0)  # transports close by callbacks

    @property
    def carried(self) -> int:
        """Bytes that the link has carried in both directions."""
        return self.up.carried + self.down.carried

    def cut(self) -> None:
        """Cut all connections, as a firewall does that has restarted."""
        for writer in [*self._open]:
            writer.transport.abort()

    def lose(self) -> None:
        """Let nothing more through the connections that there are, and end none: a firewall has forgotten them."""
        for flow in self._flows:
            flow.is_lost = True

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._to)
        except OSError:
            writer.transport.abort()
            return
        flows = {Flow(self.up, reader, far_writer), Flow(self.down, far_reader, writer)}
        self._open |= {writer, far_writer}
        self._flows |= flows
        try:
            await asyncio.gather(*(flow.run() for flow in flows))
        finally:
            self._open -= {writer, far_writer}
            self._flows -= flows
            for each in (writer, far_writer):
                each.transport.abort()


async def serve(target: str, quality: Quality) -> None:
    """Be a link to *target*: print its port, and at the end of stdin the bytes that it has carried, up and down."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    async with Link(target, quality) as link:
        print(link.port, flush=True)
        await over.wait()
        loop.remove_reader(sys.stdin.fileno())
        print(json.dumps([link.up.carried, link.down.carried]), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Quality(*map(float, sys.argv[2:]))))

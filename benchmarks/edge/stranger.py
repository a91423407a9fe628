"""A stranger of the benchmark: it attacks a gateway in one way until its stdin ends, from an address of its own.

What ends or is turned away comes again, `COMINGS` times a second at most, so that this process takes a part of a
processor only: a real stranger would use those of its own machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

from shardq.datasink import messages
from tests.gateway.stranger import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    RST_STREAM,
    Stranger,
    calls,
    frame,
    headers,
    literal,
)  # fmt: skip

COMINGS: Final = 200
ATTACKS: Final[dict[str, tuple[int, bytes, bytes]]] = {
    "1,000 connections": (1000, b"", b""),
    "calls whose requests never come": (50, calls(95), b""),
    "calls without a token": (50, calls(95, messages.SEND), b""),
    "rapid resets": (
        50,
        b"",
        b"".join(
            frame(HEADERS, END_HEADERS, at, headers()) + frame(RST_STREAM, 0, at, bytes(4)) for at in range(1, 4001, 2)
        ),
    ),
    "header floods": (
        50,
        frame(HEADERS, 0, 1, headers()),
        frame(CONTINUATION, 0, 1, literal("x", "y" * 100)) * 1000,
    ),
}
"""How many connections, what each says first, and what it pours."""


class Crowd:
    """The connections of one attack."""

    def __init__(self, address: str, kind: str) -> None:
        self.address = address
        self.count, self.first, self.more = ATTACKS[kind]
        self._due = 0.0

    async def run(self) -> None:
        """Attack for ever."""
        await asyncio.gather(*[self._one() for _ in range(self.count)])

    async def _one(self) -> None:
        while True:
            await self._turn()
            try:
                stranger = await Stranger.come(self.address, says=self.first)
            except OSError:
                continue
            if self.more:
                await stranger.pour(self.more, 1 << 30)
            await stranger.gone.wait()
            await stranger.leave()

    async def _turn(self) -> None:
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now) + 1 / COMINGS
        await asyncio.sleep(self._due - now)


async def main(address: str, kind: str) -> None:
    os.nice(10)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    attack = asyncio.create_task(Crowd(address, kind).run())
    print("begun", flush=True)
    await over.wait()
    attack.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

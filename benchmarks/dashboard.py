"""dashboard: what do those cost who look at the page, beside one who looks? And what does the page cost if nobody does?

A queue with 256 streams has messages of 100,000 tenants. The page runs in a process of its own, as `shardq serve
dashboard` serves it; viewers read its streams. It is measured for a while after all of them have been told something.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from benchmarks.prior_art import connect
from benchmarks.processes import cpu_of
from benchmarks.report import Table, Target
from benchmarks.settings import ROOT, Place
from shardq import AsyncClient, Client, Message, Queue

VIEWERS: Final = 100
STREAMS: Final = 256
TENANTS: Final = 20
"""For each message of the settings: 100,000 with 5,000."""
PART: Final = 2.0
"""Percent of a core that those who look may cost the server."""
LARGEST: Final = 60.0
"""kB that what a screen shows may have."""
SETTLED: Final = 2
"""Events with the screen that a viewer has had when it is measured: the first asking of all is over then."""
PATIENCE: Final = 120.0
"""Seconds for that."""
SCREENS: Final = ("overview", "queue", "tenants", "tenant", "failures", "workers")
NOBODY: Final = "nobody looks"


class Cost(NamedTuple):
    """What was measured in a while: percent of a core, and commands a second."""

    server: float
    page: float
    commands: float
    size: float = 0.0
    """kB of what the screen shows."""


def run(place: Place) -> list[Table]:
    chosen = place.settings
    count = chosen.messages * TENANTS
    with Client.from_url(place.url) as client, connect(place.url) as server, _page(place.url) as (process, address):
        queue = client.queue(f"dashboard-{uuid.uuid4().hex[:8]}", streams=STREAMS, create=True)
        for start in range(0, count, 1000):
            queue.write_many([Message(b"x", f"t{n}") for n in range(start, min(start + 1000, count))])
        meter = _Meter(server, process.pid, chosen.seconds)
        found = {NOBODY: (meter.cost(0.0), meter.cost(0.0))}
        for screen in SCREENS:
            where = _address(address, screen, queue)
            found[screen] = (meter.looked_at(where, 1), meter.looked_at(where, VIEWERS))
        meter.cost(0.0)  # what is under way when the last one goes is asked to its end
        after = meter.cost(0.0)
    return [_table(place, found, after, count)]


class _Meter:
    """Measures what the server and the page take while some look."""

    def __init__(self, server: Any, pid: int, seconds: float) -> None:
        self._server, self._pid, self._seconds = server, pid, seconds

    def looked_at(self, where: str, viewers: int) -> Cost:
        """What it costs that so many look."""
        with _looking(where, viewers) as size:
            return self.cost(size)

    def cost(self, size: float) -> Cost:
        """What is spent in a while."""
        begun, before, page = time.monotonic(), self._taken(), cpu_of(self._pid)
        time.sleep(self._seconds)
        took, after, spent = time.monotonic() - begun, self._taken(), cpu_of(self._pid) - page
        commands = after[1] - before[1] - 2  # INFO is asked for in two sections
        return Cost(100 * (after[0] - before[0]) / took, 100 * spent / took, max(0.0, commands / took), size)

    def _taken(self) -> tuple[float, int]:
        commands = self._server.info("stats")["total_commands_processed"]
        cpu = self._server.info("cpu")
        return cpu["used_cpu_sys"] + cpu["used_cpu_user"], commands


def _address(address: str, screen: str, queue: Queue) -> str:
    parts = {"overview": [], "workers": [], "tenant": [queue.name, "t7"]}.get(screen, [queue.name])
    return f"{address}live?{urlencode([('scene', screen), *(('part', each) for each in parts)], quote_via=quote)}"


@contextmanager
def _page(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The page in a process of its own, and its address."""
    command = [sys.executable, "-m", "benchmarks.dashboard", url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def _looking(where: str, viewers: int) -> Iterator[float]:
    """So many look, in a thread, once all of them have been told something. Gives the kB of what the screen shows."""
    loop, ready, sizes = asyncio.new_event_loop(), threading.Semaphore(0), list[int]()
    tasks = [loop.create_task(_look(where, f"viewer-{number}", ready, sizes)) for number in range(viewers)]
    whole = asyncio.gather(*tasks, return_exceptions=True)

    def read() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(whole)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(viewers):
            if not ready.acquire(timeout=PATIENCE):
                raise SystemExit(f"FAILED: {where} told nothing: {[each for each in tasks if each.done()]}")
        yield max(sizes) / 1000
    finally:
        loop.call_soon_threadsafe(whole.cancel)
        thread.join()
        loop.close()


async def _look(where: str, name: str, ready: threading.Semaphore, sizes: list[int]) -> None:
    """Read a stream until cancelled."""
    parts = urlsplit(where)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**20)
    try:
        asked = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Viewer: {name}\r\n\r\n"
        writer.write(asked.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(head.decode())
        kind, told = b"", 0
        while line := await reader.readline():
            if line.startswith(b"event: "):
                kind = line.removeprefix(b"event: ").strip()
            elif line.startswith(b"data: ") and kind in (b"scene", b"beat"):
                told += 1
                sizes += [len(line)] if kind == b"scene" else []
                if told == SETTLED:
                    ready.release()
    finally:
        writer.close()


def _table(place: Place, found: dict[str, tuple[Cost, Cost]], after: Cost, count: int) -> Table:
    rows = [
        (
            screen,
            *(f"{each.server:.2f} %" for each in costs),
            *(f"{each.page:.1f} %" for each in costs),
            *(f"{each.commands:.1f}" for each in costs),
            f"{costs[0].size:.1f} kB" if costs[0].size else "-",
        )
        for screen, costs in found.items()
    ]
    looked = {screen: costs for screen, costs in found.items() if screen != NOBODY}
    return Table(
        "dashboard",
        f"The page of a queue with {STREAMS} streams and {count:,} tenants: one looks, or {VIEWERS} do",
        place.described(f"{place.settings.seconds:g} s for each figure"),
        (
            "screen",
            *(f"{each}, {many}" for each in ("server", "page", "commands/s") for many in (1, VIEWERS)),
            "size",
        ),
        rows,
        [
            Target("commands while nobody looks", found[NOBODY][0].commands, 0, True, " a second"),
            Target("commands after all have gone", after.commands, 0, True, " a second"),
            *(
                Target(f"server, {screen}", pair[1].server, PART, True, " % of a core")
                for screen, pair in looked.items()
            ),
            Target("commands of 100 / of one", _ratio(looked), 1.5, True),
            Target("largest screen", max(pair[1].size for pair in looked.values()), LARGEST, True, " kB"),
        ],
        {screen: [each._asdict() for each in costs] for screen, costs in found.items()},
    )


def _ratio(looked: dict[str, tuple[Cost, Cost]]) -> float:
    """The commands for many who look, by those for one, of all screens: one alone may ask nothing in a short while."""
    one = sum(costs[0].commands for costs in looked.values())
    return sum(costs[1].commands for costs in looked.values()) / one if one else 0.0


def serve(url: str) -> None:
    """Serve the page, for viewers who say their names, until stdin ends."""
    from starlette.requests import Request

    from shardq.dashboard import Person, Role, app
    from shardq.dashboard.serving import PageServer, PageSettings

    def who(request: Request) -> Person | None:
        return Person(request.headers.get("x-viewer", "anybody"), Role.VIEW)

    server = PageServer(
        PageSettings("127.0.0.1:0"), lambda: AsyncClient.from_url(url), lambda client: app(client, auth=who)
    )
    server.open()
    sys.stdout.write(f"{server.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.close()


def many(url: str, count: int, seconds: float) -> None:
    """Print what it costs that one looks at the overview of so many queues, or a hundred do. A tenth has messages."""
    with Client.from_url(url) as client, connect(url) as server, _page(url) as (process, address):
        for number in range(count):
            queue = client.queue(f"dashboard-{number:04}", streams=4, create=True)
            queue.declare()
            if not number % 10:
                queue.write_many([Message(b"x", f"t{n}") for n in range(5)])
        meter = _Meter(server, process.pid, seconds)
        for viewers in (1, VIEWERS):
            cost = meter.looked_at(f"{address}live?scene=overview", viewers)
            told = f"server {cost.server:.2f} %, page {cost.page:.2f} %, {cost.commands:.0f} commands/s"
            sys.stdout.write(f"{count} queues, {viewers} look: {told}\n")


if __name__ == "__main__":
    if sys.argv[2:3] == ["many"]:  # python -m benchmarks.dashboard URL many: 1,000 queues on a server of their own
        many(sys.argv[1], 1000, 60.0)
    else:
        serve(sys.argv[1])

"""A tiny library for tests of the transport, and callers of it that block, one for each kind of driver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Protocol

from shardq.clock import Clock
from shardq.drivers import AsyncDriver, Driver, Target
from shardq.drivers.forms import Forms
from shardq.ops.queue.steps import Batch, Call
from shardq.protocol.library import Library
from shardq.protocol.sources import read
from shardq.timing import LoopTimer
from tests.clients import Loop
from tests.servers import Server

BEGIN = """-- What is set at the first call.
local call

local function begin()
  call = redis.call
end

local verbs = {}
"""
TEXTS = """-- A text.

-- @verb put: keep a text
-- KEYS[1] text: the text
-- ARGV[1] value: what to keep
-- Reply: OK
function verbs.put(KEYS, ARGV)
  begin()
  return call('SET', KEYS[1], ARGV[1])
end

-- @verb get | no-writes, allow-oom: return the text
-- KEYS[1] text: the text
-- Reply: the text
function verbs.get(KEYS, ARGV)
  begin()
  return call('GET', KEYS[1]) or ARGV[1].missing.missing
end

-- @verb take | allow-oom: return the text and forget it
-- KEYS[1] text: the text
-- Reply: the text
function verbs.take(KEYS, ARGV)
  begin()
  return call('GETDEL', KEYS[1])
end
"""
FAILING = 1 + next(at for at, line in enumerate(TEXTS.splitlines()) if "missing" in line)
"""The line of texts.lua in which `get` fails if there is no text."""


def library(folder: Path, *, more: str = "") -> Library:
    """The library of these two modules, and of *more* lines that make it another one."""
    folder.mkdir(exist_ok=True)
    (folder / "order.txt").write_text("base  # first of all\ntexts\n")
    (folder / "base.lua").write_text(BEGIN)
    (folder / "texts.lua").write_text(TEXTS + more)
    return read(folder)


class Caller(Protocol):
    """A driver of either kind."""

    forms: Forms

    def attempt(self, step: Call | Batch) -> Any:
        """Perform *step*. Return its reply, or its failure."""

    def close(self) -> None:
        """Close the driver."""


class ThreadsCaller:
    """The driver for threads."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._driver = Driver(Target.parse(url), max_connections=4, block=1, clock=clock)
        self.forms = self._driver._exchanges.forms

    def attempt(self, step: Call | Batch) -> Any:
        return self._driver.attempt(step)

    def close(self) -> None:
        self._driver.close()


class AsyncioCaller:
    """The driver for asyncio, on a loop of its own."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._loop = Loop()
        self._driver = self._loop.run(self._made(url, clock))
        self.forms = self._driver._exchanges.forms

    def attempt(self, step: Call | Batch) -> Any:
        return self._loop.run(self._driver.attempt(step))

    def close(self) -> None:
        self._loop.run(self._driver.aclose())
        self._loop.stop()

    @staticmethod
    async def _made(url: str, clock: Clock | None) -> AsyncDriver:
        timer = LoopTimer(asyncio.get_running_loop())
        return AsyncDriver(Target.parse(url), max_connections=4, block=1, timer=timer, clock=clock)


CALLERS: dict[str, Any] = {"threads": ThreadsCaller, "asyncio": AsyncioCaller}


def commands(server: Server) -> dict[str, int]:
    """How many commands of these kinds the server ran or refused since `forget_commands`."""
    with server.client() as client:
        seen: dict[str, Any] = client.info("commandstats")  # type: ignore[assignment, unused-ignore]
    kinds = ("fcall", "fcall_ro", "evalsha", "evalsha_ro", "eval", "eval_ro", "function|load")
    stats = {kind: seen.get(f"cmdstat_{kind}", {"calls": 0, "rejected_calls": 0}) for kind in kinds}
    counts = {kind: int(each["calls"]) + int(each["rejected_calls"]) for kind, each in stats.items()}
    return {kind: count for kind, count in counts.items() if count}


def emptied(server: Server) -> Server:
    """The server without libraries and scripts, which counts commands from now on."""
    server.run("FUNCTION", "FLUSH")
    server.run("SCRIPT", "FLUSH")
    forget_commands(server)
    return server


def forget_commands(server: Server) -> None:
    """Begin to count anew."""
    server.run("CONFIG", "RESETSTAT")


def loaded(server: Server) -> set[str]:
    """The names of the libraries that the server has."""
    with server.client() as client:
        return {name_of(each) for each in client.function_list()}  # type: ignore[union-attr, unused-ignore]


def name_of(listed: Any) -> str:
    """The name of a library in FUNCTION LIST."""
    words = [each.decode() if isinstance(each, bytes) else each for each in listed[:2]]
    return str(words[1])

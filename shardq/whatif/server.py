"""A private server whose clock stands until it is moved: its scripts run as on any other, and hours pass in seconds.

The library of shardq is loaded with another `TIME` in front of it. Clients find it under its usual name, so they call
it as usual. Nothing else of the server is otherwise: it runs shardq's own Lua, and keeps what that keeps.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import redis

from shardq.client import Client
from shardq.embedded import EmbeddedServer
from shardq.protocol.library import Library
from shardq.protocol.scripts import load
from shardq.testing import ManualClock

TIMEOUT: Final = 600.0
"""Seconds that a call may take in fact: a machine that is busy changes nothing of a replay."""

_SET_TIME: Final = "shardq_set_time"
_CLOCK: Final = f"""
local shown = {{'0', '0'}}
local clocked = {{}}
function clocked.call(command, ...)
  if command == 'TIME' then return shown end
  return redis.call(command, ...)
end
function clocked.pcall(...) return redis.pcall(...) end
function clocked.sha1hex(text) return redis.sha1hex(text) end
function clocked.register_function(verb) redis.register_function(verb) end
local function set_time(KEYS, ARGV) shown = ARGV end
redis.register_function{{function_name = '{_SET_TIME}', callback = set_time, flags = {{'no-writes'}}}};
"""
"""The text in front of the library. Its `redis` is `clocked`, which looks at the real one while a function runs:
before, a library may not (lua/base.lua).
"""


class MovedServer:
    """A context manager: a private server, and clients of it that have its clock. `load` names any verb."""

    def __init__(self) -> None:
        self._embedded = EmbeddedServer()
        self._redis: redis.Redis | None = None

    def __enter__(self) -> Self:
        self._embedded.start()
        self._redis = redis.Redis.from_url(self._embedded.url)
        self._redis.execute_command("FUNCTION", "LOAD", _clocked(load("read").library))  # type: ignore[no-untyped-call, unused-ignore]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._redis is not None:
            self._redis.close()
        self._embedded.stop()

    def emptied(self, at: float) -> tuple[Client, MovedClock]:
        """Return a client of the server, which has no queue now, and their clock, which shows *at* (Unix seconds)."""
        assert self._redis is not None, "use it in a with block"  # noqa: S101 (for type checkers)
        self._redis.flushall()
        clock = MovedClock(self._redis, at)
        return Client.from_url(self._embedded.url, clock=clock, timeout=TIMEOUT), clock


class MovedClock(ManualClock):
    """The clock of a server, which stands until it is moved, and of its clients."""

    def __init__(self, server: redis.Redis, wall: float) -> None:
        super().__init__(wall)
        self._server = server
        self._tell()

    def move_to(self, moment: float) -> None:
        """Let its monotonic time be *moment*. It stays as it is if it shows a later time."""
        if (ahead := moment - self.monotonic()) > 0:
            self.advance(ahead)

    def advance(self, seconds: float) -> None:
        """Move it on by *seconds*."""
        super().advance(seconds)
        self._tell()

    def _tell(self) -> None:
        seconds, micros = divmod(round(self.wall() * 1_000_000), 1_000_000)
        self._server.execute_command("FCALL_RO", _SET_TIME, 0, seconds, micros)  # type: ignore[no-untyped-call, unused-ignore]


def _clocked(library: Library) -> str:
    first, _, body = library.text.partition("\n")
    return f"{first}\n{_CLOCK}(function(redis)\n{body}\nend)(clocked)\n"

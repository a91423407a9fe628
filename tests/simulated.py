"""A real server whose clock the test moves: shardq's own library, of which only what `TIME` answers is another.

Each call sends the time of the clock, as `shardq.testing.fake` does on its imitation; the commands, their atomicity and
the data are the server's own. A worker may be killed at any of its calls: before the server has it, or when it has it
and the answer is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from shardq.drivers import Target
from shardq.ops.queue.steps import Call, Refused, Step
from shardq.protocol.library import Library
from shardq.testing import ManualClock
from shardq.testing.fake import FakeClient, FakeDriver
from tests.servers import Server

Hook = Callable[[Step, bool], None]
"""Called with each step, before it is done (False) and after it (True); it may raise `Killed`."""


class Killed(BaseException):
    """The process ends here: nothing of it runs any more."""


CLOCKED: Final = "clocked_"
"""What stands before the name of the library."""

_CLOCK: Final = """
local seconds, micros
local function call(command, ...)
  if command == 'TIME' then return {seconds, micros} end
  return redis.call(command, ...)
end
local function register(verb)
  local run = verb.callback
  verb.callback = function(KEYS, ARGV)
    micros = table.remove(ARGV)
    seconds = table.remove(ARGV)
    return run(KEYS, ARGV)
  end
  return redis.register_function(verb)
end
local function sha1hex(text) return redis.sha1hex(text) end
local redis = {call = call, pcall = function(...) return redis.pcall(...) end, register_function = register,
  sha1hex = sha1hex}
"""
"""What stands before the modules: the time of their calls is in the last two of ARGV."""


@cache
def _clocked(library: Library) -> str:
    """The text of the library with another clock, and another name."""
    first, _, modules = library.text.partition("\n")
    return (first + _CLOCK + modules).replace(library.name, CLOCKED + library.name)


class ClockedDriver(FakeDriver):
    """Runs operations on a real server by the time of a clock."""

    hook: Hook | None = None

    def _ran(self, call: Call) -> Any:
        library = call.script.library
        function = call.script.function.replace(library.name, CLOCKED + library.name)
        words = ("FCALL", function, len(call.keys), *call.keys, *call.args, *self._now())
        try:
            return self._sent(*words)
        except Refused as refused:
            if "Function not found" not in str(refused):
                raise
            self._sent("FUNCTION", "LOAD", "REPLACE", _clocked(library))
            return self._sent(*words)

    def perform(self, step: Step) -> Any:
        """Perform *step*, and tell the test before and after."""
        if self.hook:
            self.hook(step, False)
        try:
            return super().perform(step)
        finally:
            if self.hook:
                self.hook(step, True)


def clocked_client(server: Server, clock: ManualClock, **settings: Any) -> tuple[FakeClient, ClockedDriver]:
    """A client of *server* by this clock, and its driver."""
    driver = ClockedDriver(server.client(), clock, clock.advance, math.inf)
    client = FakeClient(Target("single", {}), clock=clock, **settings)
    client._driver = driver
    return client, driver

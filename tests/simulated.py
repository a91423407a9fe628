"""A real server whose clock the test moves: shardq's own script, of which only what `TIME` answers is another.

Each call sends the time of the clock, as `shardq.testing.fake` does on its imitation; the commands, their atomicity and
the data are the server's own. A worker may be killed at any of its calls: before the server has it, or when it has it
and the answer is lost.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from shardq.drivers import Target
from shardq.ops.queue.steps import Call, Refused, Step, Underreplicated
from shardq.protocol.script import Script
from shardq.testing import ManualClock
from shardq.testing.fake import FakeClient, FakeDriver
from tests.servers import Server

Hook = Callable[[Step, bool], None]
"""Called with each step, before it is done (False) and after it (True); it may raise `Killed`."""


class Killed(BaseException):
    """The process ends here: nothing of it runs any more."""


@lru_cache(8)
def _text(script: Script) -> tuple[str, str]:
    """The script with another clock, whose time is in the last two of ARGV; and its digest."""
    body = script.source.partition("\n")[2]
    text = f"""
local micros = table.remove(ARGV)
local seconds = table.remove(ARGV)
local clocked = {{}}
for name, value in pairs(redis) do clocked[name] = value end
clocked.call = function(command, ...)
  if command == 'TIME' then return {{seconds, micros}} end
  return redis.call(command, ...)
end
return (function(redis)
{body}
end)(clocked)
"""
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class ClockedDriver(FakeDriver):
    """Runs operations on a real server by the time of a clock."""

    hook: Hook | None = None

    def _evaluated(self, call: Call) -> Any:
        text, digest = _text(call.script)
        words = (len(call.keys), *call.keys, *call.args, *self._now())
        try:
            reply = self._sent("EVALSHA", digest, *words)
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            reply = self._sent("EVAL", text, *words)
        if call.replicas:
            raise Underreplicated(reply, 0)
        return reply

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

"""A `Client` that runs shardq's own scripts on fakeredis, an imitation of a Redis server in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import redis

from shardq.client import Client
from shardq.clock import Clock, SystemClock
from shardq.drivers import Driver, Target
from shardq.drivers.failures import refusal
from shardq.drivers.wire import waiting_for
from shardq.errors import ConfigError
from shardq.ops.queue.steps import Armed, Ask, Batch, Call, Refused, Sendable, Share, Sleep, Step, Underreplicated, Wait
from shardq.ops.read.waiting import waiting_of
from shardq.protocol.script import Script
from shardq.testing.clock import ManualClock

POLL = 0.005
_PREAMBLE = """
redis.shardq = redis.shardq or {}
if not redis.sha1hex then
  redis.sha1hex = function(text)
    local sum = 0
    for at = 1, #text do sum = (sum * 65599 + string.byte(text, at)) % 4294967296 end
    return string.rep(string.format('%08x', sum), 5)
  end
end
"""
"""A place for compiled scripts, and a replacement for `redis.sha1hex`, which fakeredis lacks: another hash with as many
digits. Scripts use the hash only to spread shard keys over buckets of an index, so any hash will do.
"""
_PLAIN = "return redis.call(unpack(ARGV))"
"""Runs a plain command about a queue: redis-py would read its reply. Other commands are about the server."""
_INFO = b"redis_version:7.0.0\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"


def fake_client(
    *,
    server: Any = None,
    clock: Clock | None = None,
    wait: Callable[[float], object] | None = None,
    **settings: Any,
) -> Client:
    """A `Client` that needs no server. *settings* are those of `Client.from_url`.

    *server* is a `fakeredis.FakeServer`; clients with the same server share their data. With a `ManualClock` the
    imitated server takes its time from the clock, and a call that waits moves the clock on instead of sleeping. *wait*
    replaces this, or `time.sleep`, by a function of its own.
    """
    clock = clock or SystemClock()
    if wait is None:
        wait = clock.advance if isinstance(clock, ManualClock) else time.sleep
    poll = math.inf if isinstance(clock, ManualClock) else POLL  # nobody else moves a ManualClock, so one wait suffices
    driver = FakeDriver(_connected(server), clock, wait, poll)  # first, because it raises if fakeredis is missing
    client = Client(Target("single", {}), clock=clock, **settings)
    client._driver = driver
    return client


def _connected(server: Any) -> redis.Redis:
    try:
        import fakeredis
        import lupa  # noqa: F401 - fakeredis runs scripts with it
    except ImportError:
        raise ConfigError('fake_client needs fakeredis with Lua: pip install "fakeredis[lua]"') from None
    return fakeredis.FakeRedis(server=server or fakeredis.FakeServer(), protocol=2)


class FakeDriver(Driver):
    """Runs operations on fakeredis, and imitates what it lacks: `#!lua`, EVAL_RO, `sha1hex` and blocking reads."""

    def __init__(self, connection: redis.Redis, clock: Clock, wait: Callable[[float], object], poll: float) -> None:
        super().__init__(Target("single", {}), max_connections=1, block=0, clock=clock)
        self._connection, self._wait, self._poll = connection, wait, poll

    def call(self, call: Sendable) -> Any:
        """Make *call*, and return its reply."""
        return self.perform(call.call)

    def attempt(self, step: Call | Batch) -> Any:
        """Perform *step*. Return its reply, or its failure."""
        return self._outcome(step) if isinstance(step, Call) else self.perform(step)

    def perform(self, step: Step) -> Any:
        """Perform *step* on fakeredis; its reply."""
        match step:
            case Call():
                return self._evaluated(step)
            case Batch():
                return [self._outcome(call.call) for call in step.calls]
            case Share():
                return self.sharing.run(step.coalescer, step.item, step.until)
            case Wait():
                return self._waited(step)
            case Armed():
                raise TypeError("fakeredis never blocks")
            case Ask():
                if step.key is not None:
                    return self._sent("EVAL", _PLAIN, 1, step.key, *step.words)
                return _INFO if step.words == ("INFO",) else []
            case Sleep():
                return self._wait(step.seconds)

    def _evaluated(self, call: Call) -> Any:
        script, now = call.script, divmod(round(self._clock.wall() * 1_000_000), 1_000_000)
        words = (len(call.keys), *call.keys, *call.args, *now)
        try:
            reply = self._sent("EVAL", f"{_unless_known(script)}\n{_run(script)}", *words)
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            reply = self._sent("EVAL", f"{_compiled(script)}\n{_run(script)}", *words)
        if call.replicas:
            raise Underreplicated(reply, 0)
        return reply

    def _outcome(self, call: Call) -> Any:
        try:
            return self._evaluated(call)
        except (Refused, Underreplicated) as failure:
            return failure

    def _waited(self, step: Wait) -> Any:
        """Poll for a notification until there is one, or until it is time to read again."""
        clock, state, waiter = self._clock, step.state, step.waiter
        until = min(waiter.until, waiter.wake_at, clock.monotonic() + state.wait_slice)
        if waiter.waiting is not waiting_of(state):  # for a result: whoever waits looks for itself after a while
            return self._wait(max(0.0, min(self._poll, until - clock.monotonic())))
        command = waiting_for(state.keys.notifications, 1, None)
        while not self._sent(*command) and (left := until - clock.monotonic()) > 0:
            self._wait(min(self._poll, left))
        return None

    def _sent(self, *words: Any) -> Any:
        try:
            return self._connection.execute_command(*words)  # type: ignore[no-untyped-call, unused-ignore]
        except redis.RedisError as error:
            raise refusal(error) or Refused("ERR", str(error)) from error


def _unless_known(script: Script) -> str:
    """Lua that ends with NOSCRIPT unless the server has compiled *script*."""
    return f"if not (redis.shardq or {{}})['{script.sha}'] then return redis.error_reply('NOSCRIPT') end"


def _compiled(script: Script) -> str:
    """Lua that makes *script* a function of a `redis` with another clock. fakeredis would compile it for each call.

    It has no `#!lua` line, which fakeredis does not know.
    """
    body = script.source.partition("\n")[2]
    return f"{_PREAMBLE}redis.shardq['{script.sha}'] = function(redis)\n{body}\nend"


def _run(script: Script) -> str:
    """Lua that runs the compiled *script*. What TIME is to say are the last two of ARGV, which the script does not see.

    So the text is the same for all calls: fakeredis keeps each text that it was ever sent.
    """
    return f"""
local micros = table.remove(ARGV)
local seconds = table.remove(ARGV)
local function call(command, ...)
  if command == 'TIME' then return {{seconds, micros}} end
  return redis.call(command, ...)
end
local clocked = {{}}
for name, value in pairs(redis) do clocked[name] = value end
clocked.call = call
return redis.shardq['{script.sha}'](clocked)
"""

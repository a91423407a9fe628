"""Clients that run shardq's own scripts on fakeredis, an imitation of a Redis server in this process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeGuard, cast

import redis

from shardq.arguments import check_clock, check_known, function, of_type
from shardq.client import AsyncClient, Client
from shardq.client.base import BaseClient, ClientSettings
from shardq.clock import Clock, SystemClock
from shardq.drivers import AsyncDriver, Driver, Target
from shardq.drivers.failures import refusal
from shardq.drivers.wire import waiting_for
from shardq.errors import ConfigError
from shardq.ops.queue.steps import (
    MORE_KEYS,
    Armed,
    Ask,
    Batch,
    Call,
    Refused,
    Sendable,
    Share,
    Sleep,
    Step,
    Underreplicated,
    Wait,
)
from shardq.ops.read.waiting import waiting_of
from shardq.protocol.library import Library
from shardq.protocol.script import Script
from shardq.testing.clock import ManualClock
from shardq.timing import LoopTimer

POLL_INTERVAL = 0.005
_PREAMBLE = """
redis.shardq = redis.shardq or {}
if not redis.sha1hex then
  redis.sha1hex = function(text)
    local sum = 0
    for at = 1, #text do sum = (sum * 65599 + string.byte(text, at)) % 4294967296 end
    return string.rep(string.format('%08x', sum), 5)
  end
end
local clocked = {}
for name, value in pairs(redis) do clocked[name] = value end
function clocked.call(command, ...)
  if command == 'TIME' then return redis.shardq.time end
  return redis.call(command, ...)
end
function clocked.register_function(verb) redis.shardq[verb.function_name] = verb.callback end
"""
"""The parts that fakeredis lacks: a place for functions, a `redis` with another clock, and `redis.sha1hex`. That one
here is another hash with as many digits: scripts use it only to spread shard keys over buckets of an index.
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
    imitated server takes its time from the clock, and a call that waits moves the clock on instead of sleeping, unless
    the clock runs. *wait* replaces this, or `time.sleep`, by a function of its own.

    ConfigError for a bad setting, or if fakeredis is not installed.

    >>> clock = ManualClock()
    >>> queue = fake_client(clock=clock).queue("jobs", visibility_timeout=30)
    >>> message_id = queue.write("hello", shard_key="acme")
    >>> delivery = queue.read()
    >>> clock.advance(30)
    >>> delivery.lost, queue.read().count
    (True, 2)
    """
    check_known("Client", settings, ClientSettings.__annotations__)
    driver = _driver(server, clock, wait)  # first, because it raises if fakeredis is missing
    client = FakeClient(Target("single", {}), clock=driver.clock, **settings)
    client._driver = driver
    return client


def fake_async_client(*, server: Any = None, clock: Clock | None = None, **settings: Any) -> AsyncClient:
    """The twin of `fake_client` for asyncio: an `AsyncClient` that needs no server.

    Each call blocks the event loop for as long as the imitated server takes, and tasks that wait let others run.

    ConfigError for a bad setting, or if fakeredis is not installed.

    >>> queue = fake_async_client().queue("jobs", create=True)
    >>> message_id = await queue.write("hello", shard_key="acme")
    >>> await queue.len()
    1
    """
    check_known("AsyncClient", settings, ClientSettings.__annotations__)
    driver = _driver(server, clock, None)
    client = FakeAsyncClient(Target("single", {}), clock=driver.clock, **settings)
    client.driver = driver
    client._driver = AsyncFakeDriver(driver, client.timer)
    return client


def _driver(server: Any, clock: Clock | None, wait: Callable[[float], object] | None) -> FakeDriver:
    clock = SystemClock() if clock is None else clock
    check_clock(clock)
    if wait is not None:
        function("wait", wait)
    else:
        wait = clock.advance if _stands(clock) else time.sleep
    poll = math.inf if _stands(clock) else POLL_INTERVAL  # nobody else moves such a clock, so one wait suffices
    return FakeDriver(_connected(server), clock, wait, poll)


def _stands(clock: Clock) -> TypeGuard[ManualClock]:
    return isinstance(clock, ManualClock) and not clock.runs


class FakeClient(Client):
    """A `Client` of fakeredis."""

    def lend(self, client: BaseClient) -> None:
        """Let a client beside this one use the same imitation of a server."""
        _lend(cast("FakeDriver", self._driver), client)


class FakeAsyncClient(AsyncClient):
    """An `AsyncClient` of fakeredis."""

    driver: FakeDriver

    def lend(self, client: BaseClient) -> None:
        """Do as that of `FakeClient`: a worker reads by a `Client`, in threads."""
        _lend(self.driver, client)


def _lend(driver: FakeDriver, client: BaseClient) -> None:
    if isinstance(client, AsyncClient):
        client._driver = AsyncFakeDriver(driver.again(), client.timer)
    else:
        cast("Client", client)._driver = driver.again()


def fake_server() -> Any:
    """Return a `fakeredis.FakeServer`, which several clients may share. ConfigError if there is no fakeredis."""
    try:
        import fakeredis
        import lupa  # noqa: F401 - fakeredis runs scripts with it
    except ImportError:
        raise ConfigError('fake_client needs fakeredis with Lua: pip install "fakeredis[lua]"') from None
    return fakeredis.FakeServer()


def _connected(server: Any) -> redis.Redis:
    new = fake_server()
    import fakeredis

    if server is not None:
        of_type("server", server, fakeredis.FakeServer, "a fakeredis.FakeServer")
    return fakeredis.FakeRedis(server=server or new, protocol=2)


class FakeDriver(Driver):
    """Runs operations on fakeredis, and imitates what it lacks: `#!lua`, EVAL_RO, `sha1hex` and blocking reads."""

    def __init__(self, connection: redis.Redis, clock: Clock, wait: Callable[[float], object], poll: float) -> None:
        super().__init__(Target("single", {}), max_connections=1, block=0, clock=clock)
        self.clock, self._connection, self._wait, self._poll = clock, connection, wait, poll

    def again(self) -> FakeDriver:
        """Return another driver for the same imitation of a server."""
        return FakeDriver(self._connection, self._clock, self._wait, self._poll)

    def call(self, call: Sendable) -> Any:
        """Make *call*, and return its reply."""
        return self.perform(call.call)

    def attempt(self, step: Sendable | Batch) -> Any:
        """Perform *step*. Return its reply, or its failure."""
        return self.perform(step) if isinstance(step, Batch) else self._outcome(step.call)

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
            case Ask(words=("TIME",)):
                return self._now()
            case Ask():
                if step.key is not None:
                    return self._sent("EVAL", _PLAIN, 1, step.key, *step.words)
                return _INFO if step.words == ("INFO",) else []
            case Sleep():
                return self._wait(step.seconds)

    def _evaluated(self, call: Call) -> Any:
        try:
            reply = self._ran(call)
        except Refused as refused:
            if refused.code != MORE_KEYS:
                raise
            reply = self._ran(call.whole())
        if call.replicas:
            raise Underreplicated(reply, 0)
        return reply

    def _ran(self, call: Call) -> Any:
        script = call.script
        words = (len(call.keys), *call.keys, *call.args, *self._now())
        try:
            return self._sent("EVAL", f"{_unless_known(script)}\n{_run(script)}", *words)
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            return self._sent("EVAL", f"{_loaded(script.library)}\n{_run(script)}", *words)

    def _now(self) -> tuple[int, int]:
        """The answer to TIME: seconds and microseconds, by the clock."""
        return divmod(round(self._clock.wall() * 1_000_000), 1_000_000)

    def _outcome(self, call: Call) -> Any:
        try:
            return self._evaluated(call)
        except (Refused, Underreplicated) as failure:
            return failure

    def _waited(self, step: Wait) -> None:
        for seconds in self.pauses(step):
            self._wait(seconds)

    def pauses(self, step: Wait) -> Iterator[float]:
        """Yield how long to wait before the next look for a notification, until there is one or it is time to read."""
        clock, state, waiter = self._clock, step.state, step.waiter
        until = min(waiter.until, waiter.wake_at, clock.monotonic() + state.wait_slice)
        if waiter.waiting is not waiting_of(state):  # for a result: a waiter looks for itself after a while
            yield max(0.0, min(self._poll, until - clock.monotonic()))
            return
        command = waiting_for(state.keys.notifications, 1, None)
        while not self._sent(*command) and (left := until - clock.monotonic()) > 0:
            yield min(self._poll, left)

    def _sent(self, *words: Any) -> Any:
        try:
            return self._connection.execute_command(*words)  # type: ignore[no-untyped-call, unused-ignore]
        except redis.RedisError as error:
            raise refusal(error) or Refused("ERR", str(error)) from error


class AsyncFakeDriver(AsyncDriver):
    """Runs the operations of an event loop on the imitation of a server that *driver* has."""

    def __init__(self, driver: FakeDriver, timer: LoopTimer) -> None:
        super().__init__(Target("single", {}), max_connections=1, block=0, timer=timer, clock=driver.clock)
        self._fake = driver

    def call(self, call: Sendable) -> Coroutine[Any, Any, Any]:
        """Make *call*. Await its reply."""
        return self._perform(call.call)

    async def _perform(self, step: Step) -> Any:
        match step:
            case Share():
                return await self.sharing.run(step.coalescer, step.item, step.until)
            case Wait():
                for seconds in self._fake.pauses(step):
                    await self._sleep(seconds)
                return None
            case Sleep():
                return await self._sleep(step.seconds)
            case _:
                return self._fake.perform(step)

    async def _sleep(self, seconds: float) -> None:
        """Let other tasks run for this many seconds; on a clock that stands, for a moment after it was moved on."""
        clock = self._fake.clock
        if _stands(clock):
            clock.advance(seconds)
            seconds = 0.0
        await asyncio.sleep(seconds)


def _unless_known(script: Script) -> str:
    """Lua that ends with NOSCRIPT unless the server has loaded the library of *script*."""
    return f"if not (redis.shardq or {{}})['{script.function}'] then return redis.error_reply('NOSCRIPT') end"


def _loaded(library: Library) -> str:
    """Lua that loads *library*, as servers do: its text runs once. It has no `#!lua` line, which fakeredis lacks."""
    body = library.text.partition("\n")[2]
    return f"{_PREAMBLE}\n(function(redis)\n{body}\nend)(clocked)"


def _run(script: Script) -> str:
    """Lua that runs the verb of *script*. The reply of TIME is in the last two of ARGV, which the verb does not see.

    So the text is the same for all calls: fakeredis keeps each text that it was ever sent. A refusal is an error that
    is a table, which fakeredis does not know.
    """
    return f"""
local micros = table.remove(ARGV)
redis.shardq.time = {{table.remove(ARGV), micros}}
local has_ended, reply = pcall(redis.shardq['{script.function}'], KEYS, ARGV)
if has_ended or type(reply) == 'table' then return reply end
error(reply, 0)
"""

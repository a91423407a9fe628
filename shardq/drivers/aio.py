"""The driver for asyncio: the twin of `sync`, with `await` in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import redis.asyncio as redis
import redis.asyncio.sentinel as sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from shardq.clock import Clock, SystemClock
from shardq.drivers.failures import LOST, Redirected, refusal, unconnected
from shardq.drivers.pumping import Line, Pumping, exchange, peer_of
from shardq.drivers.silence import HeardParser
from shardq.drivers.target import Address, Target
from shardq.drivers.topology import Topology, by_owner
from shardq.drivers.turns import LEAST, AsyncTurns, Crowded
from shardq.drivers.wire import (
    BLOCK_MARGIN,
    CLOSED_MEANWHILE,
    COMMAND_TIMEOUT,
    CONNECT_TIMEOUT,
    Command,
    Whole,
    armed,
    commands_of,
    judged,
    settings,
    unknown,
)
from shardq.errors import ClosedError
from shardq.keys import slot
from shardq.ops.steps import Armed, Ask, Batch, Call, Op, Refused, Sleep, Step, Unanswered, Underreplicated, Wait

T = TypeVar("T")
Pool = redis.ConnectionPool
REDIRECTIONS = 5
GREETING_TIMEOUT = 10.0
"""Seconds for a connection to be made and greeted, by a loop that may be busy."""


class AsyncDriver:
    """Runs operations on one event loop."""

    def __init__(
        self,
        target: Target,
        *,
        max_connections: int,
        block: float,
        timeout: float = COMMAND_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        self._target = target
        self._max_connections = max_connections
        self._block = block
        self._timeout = min(timeout, COMMAND_TIMEOUT)
        self._clock = clock or SystemClock()
        self._pools: dict[tuple[Address | None, bool], Pool] = {}
        self._turns: dict[Address | None, AsyncTurns] = {}
        self._sentinels: list[redis.Redis] = []
        self._topology = Topology(target.addresses) if target.kind == "cluster" else None
        self._pumping = Pumping(self)
        self._may_unblock = True
        self._closed = False

    async def run(self, op: Op[T]) -> T:
        """Run *op* to its end; what it returns."""
        with closing(op):
            resume: Callable[[Any], Step] = op.send
            value: Any = None
            while True:
                try:
                    step = resume(value)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                try:
                    resume, value = op.send, await self._perform(step)
                except (Refused, Unanswered, Underreplicated) as failure:
                    resume, value = op.throw, failure

    async def aclose(self) -> None:
        """End what reads on behalf of others, and close every connection."""
        await self._pumping.aclose()
        self._closed = True
        for pool in list(self._pools.values()):
            await pool.disconnect()
        for each in self._sentinels:
            await each.aclose()

    async def _perform(self, step: Step) -> Any:
        match step:
            case Call():
                return await self._call(step, step.until)
            case Batch():
                return await self._batch(step.calls, step.until)
            case Wait():
                return await self._pumping.wait(step.waiter)
            case Armed():
                return await self._pumping.armed(step)
            case Ask():
                return (await self._route(step.key, (step.words,), step.until))[0]
            case Sleep():
                return await asyncio.sleep(step.seconds)

    async def arm(self, step: Armed) -> Line:
        """As `Driver.arm`."""
        address = None if self._topology is None else self._topology.owner(slot(step.key))
        pool = self._pool(address, True)
        try:
            connection = await _connected(pool)
        except Unanswered:
            if self._topology is not None and address is not None:
                self._topology.lost(slot(step.key), address)
            raise
        limit = step.milliseconds / 1000 + BLOCK_MARGIN
        return Line(pool, connection, armed(step), limit, self._is_closed, address)

    async def unblock(self, line: Line) -> None:
        """As `Driver.unblock`."""
        if not self._may_unblock or line.number is None:
            return
        until = self._clock.monotonic() + CONNECT_TIMEOUT
        command: Command = ("CLIENT", "UNBLOCK", line.number)
        try:
            with await self._turn(line.address, until):
                (reply,) = await self._answers(line.address, (command,), until, server=line.server)
        except (Refused, Unanswered):
            return
        if isinstance(reply, Refused):
            self._may_unblock = reply.code not in ("NOPERM", "ERR")

    def _is_closed(self) -> bool:
        return self._closed

    async def _call(self, call: Call, until: float) -> Any:
        limit = self._limit(until) if call.replicas else self._timeout
        whole = partial(commands_of, call, by_source=True, timeout=limit)
        try:
            commands = commands_of(call, by_source=False, timeout=limit)
            replies = await self._route(call.keys[0], commands, until, whole)
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            replies = await self._route(call.keys[0], whole(), until)
        outcome = judged(call, replies)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _batch(self, calls: tuple[Call, ...], until: float) -> list[Any]:
        """The outcome of each call: those for one node go together; those that were sent elsewhere, by themselves."""
        outcomes: list[Any] = [None] * len(calls)
        limit = self._limit(until)
        for address, places in by_owner(self._topology, calls).items():
            sent = [commands_of(calls[at], by_source=False, timeout=limit) for at in places]
            try:
                replies = iter(await self._replies(address, tuple(chain(*sent)), until))
                for at, commands in zip(places, sent, strict=True):
                    outcomes[at] = judged(calls[at], [next(replies) for _ in commands])
            except (Refused, Unanswered) as failure:
                for at in places:
                    outcomes[at] = failure
                    if self._topology and address and _unreached(failure):
                        self._topology.lost(slot(calls[at].keys[0]), address)
        for at, outcome in enumerate(outcomes):
            outcomes[at] = await self._again(calls[at], outcome, until)
        return outcomes

    async def _again(self, call: Call, outcome: Any, until: float) -> Any:
        """The outcome of a call by itself, if it only needs its source, or another node."""
        if not isinstance(outcome, Refused) or outcome.code not in ("NOSCRIPT", "MOVED", "ASK"):
            return outcome
        try:
            return await self._call(call, until)
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    async def _route(
        self, key: str | None, commands: tuple[Command, ...], until: float, whole: Whole | None = None
    ) -> list[Any]:
        """Send *commands* to the node that owns *key*, following redirections; *whole* as `_replies`."""
        if self._topology is None:
            return await self._exchange(None, commands, until, whole)
        number = slot(key or "")
        address, asking = self._topology.owner(number), False
        for _ in range(REDIRECTIONS):
            try:
                return await self._exchange(address, commands, until, None if asking else whole, asking=asking)
            except Redirected as to:
                asking = to.code == "ASK"
                address = (to.address[0] or address[0], to.address[1])
                (self._topology.seen(address) if asking else self._topology.moved(number, address))
            except Unanswered as failure:
                if _unreached(failure):
                    self._topology.lost(number, address)
                raise
        raise Refused("TRYAGAIN", "the slot's owner kept changing")

    async def _exchange(
        self,
        address: Address | None,
        commands: tuple[Command, ...],
        until: float,
        whole: Whole | None = None,
        *,
        asking: bool = False,
    ) -> list[Any]:
        """As `_replies`; raises a refusal of the first command. What comes after it is for the caller to judge."""
        if asking:
            commands = (("ASKING",), *commands)
        replies = await self._replies(address, commands, until, whole)
        for reply in replies[: 1 + asking]:
            if isinstance(reply, Refused):
                raise reply
        return replies[1:] if asking else replies

    async def _replies(
        self, address: Address | None, commands: tuple[Command, ...], until: float, whole: Whole | None = None
    ) -> list[Any]:
        """As `Driver._replies`."""
        with await self._turn(address, until):
            replies = await self._answers(address, commands, until)
            return await self._answers(address, whole(), until) if whole and unknown(replies) else replies

    async def _answers(
        self, address: Address | None, commands: tuple[Command, ...], until: float, server: Any = None
    ) -> list[Any]:
        """As `Driver._answers`."""
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        pool = self._pool(address, False)
        connection = await _connected(pool, max(LEAST, until - self._clock.monotonic()))
        if server is not None and peer_of(connection) != server:
            await pool.release(connection)
            raise Unanswered("another server has taken its place", sent=False)
        limit = self._limit(until)
        return await exchange(pool, connection, commands, limit, [], self._is_closed, silence=self._timeout)

    async def _turn(self, address: Address | None, until: float) -> AsyncTurns:
        """Wait for one of the connections to *address*."""
        turns = self._turns.get(address)
        if turns is None:
            turns = self._turns.setdefault(address, AsyncTurns(self._max_connections))
        if not await turns.at_once():
            await turns.take(max(LEAST, until - self._clock.monotonic()))
        return turns

    def _limit(self, until: float) -> float:
        """Seconds within which a try is to be answered whose caller gives up at *until*."""
        return min(self._timeout, max(LEAST, until - self._clock.monotonic()))

    def _pool(self, address: Address | None, blocking: bool) -> Pool:
        pool = self._pools.get((address, blocking))
        if pool is None:
            pool = self._pools.setdefault((address, blocking), self._make(address, blocking))
        return pool

    def _make(self, address: Address | None, blocking: bool) -> Pool:
        target = self._target
        chosen = settings(target, block=self._block if blocking else None, timeout=self._timeout)
        chosen |= {"retry": Retry(NoBackoff(), 0), "socket_timeout": None, "parser_class": HeardParser}
        if target.kind == "sentinel":
            return self._sentinel_pool(chosen)
        if address is not None:
            chosen |= {"host": address[0], "port": address[1]}
        if "path" in chosen:
            chosen["connection_class"] = redis.UnixDomainSocketConnection
        elif target.tls:
            chosen["connection_class"] = redis.SSLConnection
        return redis.ConnectionPool(max_connections=2**31, **chosen)  # those for commands are counted by turns

    def _sentinel_pool(self, chosen: dict[str, Any]) -> Pool:
        target = self._target
        sentinels = sentinel.Sentinel(
            list(target.addresses), sentinel_kwargs={"socket_timeout": CONNECT_TIMEOUT, "protocol": 2}
        )
        self._sentinels += sentinels.sentinels
        kind = sentinel.SentinelManagedSSLConnection if target.tls else sentinel.SentinelManagedConnection
        return sentinel.SentinelConnectionPool(
            target.service, sentinels, connection_class=kind, max_connections=2**31, **chosen
        )


async def _connected(pool: Pool, seconds: float = GREETING_TIMEOUT) -> Any:
    try:
        async with asyncio.timeout(
            min(seconds, GREETING_TIMEOUT)
        ):  # a server that hangs takes connections, and never greets
            return await pool.get_connection()
    except LOST as error:
        raise unconnected(error) from error
    except ResponseError as error:
        raise refusal(error) or error from error


def _unreached(failure: Refused | Unanswered) -> bool:
    """Whether a node may be gone, and not only all connections to it busy."""
    return isinstance(failure, Unanswered) and not isinstance(failure, Crowded)

"""The driver for asyncio: the twin of `sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from contextlib import closing
from typing import Any, TypeVar

import redis.asyncio as redis
from redis.exceptions import ResponseError

from shardq.clock import Clock, SystemClock
from shardq.drivers.async_link import LARGE, AsyncLink
from shardq.drivers.async_links import AsyncLinks
from shardq.drivers.async_sharing import AsyncSharing
from shardq.drivers.exchanges import Exchange, Exchanges
from shardq.drivers.failures import LOST, Redirected, refusal, unconnected
from shardq.drivers.permits import AsyncPermits
from shardq.drivers.pools import Pools
from shardq.drivers.pumping import PendingRead, Pumping
from shardq.drivers.shared_links import SharedLinks
from shardq.drivers.target import Address, Target
from shardq.drivers.topology import Topology
from shardq.drivers.wire import BLOCK_MARGIN, CLOSED_MEANWHILE, COMMAND_TIMEOUT, Command, armed, explained, packed
from shardq.errors import ClosedError
from shardq.ops.queue.steps import (
    Armed,
    Ask,
    Batch,
    Call,
    Op,
    Refused,
    Sendable,
    Share,
    Sleep,
    Step,
    Unanswered,
    Underreplicated,
    Wait,
)
from shardq.ops.sharing.coalescing import Coalescer, Part
from shardq.timing import LoopTimer

I = TypeVar("I")  # noqa: E741 (an item of a call that is shared)
T = TypeVar("T")
S = TypeVar("S")
Pool = redis.ConnectionPool
GREETING_TIMEOUT = 10.0
"""Seconds in which a connection must be made, including AUTH and similar commands; the event loop may be busy."""


class AsyncDriver:
    """Runs operations on one event loop."""

    def __init__(
        self,
        target: Target,
        *,
        max_connections: int,
        block: float,
        timer: LoopTimer,
        timeout: float = COMMAND_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._timeout = min(timeout, COMMAND_TIMEOUT)
        # With a socket_timeout redis-py would swallow cancellations on Python 3.11 (cpython #86296).
        self._pools = Pools(redis, target, block=block, timeout=self._timeout, socket_timeout=None)
        self._links = AsyncLinks(self._pools, _connect, self._timeout)
        self._shared = SharedLinks(self._pools, self._links, GREETING_TIMEOUT)
        # One connection is shared, and the others are for what cannot be sent on it. A single one is never shared.
        self._shareable = LARGE if max_connections > 1 else 0
        self._max_connections = max(1, max_connections - 1)
        self._permits: dict[Address | None, AsyncPermits] = {}
        topology = Topology(target.addresses) if target.kind == "cluster" else None
        self._exchanges = Exchanges(topology, self._clock, self._timeout)
        self._pumping = Pumping(self, timer)
        self._sharing = AsyncSharing(self, timer, self._clock)
        self._closed = False

    async def run(self, op: Op[T]) -> T:
        """Run *op* to its end, and return its result."""
        with closing(op):
            return await drive(op, self._perform)

    async def call(self, call: Sendable) -> Any:
        """Make one try of *call*, as if an operation had yielded it, and return its reply.

        Raises `Refused`, `Unanswered` or `Underreplicated`. The caller gives up at `call.until`.
        """
        if call.replicas:
            return await self._perform(call.call)
        return await self._call(call)

    async def attempt(self, step: Call | Batch) -> Any:
        """Perform *step*, as if an operation had yielded it. Return its reply, or its failure."""
        try:
            return await (self.call(step) if isinstance(step, Call) else self._perform(step))
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    async def share(self, coalescer: Coalescer[I, T], item: I, until: float) -> T:
        """Make a call for *item*, alone or with others on *coalescer*. Return its result, or raise its error."""
        return await self._sharing.run(coalescer, item, until)

    async def share_all(self, parts: Sequence[Part], until: float) -> list[Any]:
        """Do as `share` for all *parts* at once. Return for each its result or its error."""
        return await self._sharing.run_all(parts, until)

    def post(
        self,
        coalescer: Coalescer[I, T],
        item: I,
        until: float,
        lane: Hashable,
        tell: Callable[[T | Exception], object],
    ) -> None:
        """Make a call for *item*, alone or with others, after those of its *lane*. `tell` gets its result or error."""
        self._sharing.post(coalescer, item, until, lane, tell)

    def leave(self, coalescer: Coalescer[Any, Any]) -> None:
        """End what `coalescer.enter()` has begun: those who wait there may make a call."""
        self._sharing.leave(coalescer)

    async def aclose(self) -> None:
        """End all blocked reads, and close every connection."""
        # Blocked reads first: they give back what they were granted, for which they need connections.
        await self._pumping.aclose()
        self._closed = True
        self._links.close()
        for pool in list(self._pools.values()):
            await pool.disconnect()
        for sentinel in self._pools.sentinels:
            await sentinel.aclose()
        await self._sharing.aclose()

    async def _perform(self, step: Step) -> Any:
        match step:
            case Call() if not step.replicas:
                return await self._call(step)
            case Batch() if step.once:
                return await self._pair(step)
            case Call() | Batch() | Ask():
                return await drive(self._exchanges.of(step), self._carry_out)
            case Share():
                return await self.share(step.coalescer, step.item, step.until)
            case Wait():
                return await self._pumping.wait(step)
            case Armed():
                return await self._pumping.armed(step)
            case Sleep():
                return await asyncio.sleep(step.seconds)

    async def arm(self, step: Armed) -> PendingRead:
        """Connect to the node that owns the queue of *step*. Return the armed read, which has not been sent yet."""
        address = self._exchanges.owner(step.key)
        try:
            link = await self._links.take((address, True), GREETING_TIMEOUT)
        except Unanswered as failure:
            self._exchanges.lost(step.key, address, failure)
            raise
        limit = step.block_ms / 1000 + BLOCK_MARGIN
        commands = armed(step, self._exchanges.forms.of(address))
        return PendingRead(self._links, link, commands, limit, address)

    async def unblock(self, pending: PendingRead) -> None:
        """End the blocking wait of *pending*, as `Exchanges.unblocked` does."""
        await drive(self._exchanges.unblocked(pending.number, pending.address, pending.server), self._carry_out)

    async def _call(self, call: Sendable) -> Any:
        """Make one try of *call* in its common case: one command, and one reply. Return the reply.

        The slow path begins anew where the server cannot run it in this form or another node owns the slot: this one
        executed nothing.
        """
        exchanges, key = self._exchanges, call.key
        address = exchanges.owner(key)
        request = call.request(exchanges.forms.of(address))
        try:
            link = await self._link(address, request, call.until)
            # The shared link is busy with something large, or the call is large: it takes a link of its own.
            if link is None:
                return await drive(exchanges.of(call.call), self._carry_out)
            # Between this and the next line no other task runs, so what is not withdrawn now is sent.
            if call.on_send is not None:
                call.on_send()
            (reply,) = await link.ask(request, 1, exchanges.limit(call.until))
        except Unanswered as failure:
            exchanges.lost(key, address, failure)
            raise
        if isinstance(reply, Redirected) or (isinstance(reply, Refused) and reply.code == "NOSCRIPT"):
            return await drive(exchanges.of(call.call), self._carry_out)
        if isinstance(reply, Refused):
            raise call.call.explain(reply)
        return reply

    async def _pair(self, batch: Batch) -> list[Any]:
        """Make the calls of *batch*, which are of one queue, in one round trip. Return each one's reply or failure."""
        exchanges, key, until = self._exchanges, batch.calls[0].keys[0], batch.until
        address = exchanges.owner(key)
        form = exchanges.forms.of(address)
        request = b"".join([call.request(form) for call in batch.calls])
        try:
            link = await self._link(address, request, until)
            if link is None:
                return await drive(exchanges.of(batch), self._carry_out)
            return explained(batch.calls, await link.ask(request, len(batch.calls), exchanges.limit(until)))
        except (Refused, Unanswered) as failure:
            exchanges.lost(key, address, failure)
            return [failure] * len(batch.calls)

    async def _link(self, address: Address | None, request: bytes, until: float) -> AsyncLink | None:
        """Return the shared link to *address*; None if *request* must go over a link of its own."""
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        if len(request) > self._shareable:
            return None
        link = self._shared.get(address)
        if link is None:
            link = await self._shared.open(address, self._exchanges.left(until))
        return link if link.is_free() else None

    async def _carry_out(self, exchange: Exchange) -> list[Any]:
        """Send the commands of *exchange*, and what must follow. Return the answers."""
        commands = exchange.commands
        if all(command[0] != "WAIT" for command in commands):  # it speaks of what its own connection wrote
            while (answers := await self._answers_shared(exchange, commands)) is not None:
                commands = exchange.follow_up(answers)
                if not commands:
                    return answers
        with await self._permit(exchange.address, exchange.until):
            while True:
                answers = await self._answers(exchange, commands)
                commands = exchange.follow_up(answers)
                if not commands:
                    return answers

    async def _answers_shared(self, exchange: Exchange, commands: tuple[Command, ...]) -> list[Any] | None:
        """Make one round trip on the shared link, and return the answers; None if that cannot be."""
        request = packed(commands)
        link = await self._link(exchange.address, request, exchange.until)
        return None if link is None else await self._ask(link, exchange, request, len(commands))

    async def _answers(self, exchange: Exchange, commands: tuple[Command, ...]) -> list[Any]:
        """Make one round trip on a link that nobody else uses meanwhile, and return the answers."""
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        place = exchange.address, False
        link = await self._links.take(place, self._exchanges.left(exchange.until))
        try:
            return await self._ask(link, exchange, packed(commands), len(commands))
        finally:
            self._links.give(place, link)

    async def _ask(self, link: AsyncLink, exchange: Exchange, request: bytes, count: int) -> list[Any]:
        """Send *request* for *exchange* on *link*, and return its *count* answers."""
        if exchange.server is not None and link.peer != exchange.server:
            raise Unanswered("another server is at this address now", sent=False)
        if exchange.on_send is not None:
            exchange.on_send()
        return await link.ask(request, count, self._exchanges.limit(exchange.until))

    async def _permit(self, address: Address | None, until: float) -> AsyncPermits:
        """Wait for the right to use one of the connections to *address*."""
        permits = self._permits.get(address)
        if permits is None:
            permits = self._permits.setdefault(address, AsyncPermits(self._max_connections))
        if not await permits.at_once():
            await permits.take(self._exchanges.left(until))
        return permits


async def drive(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """Run a generator: *perform* each step that it yields, and send it the reply or throw the failure in.

    Return what the generator returns.
    """
    resume: Callable[[Any], S] = steps.send
    value: Any = None
    while True:
        try:
            step = resume(value)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        try:
            resume, value = steps.send, await perform(step)
        except (Refused, Unanswered, Underreplicated) as failure:
            resume, value = steps.throw, failure


async def _connect(pool: Pool, seconds: float) -> Any:
    try:
        # A server that hangs accepts connections, but never answers AUTH or CLIENT SETNAME.
        async with asyncio.timeout(min(seconds, GREETING_TIMEOUT)):
            return await pool.get_connection()
    except LOST as error:
        raise unconnected(error) from error
    except ResponseError as error:
        raise refusal(error) or error from error

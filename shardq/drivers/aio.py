"""The driver for asyncio: the twin of `sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import msgspec
import redis.asyncio as redis
from redis.exceptions import ResponseError

from shardq.clock import Clock, SystemClock
from shardq.drivers.async_link import LARGE_REQUEST_BYTES, AsyncLink
from shardq.drivers.async_links import AsyncLinks
from shardq.drivers.async_sharing import AsyncSharing
from shardq.drivers.exchanges import Exchange, Exchanges, Pending, Together
from shardq.drivers.failures import CONNECTION_ERRORS, Redirected, refusal, unconnected
from shardq.drivers.permits import MIN_TRY, AsyncPermits
from shardq.drivers.pools import Pools
from shardq.drivers.pumping import AsyncPendingRead, Pumping
from shardq.drivers.shared_links import SharedLinks
from shardq.drivers.target import Address, Target
from shardq.drivers.topology import Topology
from shardq.drivers.wire import BLOCK_MARGIN, CLOSED_MEANWHILE, COMMAND_TIMEOUT, Command, armed, explained, packed
from shardq.errors import ClosedError
from shardq.ops.queue.steps import (
    MORE_KEYS,
    Armed,
    Ask,
    Batch,
    Call,
    Late,
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
from shardq.protocol.script import FUNCTION, Form
from shardq.timing import LoopTimer

I = TypeVar("I")  # noqa: E741 (an item of a call that is shared)
T = TypeVar("T")
S = TypeVar("S")
Pool = redis.ConnectionPool
MAX_ROUTES = 4096
"""Routes that are remembered."""

GREETING_TIMEOUT = 10.0
"""Seconds in which a connection must be made, including AUTH and similar commands; the event loop may be busy."""


class AsyncRoute(msgspec.Struct):
    """Where the calls about a key go: a node, the form in which it runs calls, and the shared link to it, once open."""

    address: Address | None
    form: Form
    link: AsyncLink | None = None


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
        self._now = self._clock.monotonic
        self._timeout = min(timeout, COMMAND_TIMEOUT)
        # With a socket_timeout redis-py would swallow cancellations on Python 3.11 (cpython #86296).
        self._pools = Pools(redis, target, block=block, timeout=self._timeout, socket_timeout=None)
        self._links = AsyncLinks(self._pools, _connect, self._timeout)
        self._shared = SharedLinks(self._pools, self._links, GREETING_TIMEOUT)
        # One connection is shared, and the others are for what cannot be sent on it. A single one is never shared.
        self._shareable = LARGE_REQUEST_BYTES if max_connections > 1 else 0
        self._max_connections = max(1, max_connections - 1)
        self._permits: dict[Address | None, AsyncPermits] = {}
        self._routes: dict[str, AsyncRoute] = {}
        # Whether an open shared link may be unfit: it was idle for too long, or sentinels name another master.
        self._ages = target.kind == "sentinel" or bool(self._pools.most_idle)
        topology = Topology(target.addresses) if target.kind == "cluster" else None
        self._exchanges = Exchanges(topology, self._clock, self._timeout)
        self._pumping = Pumping(self, timer)
        self.sharing = AsyncSharing(self, timer, self._clock)
        self._closed = False

    async def run(self, op: Op[T]) -> T:
        """Run *op* to its end, and return its result."""
        try:
            return await drive(op, self._perform)
        finally:
            op.close()

    def call(self, call: Sendable) -> Coroutine[Any, Any, Any]:
        """Make one try of *call*, as if an operation had yielded it. Await its reply.

        That raises `Refused`, `Unanswered` or `Underreplicated`. The caller gives up at `call.until`.
        """
        return self._perform(call.call) if call.replicas else self._call(call)

    async def attempt(self, step: Sendable | Batch) -> Any:
        """Perform *step*, as if an operation had yielded it. Return its reply, or its failure."""
        try:
            return await (self._perform(step) if isinstance(step, Batch) else self.call(step))
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

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
        await self.sharing.aclose()

    async def _perform(self, step: Step) -> Any:
        match step:
            case Call() if not step.replicas:
                return await self._call(step)
            case Batch() if step.once and len(step.calls) == 2:
                return await self._pair(step)
            case Batch():
                return await drive(self._exchanges.of_batch(step), self._carry_out_all)
            case Call() | Ask():
                return await drive(self._exchanges.of(step), self._carry_out)
            case Late():
                return await self._outcomes(step)
            case Share():
                return await self.sharing.run(step.coalescer, step.item, step.until)
            case Wait():
                return await self._pumping.wait(step)
            case Armed():
                return await self._pumping.armed(step)
            case Sleep():
                return await asyncio.sleep(step.seconds)

    async def arm(self, step: Armed) -> AsyncPendingRead:
        """Connect to the node that owns the queue of *step*. Return the armed read, which has not been sent yet."""
        route = self._routes.get(step.key) or self._find_route(step.key)
        try:
            link = await self._links.take((route.address, True), GREETING_TIMEOUT)
        except Unanswered as failure:
            self._lost(step.key, route, failure)
            raise
        limit = step.block_ms / 1000 + BLOCK_MARGIN
        return AsyncPendingRead(self._links, link, armed(step, route.form, link.number), limit, route.address)

    async def unblock(self, pending: AsyncPendingRead) -> None:
        """End the blocking wait of *pending*, as `Exchanges.unblocked` does."""
        await drive(self._exchanges.unblocked(pending.number, pending.address, pending.server), self._carry_out)

    async def _call(self, call: Sendable) -> Any:
        """Make one try of *call* in its common case: one command, and one reply. Return the reply.

        The slow path begins again where the server cannot run it in this form or another node owns the slot: this one
        executed nothing.
        """
        key = call.key
        route = self._routes.get(key) or self._find_route(key)
        request = call.request(route.form)
        try:
            link = await self._link(route, request, call.until)
            # The shared link is busy with something large, or the call is large: it takes a link of its own.
            if link is None:
                return await drive(self._exchanges.of(call.call), self._carry_out)
            # Between this and the next line no other task runs, so what is not withdrawn now is sent.
            if call.on_send is not None:
                call.on_send()
            (reply,) = await link.ask(request, 1, min(self._timeout, max(MIN_TRY, call.until - self._now())))
        except Unanswered as failure:
            self._lost(key, route, failure)
            raise
        if not isinstance(reply, Refused):
            return reply
        if isinstance(reply, Redirected) or reply.code == "NOSCRIPT":
            self._routes.pop(key, None)
            return await drive(self._exchanges.of(call.call), self._carry_out)
        if reply.code == MORE_KEYS:
            return await drive(self._exchanges.of(call.call.whole()), self._carry_out)
        raise call.call.explain(reply)

    async def _pair(self, batch: Batch) -> list[Any]:
        """Make the calls of *batch*, which are of one queue, in one round trip. Return each one's reply or failure."""
        key, until = batch.calls[0].key, batch.until
        route = self._routes.get(key) or self._find_route(key)
        first, second = batch.calls
        request = first.request(route.form) + second.request(route.form)
        try:
            link = await self._link(route, request, until)
            if link is None:
                return await drive(self._exchanges.of_batch(batch), self._carry_out_all)
            answers = await link.ask(request, 2, min(self._timeout, max(MIN_TRY, until - self._now())))
            return explained(batch.calls, answers) if Refused in map(type, answers) else answers
        except (Refused, Unanswered) as failure:
            self._lost(key, route, failure)
            return [failure, failure]

    def _find_route(self, key: str) -> AsyncRoute:
        """Return where calls about *key* go, and remember it until a call fails there."""
        address = self._exchanges.owner(key)
        route = AsyncRoute(address, self._exchanges.forms.of(address))
        if route.form is FUNCTION:  # the other form is for a while only
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            self._routes[key] = route
        return route

    def _lost(self, key: str, route: AsyncRoute, failure: Refused | Unanswered) -> None:
        """Note that a call about *key* ended with *failure*. The next one finds its way again."""
        self._routes.pop(key, None)
        self._exchanges.lost(key, route.address, failure)

    async def _link(self, route: AsyncRoute, request: bytes, until: float) -> AsyncLink | None:
        """Return the shared link of *route*; None if *request* must go over a link of its own."""
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        if len(request) > self._shareable:
            return None
        link = route.link
        if link is None or self._ages or link.closed or link.retired:
            link = route.link = await self._shared.get(route.address, self._exchanges.left(until))
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

    async def _carry_out_all(self, step: Exchange | Together) -> list[Any]:
        """Carry out exchanges with several nodes at once. Return for each its answers or its failure.

        Return the answers to a single exchange.
        """
        if isinstance(step, Exchange):
            return await self._carry_out(step)
        if step.may_be_late:
            return await self._carry_out_patiently(step)
        # All end before this does, also when it is cancelled: then each is.
        ended = await asyncio.gather(*map(self._carry_out, step.exchanges), return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException) and not isinstance(each, (Refused, Unanswered)):
                raise each
        return ended

    async def _carry_out_patiently(self, step: Together) -> list[Any]:
        """Do as `_carry_out_all`, but wait for those that may be late for some time only."""
        tasks = [asyncio.ensure_future(self._carry_out(each)) for each in step.exchanges]
        try:
            _, late = await asyncio.wait(tasks, timeout=step.patience)
            needed = [task for task, may in zip(tasks, step.may_be_late, strict=True) if task in late and not may]
            if needed:
                await asyncio.wait(needed)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return [_ended(task) if task.done() else Pending(task) for task in tasks]

    async def _outcomes(self, late: Late) -> list[Any]:
        """Wait for an exchange that was late. Return the outcomes of those of its calls."""
        task: asyncio.Task[list[Any]] = late.pending.awaits
        await asyncio.wait([task])  # who leaves does not cancel it: it may bring what others wait for
        outcomes = late.pending.outcomes(_ended(task))
        return [outcomes[at] for at in late.at]

    async def _answers_shared(self, exchange: Exchange, commands: tuple[Command, ...]) -> list[Any] | None:
        """Make one round trip on the shared link, and return the answers; None if that cannot be."""
        request = packed(commands)
        link = await self._link(AsyncRoute(exchange.address, FUNCTION), request, exchange.until)
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


def _ended(task: asyncio.Future[list[Any]]) -> Any:
    """Return the answers of an exchange that is over, or its failure."""
    try:
        return task.result()
    except (Refused, Unanswered) as failure:
        return failure


async def _connect(pool: Pool, seconds: float) -> Any:
    try:
        # A server that hangs accepts connections, but never answers AUTH or CLIENT SETNAME.
        async with asyncio.timeout(min(seconds, GREETING_TIMEOUT)):
            return await pool.get_connection()
    except CONNECTION_ERRORS as error:
        raise unconnected(error) from error
    except ResponseError as error:
        raise refusal(error) or error from error

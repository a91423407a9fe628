"""The driver for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import redis
import redis.sentinel

from shardq.clock import Clock, SystemClock
from shardq.drivers.exchanges import Exchange, Exchanges
from shardq.drivers.failures import LOST, Redirected, demoted, refusal, unanswered, unconnected
from shardq.drivers.leading import Leading, PendingRead
from shardq.drivers.links import CLOSED, Links
from shardq.drivers.permits import Permits
from shardq.drivers.pools import Pools
from shardq.drivers.posting import Posting
from shardq.drivers.sharing import Sharing
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
from shardq.protocol.packing import Packer
from shardq.protocol.script import Form
from shardq.timing import ThreadTimer

I = TypeVar("I")  # noqa: E741 (an item of a call that is shared)
T = TypeVar("T")
S = TypeVar("S")
Pool = redis.ConnectionPool


class Driver:
    """Runs operations, each on the thread that calls. Safe across threads, and usable after a fork."""

    def __init__(
        self,
        target: Target,
        *,
        max_connections: int,
        block: float,
        timeout: float = COMMAND_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._timeout = min(timeout, COMMAND_TIMEOUT)
        self._pools = Pools(redis, target, block=block, timeout=self._timeout, command_packer=Packer())
        self._max_connections = max_connections
        self._permits: dict[Address | None, Permits] = {}
        self._links: dict[tuple[Address | None, bool], Links] = {}
        topology = Topology(target.addresses) if target.kind == "cluster" else None
        self._exchanges = Exchanges(topology, self._clock, self._timeout)
        self._leading = Leading(self)
        self._sharing = Sharing(self, self._clock)
        self._closed = False

    def run(self, op: Op[T]) -> T:
        """Run *op* to its end, and return its result."""
        with closing(op):
            return drive(op, self.perform)

    def call(self, call: Sendable) -> Any:
        """Make one try of *call*, as if an operation had yielded it, and return its reply.

        Raises `Refused`, `Unanswered` or `Underreplicated`. The caller gives up at `call.until`.
        """
        if call.replicas:
            return self.perform(call.call)
        try:
            return self._call(call)
        except CLOSED as error:
            self._check_closed(error)
            raise

    def attempt(self, step: Call | Batch) -> Any:
        """Perform *step*, as if an operation had yielded it. Return its reply, or its failure."""
        try:
            if isinstance(step, Call):
                return self.call(step)
            return self._pair(step) if step.once else self.perform(step)
        except CLOSED as error:
            self._check_closed(error)
            raise
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    def share(self, coalescer: Coalescer[I, T], item: I, until: float) -> T:
        """Make a call for *item*, alone or with others on *coalescer*. Return its result, or raise its error."""
        return self._sharing.run(coalescer, item, until)

    def share_all(self, parts: Sequence[Part], until: float) -> list[Any]:
        """Do as `share` for all *parts* at once. Return for each its result or its error."""
        return self._sharing.run_all(parts, until)

    def posting(self, timer: ThreadTimer) -> Posting:
        """Return what makes calls for callers that no thread waits for. It has threads of its own, and uses *timer*."""
        return Posting(self._sharing, timer, self._clock)

    def owner(self, key: str) -> Address | None:
        """Return the address of the node that owns *key*; None if there is a single node."""
        return self._exchanges.owner(key)

    def leave(self, coalescer: Coalescer[Any, Any]) -> None:
        """End what `coalescer.enter()` has begun: those who wait there may make a call."""
        self._sharing.leave(coalescer)

    def recall(self, thread: int) -> None:
        """End the blocked read of another *thread*, if it has one, as if its time were up."""
        self._leading.recall(thread)

    def forked(self) -> None:
        """Start with new connections in a forked child: the old ones belong to the parent."""
        self._pools.forget()
        # Not closed: to say goodbye on a connection of the parent would end it there.
        self._permits, self._links = {}, {}
        self._leading = Leading(self)

    def close(self) -> None:
        """Close every connection."""
        # Before the connections: a call that fails by their end must see why.
        self._closed = self._leading.closed = True
        for pool in list(self._pools.values()):
            pool.disconnect()
        for sentinel in self._pools.sentinels:
            sentinel.close()

    def perform(self, step: Step) -> Any:
        """Do what *step* says, and return its reply."""
        try:
            return self._perform(step)
        except CLOSED as error:
            self._check_closed(error)
            raise

    def _perform(self, step: Step) -> Any:
        match step:
            case Call() if not step.replicas:
                return self._call(step)
            case Batch() if step.once:
                return self._pair(step)
            case Call() | Batch() | Ask():
                return drive(self._exchanges.of(step), self._carry_out)
            case Share():
                return self.share(step.coalescer, step.item, step.until)
            case Wait():
                return self._leading.wait(step)
            case Armed():
                raise TypeError("only the leader sends an armed read, by arm()")
            case Sleep():
                return time.sleep(step.seconds)

    def arm(self, step: Armed) -> PendingRead:
        """Send an armed read to the node that owns its queue. Return the connection on which its answers will come."""
        try:
            return self._arm(step)
        except CLOSED as error:
            self._check_closed(error)
            raise

    def _arm(self, step: Armed) -> PendingRead:
        address = self._exchanges.owner(step.key)
        commands = armed(step, self._exchanges.forms.of(address))
        links = self._links_to(address, blocking=True)
        try:
            link = links.take()
        except Unanswered as failure:
            self._exchanges.lost(step.key, address, failure)
            raise
        limit = step.block_ms / 1000 + BLOCK_MARGIN
        pending = PendingRead(links, link, len(commands), limit, self._is_closed, address)
        try:
            link.send(packed(commands))
        except LOST as error:
            pending.drop()
            raise unanswered(error) from error
        return pending

    def _links_to(self, address: Address | None, *, blocking: bool) -> Links:
        links = self._links.get((address, blocking))
        if links is None:
            pool = self._pools[address, blocking]
            made = Links(pool, _connect, self._clock.monotonic, self._pools.most_idle)
            links = self._links.setdefault((address, blocking), made)
        return links

    def unblock(self, pending: PendingRead) -> None:
        """End the blocking wait of *pending*, as `Exchanges.unblocked` does."""
        drive(self._exchanges.unblocked(pending.number, pending.address, pending.server), self._carry_out)

    def _check_closed(self, error: Exception) -> None:
        """ClosedError if another thread has closed this client, which explains *error* of redis-py."""
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE) from error

    def _is_closed(self) -> bool:
        return self._closed

    def _carry_out(self, exchange: Exchange) -> list[Any]:
        """Send the commands of *exchange*, and what must follow. Return the answers."""
        with self._permit(exchange.address, exchange.until):
            answers = self._answers(exchange, exchange.commands)
            # The permit is kept: what follows, such as loading the library, belongs to the same call.
            while follow_up := exchange.follow_up(answers):
                answers = self._answers(exchange, follow_up)
            return answers

    def _call(self, call: Sendable) -> Any:
        """Make one try of *call* in its common case: one command, and one reply. Return the reply.

        The slow path begins anew where another node owns the slot: this one executed nothing.
        """
        exchanges, key, until = self._exchanges, call.key, call.until
        address = exchanges.owner(key)
        form = exchanges.forms.of(address)
        try:
            permits = self._permit(address, until)
            try:
                (reply,) = self._ask(address, call.request(form), 1, until, None, call.on_send)
                if isinstance(reply, Refused) and reply.code == "NOSCRIPT":
                    reply = self._resent(call.call, address, form, reply, until)
            finally:
                permits.give()
        except Unanswered as failure:
            exchanges.lost(key, address, failure)
            raise
        if isinstance(reply, Refused):
            if isinstance(reply, Redirected):
                return drive(exchanges.of(call.call), self._carry_out)
            raise call.call.explain(reply)
        return reply

    def _resent(self, call: Call, address: Address | None, form: Form, reply: Any, until: float) -> Any:
        """Send *call* again, since *reply* said that the node cannot run it in this *form*. Return the reply."""
        sending = self._exchanges.sending(call, until, address, form)
        while follow_up := sending.follow_up([reply]):
            (reply,) = self._ask(address, packed(follow_up), 1, until)
        return reply

    def _pair(self, batch: Batch) -> list[Any]:
        """Make the two calls of *batch*, which are of one queue, in one round trip. Return the outcome of each."""
        key, until = batch.calls[0].keys[0], batch.until
        address = self._exchanges.owner(key)
        first, second = batch.calls
        form = self._exchanges.forms.of(address)
        # One write of both, so that the server runs the second right after the first.
        request = first.request(form) + second.request(form)
        try:
            permit = self._permit(address, until)
            try:
                return explained(batch.calls, self._ask(address, request, 2, until))
            finally:
                permit.give()
        except (Refused, Unanswered) as failure:
            self._exchanges.lost(key, address, failure)
            return [failure, failure]

    def _answers(self, exchange: Exchange, commands: tuple[Command, ...]) -> list[Any]:
        """Make one round trip for *exchange*, and return the answers."""
        request, server, on_send = packed(commands), exchange.server, exchange.on_send
        return self._ask(exchange.address, request, len(commands), exchange.until, server, on_send)

    def _ask(
        self,
        address: Address | None,
        request: bytes,
        count: int,
        until: float,
        server: Any = None,
        on_send: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Send *request* on a link to *address*, or if *server* is given only to that one. Return *count* answers.

        No link of a closed client stays open: `close` closes those that there are, and a call that is making or using
        one closes it here.
        """
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        links = self._links.get((address, False)) or self._links_to(address, blocking=False)
        link, clean = links.take(), True
        try:
            # The last moment at which the call may be withdrawn: the link is clean, and nothing of it was sent.
            if on_send is not None:
                on_send()
            # From here on an answer may still come, so a link whose call fails is of no use to anybody else.
            clean = False
            if server is not None and link.peer != server:
                raise Unanswered("another server is at this address now", sent=False)
            answers = link.ask(request, count, self._exchanges.limit(until))
            clean = link.is_clean()
        except LOST as error:
            raise unanswered(error) from error
        finally:
            if clean and not self._closed:
                links.give(link)
            else:
                links.drop(link)
        # The idle connections lead to the same node, which is no master any more.
        if Refused in map(type, answers) and demoted(answers):
            links.drop_idle()
        return answers

    def _permit(self, address: Address | None, until: float) -> Permits:
        """Wait for the right to use one of the connections to *address*."""
        permits = self._permits.get(address)
        if permits is None:
            permits = self._permits.setdefault(address, Permits(self._max_connections))
        if not permits.at_once():
            permits.take(self._exchanges.left(until))
        return permits


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
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
            resume, value = steps.send, perform(step)
        except (Refused, Unanswered, Underreplicated) as failure:
            resume, value = steps.throw, failure


def _connect(pool: Pool) -> Any:
    try:
        return pool.get_connection()
    except LOST as error:
        raise unconnected(error) from error
    except redis.ResponseError as error:
        raise refusal(error) or error from error

"""The driver for threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import redis
import redis.sentinel

from shardq.clock import Clock, SystemClock
from shardq.drivers.exchanges import Exchange, Exchanges, Pending, Together
from shardq.drivers.failures import CONNECTION_ERRORS, Redirected, refusal, unanswered, unconnected
from shardq.drivers.leading import Leading, PendingRead
from shardq.drivers.links import CLOSED, AskedLink, FollowUp, Links
from shardq.drivers.pools import Pools
from shardq.drivers.posting import Posting
from shardq.drivers.sharing import Sharing
from shardq.drivers.target import Address, Target
from shardq.drivers.topology import Topology
from shardq.drivers.wire import BLOCK_MARGIN, CLOSED_MEANWHILE, COMMAND_TIMEOUT, armed, explained, packed
from shardq.errors import ClosedError
from shardq.ops.queue.steps import (
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
from shardq.protocol.packing import Packer
from shardq.protocol.script import FUNCTION, Form
from shardq.timing import ThreadTimer

I = TypeVar("I")  # noqa: E741 (an item of a call that is shared)
T = TypeVar("T")
S = TypeVar("S")
Pool = redis.ConnectionPool


NO_BOUND: Final = 2**31
MAX_ROUTES: Final = 4096
"""Routes that are remembered."""


class Route(NamedTuple):
    """Where the calls about a key go: the links to its node, and the form in which that node runs calls."""

    links: Links
    address: Address | None
    form: Form


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
        self._routes: dict[str, Route] = {}
        self._links: dict[tuple[Address | None, bool], Links] = {}
        topology = Topology(target.addresses) if target.kind == "cluster" else None
        self._exchanges = Exchanges(topology, self._clock, self._timeout)
        self._leading = Leading(self)
        self.sharing = Sharing(self, self._clock)
        self._closed = False

    def run(self, op: Op[T]) -> T:
        """Run *op* to its end, and return its result."""
        try:
            return drive(op, self.perform)
        finally:
            op.close()

    def call(self, call: Sendable) -> Any:
        """Make one try of *call*, as if an operation had yielded it, and return its reply.

        Raises `Refused`, `Unanswered` or `Underreplicated`. The caller gives up at `call.until`. In the common case it
        is one command and one reply. The slow path begins again where another node owns the slot: this one executed
        nothing.
        """
        if call.replicas:
            return self.perform(call.call)
        key = call.key
        try:
            route = self._routes.get(key) or self._find_route(key)
            try:
                (reply,) = route.links.ask(
                    call.request(route.form),
                    1,
                    call.until,
                    on_send=call.on_send,
                    after_refusal=partial(self._resending, call, route),
                )
            except Unanswered as failure:
                self._lost(key, route, failure)
                raise
            if isinstance(reply, Refused):
                if isinstance(reply, Redirected):
                    self._routes.pop(key, None)
                    return drive(self._exchanges.of(call.call), self._carry_out)
                raise call.call.explain(reply)
            return reply
        except CLOSED as error:
            self._check_closed(error)
            raise

    def begin(self, call: Call) -> Begun | Refused | Unanswered | None:
        """Send *call* on an idle connection; None if there is none. The caller waits for its answer."""
        try:
            route = self._routes.get(call.key) or self._find_route(call.key)
            asked = route.links.begin(call.request(route.form), 1, on_send=call.on_send)
        except (Refused, Unanswered) as failure:
            return failure
        except CLOSED as error:
            self._check_closed(error)
            raise
        return None if asked is None else Begun(asked, self._exchanges.limit(call.until))

    def ended(self, call: Call, begun: Begun) -> Any:
        """Return the reply to *call* that was begun, or its failure."""
        try:
            (reply,) = begun.answers()
        except Unanswered as failure:
            route = self._routes.get(call.key) or self._find_route(call.key)
            self._lost(call.key, route, failure)
            return failure
        except CLOSED as error:
            self._check_closed(error)
            raise
        return self.attempt(call) if isinstance(reply, Refused) else reply  # refused, it executed nothing

    def attempt(self, step: Sendable | Batch) -> Any:
        """Perform *step*, as if an operation had yielded it. Return its reply, or its failure."""
        try:
            if not isinstance(step, Batch):
                return self.call(step)
            return self._pair(step) if step.once and len(step.calls) == 2 else self.perform(step)
        except CLOSED as error:
            self._check_closed(error)
            raise
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    def posting(self, timer: ThreadTimer) -> Posting:
        """Return what makes calls for callers that no thread waits for. It has threads of its own, and uses *timer*."""
        return Posting(self.sharing, timer, self._clock)

    def owner(self, key: str) -> Address | None:
        """Return the address of the node that owns *key*; None if there is a single node."""
        return self._exchanges.owner(key)

    def recall(self, thread: int) -> None:
        """End the blocked read of another *thread*, if it has one, as if its time were up."""
        self._leading.recall(thread)

    def forked(self) -> None:
        """Start with new connections in a forked child: the old ones belong to the parent."""
        self._pools.forget()
        # Not closed: to say goodbye on a connection of the parent would end it there.
        self._routes, self._links = {}, {}
        self._leading = Leading(self)

    def close(self) -> None:
        """Close every connection."""
        # Before the connections: a call that fails by their end must see why.
        self._closed = self._pools.closed = self._leading.closed = True
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
                return self.call(step)
            case Batch() if step.once and len(step.calls) == 2:
                return self._pair(step)
            case Batch():
                return drive(self._exchanges.of_batch(step), self._carry_out_all)
            case Call() | Ask():
                return drive(self._exchanges.of(step), self._carry_out)
            case Late():
                return _outcomes(step)
            case Share():
                return self.sharing.run(step.coalescer, step.item, step.until)
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
        route = self._routes.get(step.key) or self._find_route(step.key)
        links = self._links_to(route.address, blocking=True)
        try:
            link = links.take()
        except Unanswered as failure:
            self._lost(step.key, route, failure)
            raise
        limit = step.block_ms / 1000 + BLOCK_MARGIN
        commands = armed(step, route.form, link.number)
        pending = PendingRead(links, link, commands, limit, self._is_closed, route.address)
        try:
            link.send(packed(commands))
        except CONNECTION_ERRORS as error:
            pending.drop()
            raise unanswered(error) from error
        return pending

    def _links_to(self, address: Address | None, *, blocking: bool) -> Links:
        place = (address, blocking)
        links = self._links.get(place)
        if links is None:
            most = NO_BOUND if blocking else self._max_connections
            made = Links(self._pools, place, _connect, self._clock.monotonic, most=most, silence=self._timeout)
            links = self._links.setdefault(place, made)
        return links

    def _find_route(self, key: str) -> Route:
        """Return where calls about *key* go, and remember it until a call fails there."""
        address = self._exchanges.owner(key)
        form = self._exchanges.forms.of(address)
        route = Route(self._links_to(address, blocking=False), address, form)
        if form is FUNCTION:  # the other form is for a while only
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            self._routes[key] = route
        return route

    def _lost(self, key: str, route: Route, failure: Refused | Unanswered) -> None:
        """Note that a call about *key* ended with *failure*. The next one finds its way again."""
        self._routes.pop(key, None)
        self._exchanges.lost(key, route.address, failure)

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
        request, count = packed(exchange.commands), len(exchange.commands)
        return self._links_to(exchange.address, blocking=False).ask(
            request,
            count,
            exchange.until,
            on_send=exchange.on_send,
            after_refusal=lambda: exchange.follow_up,
            server=exchange.server,
        )

    def _carry_out_all(self, step: Exchange | Together) -> list[Any]:
        """Carry out exchanges with several nodes at once. Return for each its answers or its failure.

        Return the answers to a single exchange. Exchanges with an idle connection are sent before any answer is waited
        for, and the others come after those answers: a thread that holds a connection waits for no other one, and a
        node that must be connected to, and may be dead, delays nobody.
        """
        if isinstance(step, Exchange):
            return self._carry_out(step)
        if step.may_be_late:
            return self._carry_out_patiently(step)
        exchanges, begun = step.exchanges, list[Any]()
        # As of now: how long each answer was waited for comes off it.
        limits = [self._exchanges.limit(each.until) for each in exchanges]
        try:
            for each in exchanges:
                begun.append(_outcome(partial(self._begin, each)))
            ended = [
                _outcome(partial(one.answers, limit)) if isinstance(one, AskedLink) else one
                for one, limit in zip(begun, limits, strict=True)
            ]
        finally:
            for one in begun:
                if isinstance(one, AskedLink):
                    one.give_up()
        return [
            _outcome(partial(self._carry_out, each)) if one is None else one
            for one, each in zip(ended, exchanges, strict=True)
        ]

    def _carry_out_patiently(self, step: Together) -> list[Any]:
        """Do as `_carry_out_all`, but wait for those that may be late for some time only.

        An exchange without an idle connection gets one in a thread of its own: the node may be dead.
        """
        waits, kept = list[Any](), list[Any]()
        ends = self._clock.monotonic() + step.patience
        try:
            for exchange in step.exchanges:
                one = _outcome(partial(self._begin, exchange))
                if one is None:
                    waits.append(SideConnection(partial(self._carry_out, exchange)))
                else:
                    waits.append(
                        Begun(one, self._exchanges.limit(exchange.until)) if isinstance(one, AskedLink) else one
                    )
            for one, may in zip(waits, step.may_be_late, strict=True):
                is_late = (
                    isinstance(one, (SideConnection, Begun)) and may and not one.comes(ends - self._clock.monotonic())
                )
                kept.append(Pending(one) if is_late else one)
            return [_outcome(one.answers) if isinstance(one, (SideConnection, Begun)) else one for one in kept]
        except BaseException:
            for one in waits:
                if isinstance(one, Begun):
                    one.asked.give_up()
            raise

    def _begin(self, exchange: Exchange) -> AskedLink | None:
        links = self._links_to(exchange.address, blocking=False)
        return links.begin(packed(exchange.commands), len(exchange.commands), on_send=exchange.on_send)

    def _resending(self, call: Sendable, route: Route) -> FollowUp:
        """Return what says how to send *call* again, if the node cannot run it in the form of *route*."""
        self._routes.pop(call.key, None)  # the node may run calls in another form from now on
        return self._exchanges.sending(call.call, call.until, route.address, route.form).follow_up

    def _pair(self, batch: Batch) -> list[Any]:
        """Make the two calls of *batch*, which are of one queue, in one round trip. Return the outcome of each."""
        key = batch.calls[0].key
        route = self._routes.get(key) or self._find_route(key)
        first, second = batch.calls
        # One write of both, so that the server runs the second right after the first.
        request = first.request(route.form) + second.request(route.form)
        try:
            answers = route.links.ask(request, 2, batch.until)
            return explained(batch.calls, answers) if Refused in map(type, answers) else answers
        except (Refused, Unanswered) as failure:
            self._lost(key, route, failure)
            return [failure, failure]


class Begun:
    """An exchange that was sent, whose server may be silent for `limit` seconds.

    Calls of several queues may have gone to one node by it. Once it is late, each of them continues in a thread of its
    own: so the first of these gathers the answers, for all.
    """

    def __init__(self, asked: AskedLink, limit: float) -> None:
        self.asked, self._limit = asked, limit
        self._lock = threading.Lock()
        self._ended: list[Any] | Exception | None = None

    def comes(self, seconds: float) -> bool:
        """Return whether an answer has begun to come after *seconds* at most."""
        return self.asked.link.is_coming(max(0.0, seconds))

    def answers(self) -> list[Any]:
        """Return the answers, or raise the failure."""
        with self._lock:
            if self._ended is None:
                try:
                    self._ended = self.asked.answers(self._limit)
                except Exception as failure:  # noqa: BLE001 (each that asks gets it)
                    self._ended = failure
        if isinstance(self._ended, Exception):
            raise self._ended
        return self._ended


class SideConnection:
    """An exchange that a thread of its own carries out."""

    def __init__(self, exchange: Callable[[], list[Any]]) -> None:
        self._exchange, self._is_over = exchange, threading.Event()
        self._ended: list[Any] | BaseException = []
        threading.Thread(target=self._run, name="shardq-exchange", daemon=True).start()

    def comes(self, seconds: float) -> bool:
        """Return whether it is over after *seconds* at most."""
        return self._is_over.wait(max(0.0, seconds))

    def answers(self) -> list[Any]:
        """Return the answers, or raise the failure."""
        self._is_over.wait()
        if isinstance(self._ended, BaseException):
            raise self._ended
        return self._ended

    def _run(self) -> None:
        try:
            self._ended = self._exchange()
        except BaseException as error:  # noqa: BLE001 (whoever wants the answers gets it)
            self._ended = error
        finally:
            self._is_over.set()


def _outcomes(late: Late) -> list[Any]:
    """Wait for an exchange that was late. Return the outcomes of those of its calls."""
    outcomes = late.pending.outcomes(_outcome(late.pending.awaits.answers))
    return [outcomes[at] for at in late.at]


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


def _outcome(exchange: Callable[[], T]) -> T | Refused | Unanswered:
    """Return what *exchange* returns, or its failure."""
    try:
        return exchange()
    except (Refused, Unanswered) as failure:
        return failure


def _connect(pool: Pool) -> Any:
    try:
        return pool.get_connection()
    except CONNECTION_ERRORS as error:
        raise unconnected(error) from error
    except redis.ResponseError as error:
        raise refusal(error) or error from error

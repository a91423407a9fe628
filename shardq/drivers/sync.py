"""The driver for threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import redis
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from shardq.clock import Clock, SystemClock
from shardq.drivers.failures import DEMOTED, LOST, Redirected, refusal, unanswered, unconnected
from shardq.drivers.leading import CLOSED, Leading, Line, answer, peer_of
from shardq.drivers.target import Address, Target
from shardq.drivers.topology import Topology, by_owner
from shardq.drivers.turns import LEAST, Crowded, Turns
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
    packed,
    settings,
    unknown,
)
from shardq.errors import ClosedError
from shardq.keys import slot
from shardq.ops.steps import Armed, Ask, Batch, Call, Op, Refused, Sleep, Step, Unanswered, Underreplicated, Wait

T = TypeVar("T")
Pool = redis.ConnectionPool
REDIRECTIONS = 5


class Driver:
    """Runs operations, each on the calling thread. Safe across threads, usable after a fork."""

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
        self._turns: dict[Address | None, Turns] = {}
        self._sentinels: list[redis.Redis] = []
        self._topology = Topology(target.addresses) if target.kind == "cluster" else None
        self._leading = Leading(self)
        self._may_unblock = True
        self._closed = False

    def run(self, op: Op[T]) -> T:
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
                    resume, value = op.send, self.perform(step)
                except (Refused, Unanswered, Underreplicated) as failure:
                    resume, value = op.throw, failure

    def recall(self, thread: int) -> None:
        """As `Leading.recall`: end the blocked read of another *thread*."""
        self._leading.recall(thread)

    def forked(self) -> None:
        """Start afresh in a forked child: the connections are the parent's."""
        self._pools, self._turns, self._sentinels = {}, {}, []
        self._leading = Leading(self)

    def close(self) -> None:
        """Close every connection."""
        self._closed = self._leading.closed = True
        for pool in list(self._pools.values()):
            pool.disconnect()
        for sentinel in self._sentinels:
            sentinel.close()

    def perform(self, step: Step) -> Any:
        """Do what *step* says; its reply."""
        try:
            return self._performed(step)
        except CLOSED as error:
            self._check_closed(error)
            raise

    def _performed(self, step: Step) -> Any:
        match step:
            case Call():
                return self._call(step, step.until)
            case Batch():
                return self._batch(step.calls, step.until)
            case Wait():
                return self._leading.wait(step.waiter)
            case Armed():
                raise TypeError("a leading thread sends an armed look, and waits for it in pieces")
            case Ask():
                return self._route(step.key, (step.words,), step.until)[0]
            case Sleep():
                return time.sleep(step.seconds)

    def arm(self, step: Armed) -> Line:
        """Send an armed look to the node that owns its queue; the line on which the answers will come."""
        try:
            return self._armed(step)
        except CLOSED as error:
            self._check_closed(error)
            raise

    def _armed(self, step: Armed) -> Line:
        address = None if self._topology is None else self._topology.owner(slot(step.key))
        pool = self._pool(address, True)
        try:
            connection = _connected(pool)
        except Unanswered:
            self._lost(step.key, address)
            raise
        commands = armed(step)
        limit = step.milliseconds / 1000 + BLOCK_MARGIN
        line = Line(pool, connection, len(commands), limit, self._is_closed, address)
        try:
            connection.send_packed_command(packed(commands))
        except LOST as error:
            line.drop()
            raise unanswered(error) from error
        return line

    def unblock(self, line: Line) -> None:
        """End the wait of *line*, at the very server that it is on: on another its number is a stranger's.

        Where the ACL denies it, or that server is not to be reached, the wait ends by itself.
        """
        if not self._may_unblock or line.number is None:
            return
        until = self._clock.monotonic() + CONNECT_TIMEOUT
        command: Command = ("CLIENT", "UNBLOCK", line.number)
        try:
            with self._turn(line.address, until):
                (reply,) = self._answers(line.address, (command,), until, server=line.server)
        except (Refused, Unanswered):
            return
        if isinstance(reply, Refused):
            self._may_unblock = reply.code not in ("NOPERM", "ERR")

    def _check_closed(self, error: Exception) -> None:
        """ClosedError where *error* is what redis-py stumbled into when another thread closed this client."""
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE) from error

    def _is_closed(self) -> bool:
        return self._closed

    def _lost(self, key: str, address: Address | None) -> None:
        if self._topology is not None and address is not None:
            self._topology.lost(slot(key), address)

    def _call(self, call: Call, until: float) -> Any:
        limit = self._limit(until) if call.replicas else self._timeout
        whole = partial(commands_of, call, by_source=True, timeout=limit)
        try:
            commands = commands_of(call, by_source=False, timeout=limit)
            replies = self._route(call.keys[0], commands, until, whole)
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            replies = self._route(call.keys[0], whole(), until)
        outcome = judged(call, replies)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _batch(self, calls: tuple[Call, ...], until: float) -> list[Any]:
        """The outcome of each call: those for one node go together; those that were sent elsewhere, by themselves."""
        outcomes: list[Any] = [None] * len(calls)
        limit = self._limit(until)
        for address, places in by_owner(self._topology, calls).items():
            sent = [commands_of(calls[at], by_source=False, timeout=limit) for at in places]
            try:
                replies = iter(self._replies(address, tuple(chain(*sent)), until))
                for at, commands in zip(places, sent, strict=True):
                    outcomes[at] = judged(calls[at], [next(replies) for _ in commands])
            except (Refused, Unanswered) as failure:
                for at in places:
                    outcomes[at] = failure
                    if self._topology and address and _unreached(failure):
                        self._topology.lost(slot(calls[at].keys[0]), address)
        for at, outcome in enumerate(outcomes):
            outcomes[at] = self._again(calls[at], outcome, until)
        return outcomes

    def _again(self, call: Call, outcome: Any, until: float) -> Any:
        """The outcome of a call by itself, if it only needs its source, or another node."""
        if not isinstance(outcome, Refused) or outcome.code not in ("NOSCRIPT", "MOVED", "ASK"):
            return outcome
        try:
            return self._call(call, until)
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    def _route(
        self, key: str | None, commands: tuple[Command, ...], until: float, whole: Whole | None = None
    ) -> list[Any]:
        """Send *commands* to the node that owns *key*, following redirections; *whole* as `_replies`."""
        if self._topology is None:
            return self._exchange(None, commands, until, whole)
        number = slot(key or "")
        address, asking = self._topology.owner(number), False
        for _ in range(REDIRECTIONS):
            try:
                return self._exchange(address, commands, until, None if asking else whole, asking=asking)
            except Redirected as to:
                asking = to.code == "ASK"
                address = (to.address[0] or address[0], to.address[1])
                (self._topology.seen(address) if asking else self._topology.moved(number, address))
            except Unanswered as failure:
                if _unreached(failure):
                    self._topology.lost(number, address)
                raise
        raise Refused("TRYAGAIN", "the slot's owner kept changing")

    def _exchange(
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
        replies = self._replies(address, commands, until, whole)
        for reply in replies[: 1 + asking]:
            if isinstance(reply, Refused):
                raise reply
        return replies[1:] if asking else replies

    def _replies(
        self, address: Address | None, commands: tuple[Command, ...], until: float, whole: Whole | None = None
    ) -> list[Any]:
        """One round trip: an answer per command. Where the server lacks the script, another by *whole*, in one turn."""
        with self._turn(address, until):
            replies = self._answers(address, commands, until)
            return self._answers(address, whole(), until) if whole and unknown(replies) else replies

    def _answers(
        self, address: Address | None, commands: tuple[Command, ...], until: float, server: Any = None
    ) -> list[Any]:
        """One round trip on one connection, to that *server* if one is given. One that failed is never used again.

        Of a closed client none is left open: closing finds those that are there, the others see that it was closed.
        """
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        pool = self._pool(address, False)
        connection, limit = _connected(pool), self._limit(until)
        clean = False
        try:
            if server is not None and peer_of(connection) != server:
                raise Unanswered("another server has taken its place", sent=False)
            connection.send_packed_command(packed(commands))
            if limit < self._timeout:
                _await(connection, limit)
            replies = [answer(connection) for _ in commands]
            clean = True
        except LOST as error:
            raise unanswered(error) from error
        finally:
            if not clean or self._closed:
                connection.disconnect()
            pool.release(connection)
        for reply in replies:
            if isinstance(reply, Refused) and reply.code in DEMOTED:
                pool.disconnect(inuse_connections=False)
        return replies

    def _turn(self, address: Address | None, until: float) -> Turns:
        """Wait for one of the connections to *address*."""
        turns = self._turns.get(address)
        if turns is None:
            turns = self._turns.setdefault(address, Turns(self._max_connections))
        if not turns.at_once():
            turns.take(max(LEAST, until - self._clock.monotonic()))
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
        chosen = settings(target, block=self._block if blocking else None, timeout=self._timeout) | {
            "retry": Retry(NoBackoff(), 0)
        }
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
        sentinels = redis.sentinel.Sentinel(
            list(target.addresses), sentinel_kwargs={"socket_timeout": CONNECT_TIMEOUT, "protocol": 2}
        )
        self._sentinels += sentinels.sentinels
        kind = redis.sentinel.SentinelManagedSSLConnection if target.tls else redis.sentinel.SentinelManagedConnection
        return redis.sentinel.SentinelConnectionPool(
            target.service, sentinels, connection_class=kind, max_connections=2**31, **chosen
        )


def _connected(pool: Pool) -> Any:
    try:
        return pool.get_connection()
    except LOST as error:
        raise unconnected(error) from error
    except redis.ResponseError as error:
        raise refusal(error) or error from error


def _await(connection: Any, seconds: float) -> None:
    """Wait for an answer; redis-py's errors if there is none in time, or another thread closes the connection."""
    try:
        if connection.can_read(seconds):
            return
    except CLOSED as error:
        raise redis.ConnectionError("the connection was closed meanwhile") from error
    raise redis.TimeoutError(f"no answer for {seconds:.3g} s")


def _unreached(failure: Refused | Unanswered) -> bool:
    """Whether a node may be gone, and not only all connections to it busy."""
    return isinstance(failure, Unanswered) and not isinstance(failure, Crowded)

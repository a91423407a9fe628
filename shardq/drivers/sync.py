"""The driver for threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from typing import Any, TypeVar

import redis
import redis.sentinel
from redis.backoff import NoBackoff
from redis.retry import Retry

from shardq.drivers.failures import LOST, Redirected, refusal, unanswered, unconnected
from shardq.drivers.target import Address, Target
from shardq.drivers.topology import Topology, by_owner
from shardq.drivers.wire import (
    COMMAND_TIMEOUT,
    CONNECT_TIMEOUT,
    Command,
    command_of,
    commands_of,
    hint_of,
    judged,
    packed,
    settings,
)
from shardq.keys import slot
from shardq.ops.steps import Ask, Batch, Block, Call, Op, Refused, Sleep, Step, Unanswered, Underreplicated

T = TypeVar("T")
Pool = redis.ConnectionPool
REDIRECTIONS = 5


class Driver:
    """Runs operations, each on the calling thread. Safe across threads, usable after a fork."""

    def __init__(self, target: Target, *, max_connections: int, block: float, timeout: float = COMMAND_TIMEOUT) -> None:
        self._target = target
        self._max_connections = max_connections
        self._block = block
        self._timeout = min(timeout, COMMAND_TIMEOUT)
        self._pools: dict[tuple[Address | None, bool], Pool] = {}
        self._sentinels: list[redis.Redis] = []
        self._topology = Topology(target.addresses) if target.kind == "cluster" else None

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
                    resume, value = op.send, self._perform(step)
                except (Refused, Unanswered, Underreplicated) as failure:
                    resume, value = op.throw, failure

    def forked(self) -> None:
        """Start afresh in a forked child: the connections are the parent's."""
        self._pools = {}

    def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            pool.disconnect()
        for sentinel in self._sentinels:
            sentinel.close()

    def _perform(self, step: Step) -> Any:
        match step:
            case Call():
                return self._call(step)
            case Batch():
                return self._batch(step.calls)
            case Block():
                return hint_of(self._route(step.key, (command_of(step),), blocking=True)[0])
            case Ask():
                return self._route(None, (step.words,))[0]
            case Sleep():
                return time.sleep(step.seconds)

    def _call(self, call: Call) -> Any:
        try:
            replies = self._route(call.keys[0], commands_of(call, by_source=False, timeout=self._timeout))
        except Refused as refused:
            if refused.code != "NOSCRIPT":
                raise
            replies = self._route(call.keys[0], commands_of(call, by_source=True, timeout=self._timeout))
        if call.replicas and replies[1] < call.replicas:
            raise Underreplicated(replies[0], replies[1])
        return replies[0]

    def _batch(self, calls: tuple[Call, ...]) -> list[Any]:
        """The outcome of each call: those for one node go together; those that were sent elsewhere, by themselves."""
        outcomes: list[Any] = [None] * len(calls)
        for address, places in by_owner(self._topology, calls).items():
            sent = [commands_of(calls[at], by_source=False, timeout=self._timeout) for at in places]
            try:
                replies = iter(self._replies(self._pool(address, False), tuple(chain(*sent))))
                for at, commands in zip(places, sent, strict=True):
                    outcomes[at] = judged(calls[at], [next(replies) for _ in commands])
            except (Refused, Unanswered) as failure:
                for at in places:
                    outcomes[at] = failure
                    if self._topology and address and isinstance(failure, Unanswered):
                        self._topology.lost(slot(calls[at].keys[0]), address)
        for at, outcome in enumerate(outcomes):
            outcomes[at] = self._again(calls[at], outcome)
        return outcomes

    def _again(self, call: Call, outcome: Any) -> Any:
        """The outcome of a call by itself, if it only needs its source, or another node."""
        if not isinstance(outcome, Refused) or outcome.code not in ("NOSCRIPT", "MOVED", "ASK"):
            return outcome
        try:
            return self._call(call)
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    def _route(self, key: str | None, commands: tuple[Command, ...], *, blocking: bool = False) -> list[Any]:
        """Send *commands* to the node that owns *key*, following redirections."""
        if self._topology is None:
            return self._exchange(self._pool(None, blocking), commands)
        number = slot(key or "")
        address, asking = self._topology.owner(number), False
        for _ in range(REDIRECTIONS):
            try:
                return self._exchange(self._pool(address, blocking), commands, asking=asking)
            except Redirected as to:
                asking = to.code == "ASK"
                address = (to.address[0] or address[0], to.address[1])
                (self._topology.seen(address) if asking else self._topology.moved(number, address))
            except Unanswered:
                self._topology.lost(number, address)
                raise
        raise Refused("TRYAGAIN", "the slot's owner kept changing")

    def _exchange(self, pool: Pool, commands: tuple[Command, ...], *, asking: bool = False) -> list[Any]:
        """As `_replies`; raises the first refusal."""
        if asking:
            commands = (("ASKING",), *commands)
        replies = self._replies(pool, commands)
        for reply in replies:
            if isinstance(reply, Refused):
                raise reply
        return replies[1:] if asking else replies

    def _replies(self, pool: Pool, commands: tuple[Command, ...]) -> list[Any]:
        """One round trip on one connection: an answer per command. A connection that failed is never used again."""
        try:
            connection = pool.get_connection()
        except LOST as error:
            raise unconnected(error) from error
        except redis.ResponseError as error:
            raise refusal(error) or error from error
        clean = False
        try:
            connection.send_packed_command(packed(commands))
            replies = [_answer(connection) for _ in commands]
            clean = True
        except LOST as error:
            raise unanswered(error) from error
        finally:
            if not clean:
                connection.disconnect()
            pool.release(connection)
        for reply in replies:
            if isinstance(reply, Refused) and reply.code in ("READONLY", "UNBLOCKED", "MASTERDOWN"):
                pool.disconnect(inuse_connections=False)
        return replies

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
        if blocking:
            return redis.ConnectionPool(max_connections=2**31, **chosen)
        return redis.BlockingConnectionPool(max_connections=self._max_connections, timeout=CONNECT_TIMEOUT, **chosen)

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


def _answer(connection: Any) -> Any:
    """One reply; a refusal as a value, so that the answers after it are read too."""
    try:
        return connection.read_response()
    except redis.RedisError as error:
        refused = refusal(error)
        if refused is None:
            raise
        return refused

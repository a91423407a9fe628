"""Bindings, shared through Redis: change them, follow the changes of others, and write to what a topic is routed to.

Redis holds a hash of all bindings, their version, the time of the last change (the stamp), and a stream of the last
changes whose ids are the versions. A client asks for the changes since its version when its router was last known to be
current more than `max_age` ago. When some of them are gone from the stream, or the stamp at its version is another
(Redis lost its data, or its last changes), it loads all of them, one thread for all. While it loads, changes come in:
after the load it follows from the version that was there before, which ends in the same bindings, since each change
says what is, not what is added. Then it counts: a scan that goes on after a restart or a failover may miss some.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardq.clock import Clock
from shardq.durability import Durability
from shardq.errors import (
    BackendError,
    BackendTimeout,
    ConfigError,
    DurabilityUnknown,
    PartlyPublished,
    QueueFull,
    ShardqError,
    Unrouted,
)
from shardq.keys import RouterKeys, check_name
from shardq.model import seconds
from shardq.ops.outgoing import Outgoing
from shardq.ops.persist import confirmed, persist
from shardq.ops.state import MAX_TIMEOUT, QueueState
from shardq.ops.steps import Argument, Call, Op, Sleep, Underreplicated
from shardq.ops.together import together
from shardq.ops.write import write
from shardq.routing import Binding, Router
from shardq.routing.topic import check_pattern, check_topic
from shardq.scripts import load

MAX_BINDINGS = 2_000_000
KEPT_CHANGES = 10_000
PART = 1000
WHILE_LOADING = 0.02
"""Seconds between two looks whether another thread has loaded."""


@dataclass(slots=True)
class RouterState:
    """What a client knows of one router. Shared by threads; `lock` is held while changes are applied, never by lookups.

    A load replaces `router` whole. `published` and `unrouted` count topics that went to some queue and to none;
    `ignored` what something else wrote among the bindings, which are none.
    """

    keys: RouterKeys
    clock: Clock
    timeout: float
    durability: Durability = field(default_factory=partial(Durability, "none"))
    max_age: float = 1.0
    router: Router = field(default_factory=Router)
    stamp: bytes = b""
    version: int = 0
    checked: float | None = None
    loads: int = 0
    published: int = 0
    unrouted: int = 0
    ignored: int = 0
    loading: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def until(self, timeout: float | None) -> float:
        """The local time at which a call that starts now gives up."""
        wait = self.timeout if timeout is None else seconds("timeout", timeout, 0, MAX_TIMEOUT)
        return self.clock.monotonic() + wait

    def forked(self) -> None:
        """Start afresh in a forked child: another thread of the parent may have held the lock."""
        self.lock, self.router = threading.Lock(), Router()
        self.stamp, self.version, self.checked, self.loading = b"", 0, None, False

    @property
    def age(self) -> float | None:
        """Seconds since the router was last known to be current; None if it never was."""
        return None if self.checked is None else self.clock.monotonic() - self.checked


def change(state: RouterState, verb: str, pattern: str, queue: str, timeout: float | None = None) -> Op[bool]:
    """Bind ("+") or unbind ("-"), for all processes; whether that changed anything."""
    done = yield from change_many(state, verb, [Binding(check_pattern(pattern), check_name(queue))], timeout)
    return done[0]


def change_many(
    state: RouterState, verb: str, bindings: Sequence[Binding], timeout: float | None = None
) -> Op[list[bool]]:
    """The same for many different ones, a thousand in a round trip; for each whether that changed anything.

    DurabilityUnknown with these answers if too few replicas are known to have the changes.
    """
    if not bindings:
        return []
    until, done = state.until(timeout), list[bool]()
    seen, few = state.version, None
    for at in range(0, len(bindings), PART):
        change = _Change(state, verb, bindings[at : at + PART], seen)
        done += yield from change.made(until)
        seen, few = change.seen, change.few or few
    yield from current(state, until, max_age=0)
    if few is not None:
        raise DurabilityUnknown(f"changed, but {few.of(state.durability.replicas)}", done)
    return done


@dataclass(slots=True)
class _Change:
    """A change of *bindings* by somebody who has *seen* that version of all.

    A call that comes late finds that its bindings were changed after that, and does nothing. One that finds it because
    somebody was faster, or because this client has seen nothing for long, is made again.
    """

    state: RouterState
    verb: str
    bindings: Sequence[Binding]
    seen: int
    few: Underreplicated | None = None
    asked_again: bool = False

    def made(self, until: float) -> Op[list[bool]]:
        """Make it; for each binding whether that changed anything."""
        state = self.state
        while True:
            reply, self.few = yield from confirmed(self._call, until, state.clock)
            if reply[0] == b"FULL":
                raise QueueFull(
                    f"router {state.keys.name!r} has {reply[1]:,} bindings; {MAX_BINDINGS:,} is the most there may be"
                )
            _check(state, reply)
            self.seen = int(reply[1])
            if reply[0] == b"OK":  # a repeated call finds what its first try did
                return [bool(each) or self.asked_again for each in reply[2]]
            if state.clock.monotonic() > until:
                raise BackendTimeout(f"others kept changing these bindings of router {state.keys.name!r}")

    def _call(self, repeated: bool) -> Call:
        self.asked_again = self.asked_again or repeated
        keys = (self.state.keys.bindings, self.state.keys.changes)
        args: tuple[Argument, ...] = (self.verb, MAX_BINDINGS, KEPT_CHANGES, self.seen, *map(" ".join, self.bindings))
        return Call(load("bind"), keys, args, replicas=self.state.durability.replicas)


def current(state: RouterState, until: float, *, max_age: float | None = None) -> Op[Router]:
    """The router, not older than *max_age* seconds (else the state's)."""
    limit = state.max_age if max_age is None else max_age
    age = state.age
    if age is not None and age < limit:
        return state.router
    asked = state.clock.monotonic()
    tried, loads = False, state.loads
    while not (yield from _followed(state, until)):
        if tried and state.clock.monotonic() > until:
            raise BackendTimeout(f"the bindings of router {state.keys.name!r} could not be loaded in time")
        yield from _loaded_by_one(state, loads, until)
        tried, loads = True, state.loads
    state.checked = asked
    return state.router


def _follow(state: RouterState, stamp: bytes, version: int, count: int, until: float) -> Op[list[Any]]:
    call = Call(load("follow"), (state.keys.bindings, state.keys.changes), (stamp, version, count))
    reply: list[Any] = yield from persist(lambda _: call, until, state.clock)
    _check(state, reply)
    return reply


def _followed(state: RouterState, until: float) -> Op[bool]:
    """Take over the changes since our version; False when all must be loaded."""
    while True:
        with state.lock:
            basis = state.stamp, state.version, state.router
        reply = yield from _follow(state, *basis[:2], PART, until)
        if reply[0] == b"NONE":
            with state.lock:
                if state.stamp or state.version:  # there were bindings: Redis lost its data, or they were deleted
                    state.router, state.version, state.stamp = Router(), 0, b""
            return True
        if reply[0] == b"RELOAD":
            return False
        if _taken_over(state, basis, reply) and state.version >= int(reply[2]):
            return True


def _taken_over(state: RouterState, basis: tuple[bytes, int, Router], reply: list[Any]) -> bool:
    """Apply changes to what they are changes of; False when another thread was faster."""
    with state.lock:
        if (state.stamp, state.version, state.router) != basis:
            return False
        changes = reply[3]
        for verb, member in zip(changes[::2], changes[1::2], strict=True):
            state.ignored += _applied(state.router, verb, member) is None
        state.version += len(changes) // 2
        state.stamp = reply[1]
        return True


def _loaded_by_one(state: RouterState, loads: int, until: float) -> Op[None]:
    """Load, or wait while another thread or task does; nothing if one did since there were so many *loads*."""
    with state.lock:
        if state.loads != loads:
            return
        busy, state.loading = state.loading, True
    if busy:
        while state.loading:
            if state.clock.monotonic() > until:
                raise BackendTimeout(f"the bindings of router {state.keys.name!r} are still being loaded")
            yield Sleep(WHILE_LOADING)
        return
    try:
        yield from _loaded(state, until)
    finally:
        state.loading = False


def _loaded(state: RouterState, until: float) -> Op[None]:
    """Load all bindings into a new router, and take it when nothing is missing."""
    reply = yield from _follow(state, b"", 0, 1, until)
    if reply[0] == b"NONE":
        return
    stamp, version = reply[1], int(reply[2])
    router, foreign, bound, cursor = Router(), set[bytes](), 0, b"0"
    while True:
        part = Call(load("bindings"), (state.keys.bindings,), (cursor, PART))
        cursor, members = yield from persist(lambda _, part=part: part, until, state.clock)  # type: ignore[misc]
        for member in members:
            change = _applied(router, b"+", member)
            bound += change or 0
            if change is None:
                foreign.add(member)
        if cursor == b"0":
            break
    reply = [b"OK", stamp, version + 1]
    while version < int(reply[2]):
        reply = yield from _follow(state, stamp, version, PART, until)
        if reply[0] != b"OK":
            return
        for verb, member in zip(reply[3][::2], reply[3][1::2], strict=True):
            bound += _applied(router, verb, member) or 0
        stamp, version = reply[1], version + len(reply[3]) // 2
    if bound + len(foreign) != reply[4]:
        return
    with state.lock:
        state.router, state.version, state.stamp = router, version, stamp
        state.ignored = len(foreign)
        state.loads += 1


def _check(state: RouterState, reply: list[Any]) -> None:
    if reply[0] == b"DAMAGED":
        raise BackendError(
            f"something else wrote to the bindings of router {state.keys.name!r}: their version is {reply[1][:40]!r}, "
            f"not a number. Write to the field '' of the hash {state.keys.bindings!r} a number above that of any "
            "`router_state().version`, or delete that hash and bind again"
        )


def _applied(router: Router, verb: bytes, member: bytes) -> int | None:
    """How many bindings more there are then; None if this is no change of a binding: only others write such."""
    try:
        pattern, space, queue = member.decode().rpartition(" ")
        if not space or verb not in (b"+", b"-"):
            return None
        return int(router.bind(pattern, queue)) if verb == b"+" else -int(router.unbind(pattern, queue))
    except (ConfigError, UnicodeDecodeError):
        return None


def matched(state: RouterState, topic: str, unmatched: str, timeout: float | None) -> Op[list[str]]:
    """The names of the queues that *topic* goes to, sorted; Unrouted for none, if so chosen."""
    check_topic(topic)
    if unmatched not in ("return", "raise"):
        raise ConfigError('unmatched must be "return" or "raise"')
    router = yield from current(state, state.until(timeout))
    queues = sorted(router.match(topic))
    if queues:
        state.published += 1
        return queues
    state.unrouted += 1
    if unmatched == "raise":
        raise Unrouted(f"no queue is bound to a pattern that matches {topic!r} in router {state.keys.name!r}")
    return []


def write_all(states: Sequence[QueueState], messages: Sequence[Outgoing], timeout: float | None) -> Op[dict[str, str]]:
    """Write each message to the queue beside it, all in one round trip to each node; the ids by queue."""
    ops: list[Any] = [write(state, message, timeout) for state, message in zip(states, messages, strict=True)]
    outcomes = yield from together(ops)
    results: dict[str, Any] = {state.keys.name: outcome for state, outcome in zip(states, outcomes, strict=True)}
    first = next((outcome for outcome in outcomes if isinstance(outcome, ShardqError)), None)
    if first is not None:
        raise PartlyPublished(results, first) from first
    return results

"""Bindings, shared through Redis: change them, follow the changes of others, and write to what a topic is routed to.

Redis holds a hash of all bindings, their version, the time of the last change (the stamp), and a stream of the last
changes whose ids are the versions. A client asks for the changes since its version when its router was last known to be
current more than `max_age` ago. When some of them are gone from the stream, or the stamp at its version is another
(Redis lost its data, or its last changes), it loads all of them, one thread for all (`shardq.ops.loading`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardq.arguments import MAX_BLOCK, check_name, seconds
from shardq.clock import Clock
from shardq.durability import Durability
from shardq.errors import (
    BackendTimeout,
    ConfigError,
    DurabilityUnknown,
    PartlyPublished,
    QueueFull,
    ShardqError,
    Unrouted,
)
from shardq.ops.loading import apply_change, check_version, follow, load_bindings, warn_ignored
from shardq.ops.opening import open_queue
from shardq.ops.outgoing import Outgoing
from shardq.ops.retry import retry_replicated
from shardq.ops.state import QueueState
from shardq.ops.steps import Argument, Call, Op, Sleep, Underreplicated
from shardq.ops.together import together
from shardq.ops.write import write
from shardq.protocol.keys import RouterKeys
from shardq.routing import Binding, Router
from shardq.routing.topic import check_bindable, check_pattern, check_topic

MAX_BINDINGS = 2_000_000
KEPT_CHANGES = 10_000
PART = 1000
LOADING_PAUSE = 0.02
"""Seconds between two looks whether another thread has loaded."""


@dataclass(slots=True)
class RouterState:
    """What a client knows of one router. Shared by threads; `lock` is held while changes are applied, never by lookups.

    A load replaces `router` whole; the last one began at the local time `began`. `published` and `unrouted` count
    topics that went to some queue and to none; `ignored` what something else wrote among the bindings, which are none.
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
    began: float = 0.0
    published: int = 0
    unrouted: int = 0
    ignored: int = 0
    loading: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def until(self, timeout: float | None) -> float:
        """The local time at which a call that starts now gives up."""
        wait = self.timeout if timeout is None else seconds("timeout", timeout, 0, MAX_BLOCK)
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
    if verb == "+":  # what an older version bound can be unbound
        for each in bindings:
            check_bindable(each.pattern)
    until, done = state.until(timeout), list[bool]()
    known_version, underreplicated = state.version, None
    for at in range(0, len(bindings), PART):
        change = _Change(state, verb, bindings[at : at + PART], known_version)
        done += yield from change.made(until)
        known_version, underreplicated = change.known_version, change.underreplicated or underreplicated
    yield from current(state, until, max_age=0)
    if underreplicated is not None:
        raise DurabilityUnknown(f"changed, but {underreplicated.explain(state.durability.replicas)}", done)
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
    known_version: int
    underreplicated: Underreplicated | None = None
    repeated_before: bool = False

    def made(self, until: float) -> Op[list[bool]]:
        """Make it; for each binding whether that changed anything."""
        state = self.state
        while True:
            reply, self.underreplicated = yield from retry_replicated(self._call, until, state.clock)
            if reply[0] == b"FULL":
                raise QueueFull(
                    f"router {state.keys.name!r} has {reply[1]:,} bindings; {MAX_BINDINGS:,} is the most there may be"
                )
            check_version(state.keys, reply)
            self.known_version = int(reply[1])
            if reply[0] == b"OK":  # a repeated call finds what its first try did
                return [bool(each) or self.repeated_before for each in reply[2]]
            if state.clock.monotonic() > until:
                raise BackendTimeout(f"others kept changing these bindings of router {state.keys.name!r}")

    def _call(self, repeated: bool) -> Call:
        self.repeated_before = self.repeated_before or repeated
        args: tuple[Argument, ...] = (
            self.verb,
            MAX_BINDINGS,
            KEPT_CHANGES,
            self.known_version,
            *map(" ".join, self.bindings),
        )
        return Call.on(self.state.keys, "bind", args, replicas=self.state.durability.replicas)


def current(state: RouterState, until: float, *, max_age: float | None = None) -> Op[Router]:
    """The router, not older than *max_age* seconds (else the state's)."""
    limit = state.max_age if max_age is None else max_age
    age = state.age
    if age is not None and age < limit:
        return state.router
    started = state.clock.monotonic()
    tried, loads = False, state.loads
    while not (yield from _follow_changes(state, until)):
        if tried and state.clock.monotonic() > until:
            raise BackendTimeout(f"the bindings of router {state.keys.name!r} could not be loaded in time")
        yield from _load_once(state, loads, until)
        if state.loads != loads and state.began >= started:  # others may change more than can be followed meanwhile
            state.checked = state.began
            return state.router
        tried, loads = True, state.loads
    state.checked = started
    return state.router


def _follow_changes(state: RouterState, until: float) -> Op[bool]:
    """Take over the changes since our version, to what is the newest as this begins; False when all must be loaded.

    Not to the newest: others may change bindings as fast as they are followed.
    """
    goal: int | None = None
    while True:
        with state.lock:
            basis = state.stamp, state.version, state.router
        reply = yield from follow(state.keys, *basis[:2], PART, until, state.clock)
        if reply[0] == b"NONE":
            with state.lock:
                if state.stamp or state.version:  # there were bindings: Redis lost its data, or they were deleted
                    state.router, state.version, state.stamp = Router(), 0, b""
            return True
        if reply[0] == b"RELOAD":
            return False
        goal = int(reply[2]) if goal is None else goal
        _take_over(state, basis, reply)
        if state.router is basis[2] and state.version >= goal:  # by this thread, or by one that was faster
            return True


def _take_over(state: RouterState, basis: tuple[bytes, int, Router], reply: list[Any]) -> None:
    """Apply changes to what they are changes of; nothing when another thread was faster."""
    with state.lock:
        if (state.stamp, state.version, state.router) != basis:
            return
        changes = reply[3]
        foreign = [
            member
            for verb, member in zip(changes[::2], changes[1::2], strict=True)
            if apply_change(state.router, verb, member) is None
        ]
        state.ignored += len(foreign)
        warn_ignored(state.keys, foreign)
        state.version += len(changes) // 2
        state.stamp = reply[1]


def _load_once(state: RouterState, loads: int, until: float) -> Op[None]:
    """Load, or wait while another thread or task does; nothing if one did since there were so many *loads*."""
    with state.lock:
        if state.loads != loads:
            return
        busy, state.loading = state.loading, True
    if busy:
        while state.loading:
            if state.clock.monotonic() > until:
                raise BackendTimeout(f"the bindings of router {state.keys.name!r} are still being loaded")
            yield Sleep(LOADING_PAUSE)
        return
    try:
        yield from _load(state, until)
    finally:
        state.loading = False


def _load(state: RouterState, until: float) -> Op[None]:
    """Load all bindings into a new router, and take it when nothing is missing."""
    began = state.clock.monotonic()
    copy = yield from load_bindings(state.keys, PART, until, state.clock)
    if copy is None:
        return
    if len(copy.foreign) != state.ignored:
        warn_ignored(state.keys, copy.foreign)
    with state.lock:
        state.router, state.version, state.stamp = copy.router, copy.version, copy.stamp
        state.ignored = len(copy.foreign)
        state.began, state.loads = began, state.loads + 1


def match_queues(state: RouterState, topic: str, unmatched: str, timeout: float | None) -> Op[list[str]]:
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
    """Write each message to the queue beside it, all in few round trips to each node; the ids by queue."""
    unknown = [state for state in states if not state.epoch]
    yield from together([open_queue(state, state.until(timeout), create=False) for state in unknown])
    ops: list[Any] = [write(state, message, timeout) for state, message in zip(states, messages, strict=True)]
    outcomes = yield from together(ops)
    results: dict[str, Any] = {state.keys.name: outcome for state, outcome in zip(states, outcomes, strict=True)}
    first = next((outcome for outcome in outcomes if isinstance(outcome, ShardqError)), None)
    if first is not None:
        raise PartlyPublished(results, first) from first
    return results

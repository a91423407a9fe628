"""Bindings that are shared through Redis: change them, and follow changes by other clients.

Redis holds a hash of all bindings, their version, the time of the last change (the stamp), and a stream of the latest
changes, whose ids are the versions. A client that has not checked its copy for `max_age` seconds asks for the changes
since its version. If some of these are no longer in the stream, or the stamp of its version differs (Redis lost its
data or its latest changes), one thread loads all bindings on behalf of the others (`shardq.ops.topics.load`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from shardq.arguments import MAX_BLOCK, check_name, seconds
from shardq.clock import Clock
from shardq.durability import Durability
from shardq.errors import (
    BackendTimeout,
    DurabilityUnknown,
    QueueFull,
    ShardqError,
)
from shardq.ops.queue.outcome import fail_after, outcome_of
from shardq.ops.queue.retry import retry_replicated
from shardq.ops.queue.steps import Argument, Call, Op, Sleep, Underreplicated
from shardq.ops.topics.load import apply_change, check_version, empty_router, follow, load_bindings, warn_ignored
from shardq.protocol.keys import RouterKeys
from shardq.routing import Binding, Router
from shardq.routing.router import bindings_of
from shardq.routing.topic import check_bindable, check_pattern

T = TypeVar("T")
MAX_BINDINGS = 2_000_000
KEPT_CHANGES = 10_000
BINDINGS_A_CALL = 1000
LOADING_PAUSE = 0.02
"""Seconds between two checks whether another thread has finished loading."""


class RouterState(msgspec.Struct, weakref=True):
    """A client's copy of one router. Threads share it; `lock` is held while changes are applied, never by lookups.

    The copy was current at local time `checked`. A load replaces `router` as a whole; the last one began at local time
    `began`. `published` and `unrouted` count published topics that went to some queue, and to none. `ignored` counts
    invalid bindings that another program wrote. `gone` are bound queues that a publish did not find, as was logged.
    """

    keys: RouterKeys
    clock: Clock
    timeout: float
    durability: Durability = msgspec.field(default_factory=partial(Durability, "none"))
    max_age: float = 1.0
    router: Router = msgspec.field(default_factory=empty_router)
    stamp: bytes = b""
    version: int = 0
    checked: float | None = None
    loads: int = 0
    began: float = 0.0
    published: int = 0
    unrouted: int = 0
    ignored: int = 0
    gone: set[str] = msgspec.field(default_factory=set)
    loading: bool = False
    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def until(self, timeout: float | None) -> float:
        """Return the local time at which a call that starts now gives up. ConfigError for a bad *timeout*."""
        wait = self.timeout if timeout is None else seconds("timeout", timeout, 0, MAX_BLOCK)
        return self.clock.monotonic() + wait

    def forked(self) -> None:
        """Start with an empty copy in a forked child: another thread of the parent may have held the lock."""
        self.lock, self.router = threading.Lock(), empty_router()
        self.stamp, self.version, self.checked, self.loading = b"", 0, None, False

    @property
    def age(self) -> float | None:
        """How many seconds ago the copy was known to be current; None if it never was."""
        return None if self.checked is None else self.clock.monotonic() - self.checked


def change(state: RouterState, verb: str, pattern: str, queue: str, timeout: float | None = None) -> Op[bool]:
    """Bind ("+") or unbind ("-") for all clients. Return whether that changed anything. DurabilityUnknown."""
    until = state.until(timeout)
    made = yield from change_until(state, verb, [Binding(check_pattern(pattern), check_name(queue))], until)
    return confirmed(state, made, made.done[0])


def change_many(
    state: RouterState,
    verb: str,
    pairs: Iterable[tuple[str, Any]],
    name: Callable[[Any], Any],
    timeout: float | None = None,
) -> Op[list[Binding]]:
    """Bind or unbind many pairs (pattern, queue), 1,000 in a round trip. Return those for which that changed nothing.

    *name* turns a queue into its name. ConfigError or PatternError for a bad pair, before anything is sent. PartlyDone
    if a later thousand failed. DurabilityUnknown if too few replicas confirmed the changes.
    """
    bindings = bindings_of(pairs, name)
    made = yield from change_until(state, verb, bindings, state.until(timeout))
    return confirmed(state, made, [each for each, done in zip(bindings, made.done, strict=True) if not done])


class Changes(NamedTuple):
    """Whether each of several changes changed anything, and `Underreplicated` if too few replicas confirmed them."""

    done: list[bool]
    underreplicated: Underreplicated | None


def change_until(state: RouterState, verb: str, bindings: Sequence[Binding], until: float) -> Op[Changes]:
    """Change *bindings*, until local time *until*. Once that is done nothing is raised."""
    done, known_version, underreplicated = list[bool](), state.version, None
    if not bindings:
        return Changes(done, None)
    if verb == "+":  # unbind accepts any pattern, since an older version may have bound it
        for each in bindings:
            check_bindable(each.pattern)
    for at in range(0, len(bindings), BINDINGS_A_CALL):
        change = _Change(state, verb, bindings[at : at + BINDINGS_A_CALL], known_version)
        changed = yield from outcome_of(change.made(until))
        if isinstance(changed, ShardqError):
            state.checked = None
            fail_after(len(done), changed)
        done += changed
        known_version, underreplicated = change.known_version, change.underreplicated or underreplicated
    if isinstance((yield from outcome_of(current(state, until, max_age=0))), ShardqError):
        state.checked = None  # the changes were made anyway: they are asked for before the copy is used
    return Changes(done, underreplicated)


def confirmed(state: RouterState, made: Changes, result: T) -> T:
    """Return *result*, or raise DurabilityUnknown with it if too few replicas confirmed what was *made*."""
    if made.underreplicated is not None:
        text = f"changed, but {made.underreplicated.explain(state.durability.replicas)}"
        raise DurabilityUnknown(text, result)
    return result


class _Change(msgspec.Struct):
    """A change of `bindings` by a client that knows the router at `known_version`.

    The script does nothing if one of these bindings was changed after that version. So a repeated call that arrives
    late changes nothing. If another client was faster, or this client's version is old, the call is made again with the
    newer version. Changes are marked with the call's `nonce`, so the reply to a repetition says what its first try did.
    """

    state: RouterState
    verb: str
    bindings: Sequence[Binding]
    known_version: int
    underreplicated: Underreplicated | None = None
    nonce: str = msgspec.field(default_factory=partial(secrets.token_urlsafe, 6))

    def made(self, until: float) -> Op[list[bool]]:
        """Make the change. Return for each binding whether that changed anything."""
        state = self.state
        while True:
            reply, self.underreplicated = yield from retry_replicated(self._call, until, state.clock)
            if reply[0] == b"FULL":
                raise QueueFull(
                    f"router {state.keys.name!r} has {reply[1]:,} bindings; it may have at most {MAX_BINDINGS:,}",
                    bound="bindings",
                    limit=MAX_BINDINGS,
                    used=reply[1],
                )
            check_version(state.keys, reply)
            self.known_version = int(reply[1])
            if reply[0] == b"OK":
                return [bool(each) for each in reply[2]]
            if state.clock.monotonic() > until:
                raise BackendTimeout(f"other clients kept changing these bindings of router {state.keys.name!r}")

    def _call(self, repeated: bool) -> Call:
        args: tuple[Argument, ...] = (
            self.verb,
            MAX_BINDINGS,
            KEPT_CHANGES,
            self.known_version,
            self.nonce,
            int(repeated),
            *map(" ".join, self.bindings),
        )
        return Call.on(self.state.keys, "bind", args, replicas=self.state.durability.replicas)


def current(state: RouterState, until: float, *, max_age: float | None = None) -> Op[Router]:
    """Return the router, known to be current at most *max_age* seconds ago (by default `state.max_age`)."""
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
        if state.loads != loads and state.began >= started:  # other clients may change bindings faster than we follow
            state.checked = state.began
            return state.router
        tried, loads = True, state.loads
    state.checked = started
    return state.router


def _follow_changes(state: RouterState, until: float) -> Op[bool]:
    """Apply the changes from our version to the version that is newest at the start. False if all must be loaded.

    It does not go on to later versions, because other clients may change bindings as fast as we follow.
    """
    goal: int | None = None
    while True:
        with state.lock:
            basis = state.stamp, state.version, state.router
        # Outside of the lock, since it takes a round trip; `_take_over` sees whether somebody was faster.
        reply = yield from follow(state.keys, *basis[:2], BINDINGS_A_CALL, until, state.clock)
        if reply[0] == b"NONE":
            with state.lock:
                if state.stamp or state.version:  # Redis lost the bindings, or somebody deleted them
                    state.router, state.version, state.stamp = empty_router(), 0, b""
            return True
        if reply[0] == b"RELOAD":
            return False
        goal = int(reply[2]) if goal is None else goal
        _take_over(state, basis, reply)
        if state.router is basis[2] and state.version >= goal:  # this thread or a faster one got there
            return True


def _take_over(state: RouterState, basis: tuple[bytes, int, Router], reply: list[Any]) -> None:
    """Apply the changes in *reply* to the router of *basis*. Do nothing if another thread has changed it meanwhile."""
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
    """Load all bindings, or wait while another thread or task does. Return at once if `state.loads` is not *loads*."""
    with state.lock:
        if state.loads != loads:
            return
        # Under the lock: if several threads find the copy stale, one loads, the others wait.
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
        # Also after a failure, or all others would wait for it until their deadlines.
        state.loading = False


def _load(state: RouterState, until: float) -> Op[None]:
    """Load all bindings into a new router, and use it if the load was complete."""
    began = state.clock.monotonic()
    copy = yield from load_bindings(state.keys, BINDINGS_A_CALL, until, state.clock)
    if copy is None:
        return
    if len(copy.foreign) != state.ignored:
        warn_ignored(state.keys, copy.foreign)
    with state.lock:
        state.router, state.version, state.stamp = copy.router, copy.version, copy.stamp
        state.ignored = len(copy.foreign)
        state.began, state.loads = began, state.loads + 1

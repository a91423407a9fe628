"""Bindings, shared through Redis: change them, follow the changes of others, and write to what a topic is routed to.

Redis holds a hash of all bindings, their version, and a stream of the last changes whose ids are the versions. A client
asks for the changes since its version when its router was last known to be current more than `max_age` ago. When some
of them are gone from the stream, or the bindings are not those it knew (Redis lost its data), it loads all of them.
While it loads, changes come in: after the load it follows from the version that was there before, which ends in the
same bindings, since each change says what is, not what is added.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shardq.clock import Clock
from shardq.errors import BackendError, BackendTimeout, ConfigError, PartlyPublished, QueueFull, ShardqError, Unrouted
from shardq.keys import RouterKeys, check_name
from shardq.model import seconds
from shardq.ops.outgoing import Outgoing
from shardq.ops.persist import persist
from shardq.ops.state import MAX_TIMEOUT, QueueState
from shardq.ops.steps import Call, Op
from shardq.ops.together import together
from shardq.ops.write import write
from shardq.routing import Router
from shardq.routing.topic import check_pattern, check_topic
from shardq.scripts import load

MAX_BINDINGS = 2_000_000
KEPT_CHANGES = 10_000
PART = 1000


@dataclass(slots=True)
class RouterState:
    """What a client knows of one router. Shared by threads; `lock` is held while changes are applied, never by lookups.

    A load replaces `router` whole. `published` and `unrouted` count topics that went to some queue and to none;
    `ignored` what something else wrote among the bindings, which are none.
    """

    keys: RouterKeys
    clock: Clock
    timeout: float
    max_age: float = 1.0
    router: Router = field(default_factory=Router)
    epoch: bytes = b""
    version: int = 0
    checked: float | None = None
    loads: int = 0
    published: int = 0
    unrouted: int = 0
    ignored: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def until(self, timeout: float | None) -> float:
        """The local time at which a call that starts now gives up."""
        wait = self.timeout if timeout is None else seconds("timeout", timeout, 0, MAX_TIMEOUT)
        return self.clock.monotonic() + wait

    def forked(self) -> None:
        """Start afresh in a forked child: another thread of the parent may have held the lock."""
        self.lock, self.router = threading.Lock(), Router()
        self.epoch, self.version, self.checked = b"", 0, None

    @property
    def age(self) -> float | None:
        """Seconds since the router was last known to be current; None if it never was."""
        return None if self.checked is None else self.clock.monotonic() - self.checked


def change(state: RouterState, verb: str, pattern: str, queue: str, timeout: float | None = None) -> Op[bool]:
    """Bind ("+") or unbind ("-"), for all processes; whether that changed anything."""
    until = state.until(timeout)
    member = f"{check_pattern(pattern)} {check_name(queue)}"
    call = Call(load("bind"), (state.keys.bindings, state.keys.changes), (verb, MAX_BINDINGS, KEPT_CHANGES, member))
    asked_again = False

    def make(repeated: bool) -> Call:
        nonlocal asked_again
        asked_again = asked_again or repeated
        return call

    reply = yield from persist(make, until, state.clock)
    if reply[0] == b"FULL":
        raise QueueFull(f"router {state.keys.name!r} has {MAX_BINDINGS:,} bindings, the most there may be")
    _check(state, reply)
    yield from current(state, until, max_age=0)
    return bool(reply[1]) or asked_again  # a repeated call finds what its first try did


def current(state: RouterState, until: float, *, max_age: float | None = None) -> Op[Router]:
    """The router, not older than *max_age* seconds (else the state's)."""
    limit = state.max_age if max_age is None else max_age
    age = state.age
    if age is not None and age < limit:
        return state.router
    asked = state.clock.monotonic()
    while not (yield from _followed(state, until)):
        if state.clock.monotonic() > until:
            raise BackendTimeout(f"the bindings of router {state.keys.name!r} changed faster than they could be loaded")
        yield from _loaded(state, until)
    state.checked = asked
    return state.router


def _followed(state: RouterState, until: float) -> Op[bool]:
    """Take over the changes since our version; False when all must be loaded."""
    while True:
        with state.lock:
            epoch, version, router = state.epoch, state.version, state.router
        call = Call(load("follow"), (state.keys.bindings, state.keys.changes), (epoch, version, PART))
        reply = yield from persist(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
        _check(state, reply)
        if reply[0] == b"NONE":
            with state.lock:
                if state.epoch:  # there were bindings: Redis lost its data, or they were deleted
                    state.router, state.version, state.epoch = Router(), 0, b""
            return True
        if reply[0] == b"RELOAD":
            return False
        if _taken_over(state, (epoch, version, router), reply[3]) and state.version >= int(reply[2]):
            return True


def _taken_over(state: RouterState, basis: tuple[bytes, int, Router], changes: list[bytes]) -> bool:
    """Apply *changes* to what they are changes of; False when another thread was faster."""
    with state.lock:
        if (state.epoch, state.version, state.router) != basis:
            return False
        for verb, member in zip(changes[::2], changes[1::2], strict=True):
            state.ignored += not _applied(state.router, verb, member)
        state.version += len(changes) // 2
        return True


def _loaded(state: RouterState, until: float) -> Op[None]:
    """Load all bindings into a new router; followed from the version before, it is current."""
    call = Call(load("follow"), (state.keys.bindings, state.keys.changes), ("", 0, 1))
    reply = yield from persist(lambda _: call, until, state.clock)
    _check(state, reply)
    if reply[0] == b"NONE":
        return
    router, cursor, ignored = Router(), b"0", 0
    while True:
        part = Call(load("bindings"), (state.keys.bindings,), (cursor, PART))
        cursor, members = yield from persist(lambda _, part=part: part, until, state.clock)  # type: ignore[misc]
        for member in members:
            ignored += not _applied(router, b"+", member)
        if cursor == b"0":
            break
    with state.lock:
        state.router, state.version, state.epoch = router, int(reply[2]), reply[1]
        state.ignored = ignored
        state.loads += 1


def _check(state: RouterState, reply: list[Any]) -> None:
    if reply[0] == b"DAMAGED":
        raise BackendError(
            f"something else wrote to the bindings of router {state.keys.name!r}: their version is {reply[1][:40]!r}, "
            f"not a number. Write to the field '' of the hash {state.keys.bindings!r} a number above that of any "
            "`router_state().version`, or delete that hash and bind again"
        )


def _applied(router: Router, verb: bytes, member: bytes) -> bool:
    """Bind or unbind; False if that is not what *verb* and *member* say: only other programs write such."""
    try:
        pattern, space, queue = member.decode().rpartition(" ")
        if not space or verb not in (b"+", b"-"):
            return False
        (router.bind if verb == b"+" else router.unbind)(pattern, queue)
    except (ConfigError, UnicodeDecodeError):
        return False
    return True


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

"""Open a queue: read its settings, streams and assignment, or create it. Also the upkeep that other calls do."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from shardq.clock import Clock
from shardq.durability import CONFIG_NAMES, Durability, ServerFacts, fatal, judge
from shardq.errors import (
    BackendError,
    BackendTimeout,
    ConfigError,
    DurabilityUnknown,
    OutcomeUnknown,
    QueueMissing,
    ServerUnfit,
    ShardqError,
)
from shardq.model import QueueConfig
from shardq.model.settings import differs
from shardq.ops.registry import register
from shardq.ops.retry import UNKNOWN_USER, retry_replicated, retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Ask, Call, Op, Refused, Sleep, Underreplicated
from shardq.ops.view import QueueView
from shardq.protocol.keys import slot
from shardq.protocol.replies import StoredAssignment, pairs, stored_assignment

T = TypeVar("T")
OLD_LETTERS: Final = 100
"""So many dead letters are deleted by age in one call."""
Differences: TypeAlias = dict[str, tuple[Any, Any]]
log = logging.getLogger("shardq")
AWAITED: Final = 0.25
"""Seconds between two looks for a queue that somebody else will create."""

SWEPT: Final = 100.0
"""Results that were kept before a queue kept none any more are swept as if they lasted so many seconds."""


def open_queue(state: QueueState, until: float) -> Op[None]:
    """Make sure that *state* knows the queue. Create it if this client may; else QueueMissing if it does not exist."""
    if not state.epoch:
        yield from before_all(state, reopen(state, until))


def before_all(state: QueueState, look: Op[T]) -> Op[T]:
    """Look the queue up before anything of a call was sent: without an answer nothing was changed, and so it is told.

    It is not for a look-up after a try, which may have happened.
    """
    try:
        return (yield from look)
    except OutcomeUnknown as unknown:
        raise BackendTimeout(
            f"Redis gave no answer when queue {state.keys.name!r} was looked up, so nothing of this call was sent"
        ) from unknown


def find_queue(state: QueueState, until: float) -> Op[bool]:
    """Make sure that *state* knows the queue, without creating it. Return False if it does not exist."""
    return bool(state.epoch) or (yield from _look_up(state, until, create=False))


def await_queue(state: QueueState, block: float, until: float) -> Op[None]:
    """Do as `open_queue`, but wait up to *block* seconds for somebody else to create the queue."""
    clock, ends = state.clock, state.clock.monotonic() + block
    while not (state.epoch or (yield from _look_up(state, until, create=state.creates))):
        left = ends - clock.monotonic()
        if left <= 0:
            raise missing(state)
        yield Sleep(min(left, AWAITED))
        until = max(until, state.until())


def reopen(state: QueueState, until: float) -> Op[None]:
    """Look the queue up, because its epoch changed or this client has not used it. Otherwise as `open_queue`."""
    if not (yield from _look_up(state, until, create=state.creates)):
        raise missing(state)


def missing(state: QueueState) -> QueueMissing:
    """Return the error of a call that needs a queue, and may not create it."""
    name = state.keys.name
    if state.creates:
        return QueueMissing(f"there is no queue {name!r} yet: its first write or read creates it, or declare()")
    return QueueMissing(
        f"there is no queue {name!r}: check the name and the server; who has its settings creates it, by "
        f"client.queue({name!r}, streams=...) or `shardq apply`"
    )


def _look_up(state: QueueState, until: float, *, create: bool) -> Op[bool]:
    wanted = state.requested.streams if create else 0
    streams = tuple(map(state.keys.stream, range(wanted)))
    while True:
        call = Call.on(state.keys, "open", (wanted, new_epoch(), *state.requested.settings()), rest=streams)
        sent, known, opened = state.clock.monotonic(), state.streams > 0, state.opened  # others may open it meanwhile
        reply = yield from retry_until(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
        if state.server_time is None:
            state.note_server_time(int(reply[1]), sent, sent)
        if reply[0] == b"NOQUEUE":
            return False
        if reply[0] == b"FORMAT":
            raise ServerUnfit(
                f"queue {state.keys.name!r} was made by another version of shardq: use that version, or delete it"
            )
        meta, found = pairs(reply[2]), state.view.assigned
        if meta.get("assigned", "") != found.since:
            found = yield from _load_assignment(state, until)
        created = reply[0] == b"CREATED"
        remember(state, meta, found, created=created, known=known)
        state.opened = True
        if state.creates and (created or not opened):
            yield from register(state)
        if not created and not opened and (differences := _differences(state)):
            remedy = (state.on_mismatch or warn_of)(state, differences)
            if remedy is not None:
                yield from remedy
        if state.epoch or state.clock.monotonic() > until:  # else shards were assigned between the two calls
            return True


def _load_assignment(state: QueueState, until: float) -> Op[StoredAssignment]:
    """Read the stored assignment, after it has changed."""
    call = Call.on(state.keys, "assignment")
    found = stored_assignment((yield from retry_until(lambda _: call, until, state.clock)))
    if found.damaged:
        log.warning(
            "queue %r: %d entries of its assignment are not shards (another program wrote them); hashing deals these "
            "shard keys their shards. Assign them again", state.keys.name, found.damaged,
        )  # fmt: skip
    return found


def remember(state: QueueState, meta: dict[str, str], found: StoredAssignment, *, created: bool, known: bool) -> None:
    """Replace the view of the queue by what Redis returned (*meta*) and the assignment *found*.

    If the two are of different epochs, the view gets no epoch, so that the next call looks the queue up again.
    """
    streams, wanted = int(meta["streams"]), int(meta["wanted"])
    config = QueueConfig.from_settings(meta, wanted)
    state.legacy = (
        config.legacy_stream or state.legacy
    )  # its messages in flight are settled there, even after the setting changed
    state.hints = tuple(hint for hint in state.hints if int(hint) < streams)
    epoch = meta["epoch"] if meta.get("assigned", "") == found.since else ""
    has_results = meta.get("result_count", "0") != "0"
    state.view = QueueView(epoch, streams, wanted, config, found, has_results, meta["id"])
    if created and known:
        log.error("queue %r was gone and was created again: Redis lost its data, or it was deleted", state.keys.name)


def _differences(state: QueueState) -> Differences:
    """Return the settings that this client was given and that the queue has otherwise: (requested, actual) by name."""
    pairs_of = ((name, getattr(state.requested, name), getattr(state.config, name)) for name in sorted(state.explicit))
    return {name: (requested, actual) for name, requested, actual in pairs_of if differs(name, requested, actual)}


def warn_of(state: QueueState, differences: Differences) -> None:
    """Log that the queue has other settings than this client was given."""
    for name, (requested, actual) in differences.items():
        log.warning(
            "queue %r has %s=%r, not the %r requested here: settings belong to the queue; change them with %s",
            state.keys.name, name, actual, requested, "resize()" if name == "streams" else "configure()",
        )  # fmt: skip


def needs_upkeep(state: QueueState) -> bool:
    """Return whether `upkeep` may have anything to do. It seldom has, and asking costs less than making a generator."""
    view = state.view
    config = view.config
    has_old_results = view.has_results and config.result_ttl is None
    return config.ttl is not None or view.wanted < view.streams or config.dead_ttl is not None or has_old_results


def upkeep(state: QueueState, now: float) -> Op[None]:
    """Do rare upkeep beside a call: renew the expiry of all keys, and stop reading streams that a resize has drained.

    A failure is only logged, since it does not change the outcome of the call.
    """
    try:
        yield from _upkeep(state, now)
    except ShardqError as error:  # such as QueueMissing, where the queue was deleted meanwhile
        log.warning("upkeep of queue %r failed and will be tried again: %s", state.keys.name, error)


def _upkeep(state: QueueState, now: float) -> Op[None]:
    if state.config.ttl is not None and now >= state.touch_at:
        state.touch_at = now + state.config.ttl / 4
        yield from touch(state, now + state.timeout)
    if state.wanted < state.streams and now >= state.shrink_at:
        state.shrink_at = now + 1.0
        yield from shrink(state, now + state.timeout)
    # The next time is noted first: what fails, for want of a right, say, is not tried again in each call.
    if state.config.dead_ttl is not None and now >= state.bury_at:
        state.bury_at = now + min(60.0, state.config.dead_ttl / 10)
        if (yield from delete_old_letters(state, now + state.timeout)):
            state.bury_at = now
    if (state.config.result_ttl is not None or state.view.has_results) and now >= state.sweep_at:
        state.sweep_at = now + min(60.0, (state.config.result_ttl or SWEPT) / 10)
        if (yield from forget_results(state, now + state.timeout)):
            state.sweep_at = now


def touch(state: QueueState, until: float) -> Op[Any]:
    """Renew the expiry of all keys of the queue, as its `ttl` says. Without a `ttl` they never expire."""
    keys = state.keys
    others = (key for key in keys.fixed if key != keys.meta)
    call = Call.on(keys, "touch", rest=(*others, *map(keys.stream, range(state.streams))))
    yield from retry_until(lambda _: call, until, state.clock)


def delete_old_letters(state: QueueState, until: float) -> Op[bool]:
    """Delete some dead letters that are older than the queue's `dead_ttl`. Return whether there may be more."""
    call = Call.on(state.keys, "delete_dead", (state.client, "ttl", OLD_LETTERS, 0))
    _, more = yield from retry_until(lambda _: call, until, state.clock)
    return bool(more)


def forget_results(state: QueueState, until: float) -> Op[bool]:
    """Forget some results that were kept long enough. Return whether there may be more. Who keeps some does so, too."""
    call = Call.on(state.keys, "keep")
    reply = yield from retry_until(lambda _: call, until, state.clock)
    return bool(reply[2])


def shrink(state: QueueState, until: float) -> Op[None]:
    """Stop reading those streams above the wanted number that are empty."""
    view = state.view  # read once, since another thread may replace it meanwhile
    surplus = tuple(map(state.keys.stream, range(view.wanted, view.streams)))
    call = Call.on(state.keys, "shrink", (view.epoch, new_epoch()), rest=surplus)
    streams_left = yield from retry_until(lambda _: call, until, state.clock)
    if int(streams_left) != view.streams:
        yield from reopen(state, until)


def exists(state: QueueState, until: float) -> Op[bool]:
    """Look the queue up, whatever this client remembers, without creating it. Return whether it exists."""
    return (yield from _look_up(state, until, create=False))


def require_queue(state: QueueState, until: float) -> Op[None]:
    """QueueMissing if the queue does not exist. For operators' calls, where a mistyped name must not create a queue.

    It always looks the queue up, because a call that acts on all streams must not rely on what this client remembers.
    """
    if not (yield from exists(state, until)):
        raise missing(state)


def new_epoch() -> str:
    """Return a new random epoch. A counter could repeat after a failover that lost the last changes."""
    return f"2.{secrets.token_urlsafe(9)}"


def change_queue(
    state: QueueState, make: Callable[[str, str], Call], until: float
) -> Op[tuple[Any, Underreplicated | None]]:
    """Look the queue up, and change it by the call that *make* makes from its epoch and the next epoch.

    Return the reply, and `Underreplicated` if too few replicas confirmed the change. If the epoch has changed by the
    time the script runs, the script does nothing, and everything starts again. So a change by another client is not
    overwritten, and a repeated call that arrives late does nothing.
    """
    yield from before_all(state, require_queue(state, until))
    while True:
        call = make(state.epoch, new_epoch())
        call.replicas = state.durability.replicas
        reply, underreplicated = yield from retry_replicated(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
        if reply not in (b"EPOCH", b"NOQUEUE"):
            return reply, underreplicated
        if state.clock.monotonic() > until:
            raise BackendTimeout(f"other clients kept changing queue {state.keys.name!r}: nothing was changed")
        yield from require_queue(state, until)


def check_replicas(state: QueueState, underreplicated: Underreplicated | None, result: T) -> T:
    """Return *result*, or raise DurabilityUnknown with it if too few replicas confirmed the change."""
    if underreplicated is not None:
        raise DurabilityUnknown(f"changed, but {underreplicated.explain(state.durability.replicas)}", result)
    return result


def inspect_server(clock: Clock, durability: Durability, timeout: float) -> Op[list[str]]:
    """Compare the server with the durability level and return warnings. ServerUnfit if it would lose messages."""
    facts = yield from server_facts(clock, timeout)
    if problem := fatal(facts):
        raise ServerUnfit(problem)
    return judge(durability, facts)


def server_facts(clock: Clock, timeout: float) -> Op[ServerFacts]:
    """Return what the server's INFO and CONFIG say that matters for durability."""
    until = clock.monotonic() + timeout
    info = yield from _ask(("INFO",), until, clock)
    config = yield from _ask(("CONFIG", "GET", *CONFIG_NAMES), until, clock)
    return ServerFacts.from_replies(_info(info), dict(zip(config[::2], config[1::2], strict=True)) if config else {})


def _ask(words: tuple[str, ...], until: float, clock: Clock) -> Op[Any]:
    try:
        return (yield from retry_until(lambda _: Ask(words), until, clock))
    except (BackendTimeout, OutcomeUnknown):
        raise
    except BackendError as error:
        if isinstance(error.__cause__, Refused) and error.__cause__.code in UNKNOWN_USER:
            raise  # every other call would fail as well
        return None  # managed services forbid these commands; the facts stay unknown


def _info(raw: bytes | None) -> dict[str, str]:
    lines = (raw or b"").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def check_legacy(state: QueueState, config: QueueConfig) -> None:
    """ConfigError if a legacy stream lies in another cluster slot than the queue: one script cannot use both."""
    legacy = config.legacy_stream
    if state.cluster and legacy is not None and slot(legacy) != slot(state.keys.meta):
        raise ConfigError(
            f"on a cluster the legacy stream {legacy!r} must lie in the queue's slot: give it the hash tag "
            f"{{{state.keys.name}}}, or name the queue after its hash tag"
        )

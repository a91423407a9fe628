"""Open a queue: find out what it is, or create it. And the upkeep that calls do on their way."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

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
)
from shardq.model import QueueConfig
from shardq.ops.retry import UNKNOWN_USER, retry_replicated, retry_until
from shardq.ops.state import QueueState
from shardq.ops.steps import Ask, Call, Op, Refused, Underreplicated
from shardq.ops.view import QueueView
from shardq.protocol.keys import slot
from shardq.protocol.replies import StoredAssignment, pairs, stored_assignment

T = TypeVar("T")
log = logging.getLogger("shardq")


def open_queue(state: QueueState, until: float, *, create: bool = True) -> Op[bool]:
    """Make sure that *state* knows the queue; False when there is none and it was not to be created."""
    if state.epoch:
        return True
    return (yield from reopen(state, until, create=create))


def reopen(state: QueueState, until: float, *, create: bool = True) -> Op[bool]:
    """Look the queue up again: its epoch moved, or it was never seen."""
    wanted = state.requested.streams if create else 0
    streams = tuple(map(state.keys.stream, range(wanted)))
    while True:
        call = Call.on(state.keys, "open", (wanted, new_epoch(), *state.requested.settings()), rest=streams)
        sent, known = state.clock.monotonic(), state.streams > 0  # another thread may open it meanwhile
        reply = yield from retry_until(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
        if state.server_time is None:
            state.note_server_time(int(reply[1]), sent, sent)
        if reply[0] == b"NOQUEUE":
            return False
        meta, found = pairs(reply[2]), state.view.assigned
        if meta.get("assigned", "") != found.since:
            found = yield from _load_assignment(state, until)
        remember(state, meta, found, created=reply[0] == b"CREATED", known=known)
        if state.epoch or state.clock.monotonic() > until:  # else others assigned between the two calls
            return True


def _load_assignment(state: QueueState, until: float) -> Op[StoredAssignment]:
    """The stored assignment: it changed since this client last saw it."""
    call = Call.on(state.keys, "assignment")
    found = stored_assignment((yield from retry_until(lambda _: call, until, state.clock)))
    if found.spoilt:
        log.warning(
            "queue %r: %d entries of its assignment are no shards, something else wrote them; these shard keys are "
            "dealt. Assign them again", state.keys.name, found.spoilt,
        )  # fmt: skip
    return found


def remember(state: QueueState, meta: dict[str, str], found: StoredAssignment, *, created: bool, known: bool) -> None:
    """Take over what Redis says of the queue, all at once.

    No epoch if the shards that were found are of another one: the next call looks again.
    """
    streams, wanted = int(meta["streams"]), int(meta["wanted"])
    config = QueueConfig.from_settings(meta, wanted)
    state.legacy = config.legacy_stream or state.legacy  # what is in flight from it is settled there, also later
    state.hints = tuple(hint for hint in state.hints if int(hint) < streams)
    epoch = meta["epoch"] if meta.get("assigned", "") == found.since else ""
    state.view = QueueView(epoch, streams, wanted, config, found)
    if created and known:
        log.error("queue %r was gone and was created anew: Redis lost its data or it was deleted", state.keys.name)
    elif not created and not known:
        _warn_of_differences(state)


def _warn_of_differences(state: QueueState) -> None:
    for item in fields(QueueConfig):
        requested, actual = getattr(state.requested, item.name), getattr(state.config, item.name)
        if item.name in state.explicit and requested != actual:
            log.warning(
                "queue %r has %s=%r, not the %r asked for here: settings are the queue's; change them with %s",
                state.keys.name, item.name, actual, requested, "resize()" if item.name == "streams" else "configure()",
            )  # fmt: skip


def upkeep(state: QueueState, now: float) -> Op[None]:
    """What a call does on its way, rarely: move the expiry of all keys, drop streams that were drained.

    Its failure is only logged: the call that it came with succeeded, or will fail by itself.
    """
    try:
        yield from _upkeep(state, now)
    except BackendError as error:
        log.warning("upkeep of queue %r failed and will be tried again: %s", state.keys.name, error)


def _upkeep(state: QueueState, now: float) -> Op[None]:
    if state.config.ttl is not None and now >= state.touch_at:
        state.touch_at = now + state.config.ttl / 4
        yield from touch(state, now + state.timeout)
    if state.wanted < state.streams and now >= state.shrink_at:
        state.shrink_at = now + 1.0
        yield from shrink(state, now + state.timeout)


def touch(state: QueueState, until: float) -> Op[Any]:
    """Let all keys of the queue expire as its `ttl` says, or never."""
    keys = state.keys
    others = (key for key in keys.fixed if key != keys.meta)
    call = Call.on(keys, "touch", rest=(*others, *map(keys.stream, range(state.streams))))
    yield from retry_until(lambda _: call, until, state.clock)


def shrink(state: QueueState, until: float) -> Op[None]:
    """Stop reading streams above the wanted number that are empty."""
    view = state.view  # once: another thread may look the queue up meanwhile
    surplus = tuple(map(state.keys.stream, range(view.wanted, view.streams)))
    call = Call.on(state.keys, "shrink", (view.epoch, new_epoch()), rest=surplus)
    left = yield from retry_until(lambda _: call, until, state.clock)
    if int(left) != view.streams:
        yield from reopen(state, until)


def require_queue(state: QueueState, until: float) -> Op[None]:
    """QueueMissing when there is no such queue: for operators' calls, which must not create one by a slip.

    Always looks the queue up: a call that is to act on all streams must not trust what this client remembers.
    """
    if not (yield from reopen(state, until, create=False)):
        raise QueueMissing(f"there is no queue {state.keys.name!r}; the first write or read creates it")


def new_epoch() -> str:
    """An epoch that no queue ever had, also not one whose last changes a failover lost."""
    return secrets.token_urlsafe(9)


def change_queue(
    state: QueueState, make: Callable[[str, str], Call], until: float
) -> Op[tuple[Any, Underreplicated | None]]:
    """Look the queue up and change it by the call that *make* makes of its epoch and the one that is to follow.

    Its reply, and why too few replicas are known to have the change. All is begun again when the epoch is another by
    then: so nothing that others did meanwhile is undone unseen, and a copy of the call that comes late does nothing.
    """
    while True:
        yield from require_queue(state, until)
        call = make(state.epoch, new_epoch())
        call.replicas = state.durability.replicas
        reply, underreplicated = yield from retry_replicated(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
        if reply not in (b"EPOCH", b"NOQUEUE"):
            return reply, underreplicated
        if state.clock.monotonic() > until:
            raise BackendTimeout(f"others kept changing queue {state.keys.name!r}: nothing was changed")


def check_replicas(state: QueueState, underreplicated: Underreplicated | None, result: T) -> T:
    """*result* of a change; DurabilityUnknown with it if too *few* replicas are known to have that."""
    if underreplicated is not None:
        raise DurabilityUnknown(f"changed, but {underreplicated.explain(state.durability.replicas)}", result)
    return result


def inspect_server(clock: Clock, durability: Durability, timeout: float) -> Op[list[str]]:
    """Compare what the server gives with what is asked of it: warnings. ServerUnfit if it would lose messages."""
    facts = yield from server_facts(clock, timeout)
    if problem := fatal(facts):
        raise ServerUnfit(problem)
    return judge(durability, facts)


def server_facts(clock: Clock, timeout: float) -> Op[ServerFacts]:
    """What the server says of itself."""
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
            raise  # no other call will work
        return None  # managed services forbid it; the facts stay unknown


def _info(raw: bytes | None) -> dict[str, str]:
    lines = (raw or b"").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def check_legacy(state: QueueState, config: QueueConfig) -> None:
    """ConfigError when a legacy stream lies in another slot than the queue, where one script cannot reach it."""
    legacy = config.legacy_stream
    if state.cluster and legacy is not None and slot(legacy) != slot(state.keys.meta):
        raise ConfigError(
            f"on a cluster the legacy stream {legacy!r} must lie in the queue's slot: give it the hash tag "
            f"{{{state.keys.name}}}, or name the queue after its hash tag"
        )

"""Open a queue: read its settings, streams and assignment, or create it. Also the upkeep that other calls do."""

from __future__ import annotations

import logging
import secrets
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from shardq.errors import ConfigError, QueueMissing, ServerUnfit
from shardq.model import QueueConfig
from shardq.model.settings import differs
from shardq.ops.queue.registry import register
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Sleep, forget_keys
from shardq.ops.queue.view import QueueView
from shardq.protocol.keys import slot
from shardq.protocol.replies import StoredAssignment, pairs, stored_assignment

T = TypeVar("T")
Differences: TypeAlias = dict[str, tuple[Any, Any]]
log = logging.getLogger("shardq")
LOOK_INTERVAL: Final = 0.25
"""Seconds between two looks for a queue that somebody else will create."""


def open_queue(state: QueueState, until: float) -> Op[None]:
    """Make sure that *state* knows the queue. Create it if this client may; else QueueMissing if it does not exist."""
    if not state.epoch:
        yield from reopen(state, until)


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
        yield Sleep(min(left, LOOK_INTERVAL))
        # Each look has a time of its own: the queue may be created long after the first one.
        until = max(until, state.until())


def reopen(state: QueueState, until: float) -> Op[None]:
    """Look the queue up, because its epoch changed or this client has not used it. Otherwise as `open_queue`.

    A queue with partitions is not created so, but by its `declare`, and by the calls of a queue that go over them.
    """
    is_alone = state.requested.partitions == 1 or state.parts is not None
    if state.parts is not None:  # if Redis lost it, it has the map again that this client knows
        state.requested = replace(state.requested, partitions=state.config.partitions)
    if not (yield from _look_up(state, until, create=state.creates and is_alone)):
        raise missing(state)


def create(state: QueueState, until: float) -> Op[None]:
    """Do as `reopen` of a client that may create the queue: OutcomeUnknown if it may have been created by this call."""
    yield from _look_up(state, until, create=True, looks="")


def missing(state: QueueState) -> QueueMissing:
    """Return the error of a call that needs a queue, and may not create it. Packed words for it are forgotten."""
    forget_keys(state.keys)
    name = state.keys.name
    if state.creates:
        return QueueMissing(f"there is no queue {name!r} yet: its first write or read creates it, or declare()")
    return QueueMissing(
        f"there is no queue {name!r}: check the name and the server; a client with its settings creates it, by "
        f"client.queue({name!r}, streams=...) or `shardq apply`"
    )


ONLY_LOOKED: Final = "nothing of this call was sent: it only looked the queue up"
"""The caller learns this where a look-up gets no answer, though it may have created an empty queue."""


def _look_up(state: QueueState, until: float, *, create: bool, looks: str = ONLY_LOOKED) -> Op[bool]:
    wanted = state.requested.streams if create else 0
    streams = tuple(map(state.keys.stream, range(wanted)))
    while True:
        call = Call.on(state.keys, "open", (wanted, new_epoch(), *state.requested.settings()), rest=streams)
        sent, known, opened = state.clock.monotonic(), state.streams > 0, state.opened  # others may open it meanwhile
        reply = yield from retry_until(always(call), until, state.clock, looks=looks)
        # So the first read can say already what the server's clock should show.
        if state.server_time is None:
            state.note_server_time(int(reply[1]), sent, sent)
        if reply[0] == b"NOQUEUE":
            return False
        if reply[0] == b"FORMAT":
            raise ServerUnfit(
                f"queue {state.keys.name!r} was made by another version of shardq: use that version, or delete it"
            )
        meta, found = pairs(reply[2]), state.view.assigned
        # The assignment is read only when it has changed: it may have 10,000 shards.
        if meta.get("assigned", "") != found.since:
            found = yield from _load_assignment(state, until)
        created = reply[0] == b"CREATED"
        remember(state, meta, found, created=created, known=known)
        state.opened = True
        # Its name is added once by each client, and again when the queue was recreated.
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
    found = stored_assignment((yield from retry_until(always(call), until, state.clock)))
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
    if config.legacy_stream:  # its messages in flight are settled there, even after the setting changed
        state.names["l"] = config.legacy_stream
    # Streams that a resize has taken away need not be declared any more.
    state.hints = tuple(hint for hint in state.hints if int(hint) < streams)
    epoch = meta["epoch"] if meta.get("assigned", "") == found.since else ""
    has_results = meta.get("result_count", "0") != "0"
    generation = int(meta.get("generation", 0))
    state.know(QueueView(epoch, streams, wanted, config, found, has_results, meta["id"], generation))
    if created and known:
        log.error("queue %r was gone and was created again: Redis lost its data, or it was deleted", state.keys.name)


def _differences(state: QueueState) -> Differences:
    """Return the settings that this client was given and that the queue has otherwise: (requested, actual) by name."""
    pairs_of = ((name, getattr(state.requested, name), getattr(state.config, name)) for name in sorted(state.explicit))
    return {name: (requested, actual) for name, requested, actual in pairs_of if differs(name, requested, actual)}


def warn_of(state: QueueState, differences: Differences) -> None:
    """Log that the queue has other settings than this client was given."""
    for name, (requested, actual) in differences.items():
        remedy = "resize()" if name in ("streams", "partitions") else "configure()"
        log.warning(
            "queue %r has %s=%r, not the %r requested here: settings belong to the queue; change them with %s",
            state.keys.name, name, actual, requested, remedy,
        )  # fmt: skip


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
    return f"3.{secrets.token_urlsafe(9)}"


def check_legacy(state: QueueState, config: QueueConfig) -> None:
    """ConfigError if a legacy stream lies in another cluster slot than the queue: one script cannot use both."""
    legacy = config.legacy_stream
    if state.cluster and legacy is not None and slot(legacy) != slot(state.keys.meta):
        raise ConfigError(
            f"on a cluster the legacy stream {legacy!r} must lie in the queue's slot: give it the hash tag "
            f"{{{state.keys.name}}}, or name the queue after its hash tag"
        )

"""Operations for operators and autoscalers: len, stats, purge, resize, configure, dead letters, the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from shardq.arguments import check_known, whole
from shardq.errors import BackendTimeout, ConfigError, OutcomeUnknown, QueueFull, QueueNotEmpty
from shardq.model import DeadLetter, QueueConfig
from shardq.model.shares import WHOLE_FIELD
from shardq.model.wording import plural
from shardq.ops.operate.assign import shrink_refused
from shardq.ops.queue.change import change_queue, check_replicas
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import (
    check_legacy,
    exists,
    new_epoch,
    reopen,
    require_queue,
)
from shardq.ops.queue.outcome import fail_after, in_doubt, part_of, told_after
from shardq.ops.queue.registry import register, unregister
from shardq.ops.queue.retry import Same, retry_until
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.sight import sight
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.upkeep import touch, upkeep
from shardq.ops.queue.view import QueueView
from shardq.ops.queue.who import NOBODY, Who
from shardq.ops.write.refusal import part_told, shares

PURGE_CHUNK = 100
REDRIVEN = 100
"""Dead letters that one call moves at most."""


def purge(state: QueueState, timeout: float | None = None, who: Who = NOBODY) -> Op[int]:
    """Remove all undelivered and delayed messages and return how many. Messages in flight stay.

    Each call removes a part, so that no script runs long. A copy of one that arrives after the end of the purge removes
    nothing, because the last part has changed the epoch.
    """
    removed, until, said = 0, state.until(timeout), who.said_by(state)
    yield from require_queue(state, until)
    while True:
        # Each part is done for good, so an error says how many were removed before it.
        (word, told), _ = yield from part_of(removed, numbered(state, partial(_purge, state, until, said), until))
        count, more = map(int, told.split(b"|"))
        removed += count
        if word != b"OK":  # another client changed or purged the queue meanwhile
            if state.clock.monotonic() > until:
                fail_after(removed, BackendTimeout(f"other clients kept changing queue {state.keys.name!r}"))
            yield from part_of(removed, require_queue(state, state.until(timeout)))
        elif not more:
            # The last part has moved the epoch.
            state.forget()
            return removed
        until = state.until(timeout)


def _purge(state: QueueState, until: float, said: str, sequence: ProducerSequence) -> Call:
    view = state.view
    numbers = [str(i) for i in range(view.streams)] + (["l"] if view.config.legacy_stream else [])
    args = (view.epoch, new_epoch(), PURGE_CHUNK, said, spelled(state, sequence, until))
    return Call.on(state.keys, "purge", args, rest=state.declared(numbers))


def not_empty(state: QueueState, held: int, expected: int | None) -> QueueNotEmpty:
    """Return the error that a queue holds this many messages, and another number was *expected*."""
    return QueueNotEmpty(
        f"queue {state.keys.name!r} holds {plural(held, 'message')}, dead letters included, and not {expected:,}: "
        "nothing was deleted"
    )


def delete(state: QueueState, expected: int | None, timeout: float | None = None) -> Op[int]:
    """Delete the queue, with what it holds. Return how many messages that was; 0 if there is no such queue.

    QueueNotEmpty if it holds another number of messages than *expected*; None expects any. OutcomeUnknown if it is gone
    after a try that got no answer: nothing is left that could tell how many it held.
    """
    if expected is not None:
        whole("expected", expected, 0, 2**53)
    until, held, doubted = state.until(timeout), 0, ""  # the id of a queue that a try may have deleted
    while (yield from in_doubt(bool(doubted), exists(state, until))):
        view = state.view
        # Another one of the same name was made since, which this call does not mean.
        if doubted and view.id != doubted:
            break
        rest = (*state.keys.everything, *map(state.keys.stream, range(view.streams)))
        call = Same(Call.on(state.keys, "delete", (view.epoch, "" if expected is None else expected), rest=rest))
        word, held = yield from retry_until(call, until, state.clock)
        doubted = view.id if word in (b"EPOCH", b"NOQUEUE") and call.repeated else ""
        if word == b"HELD":
            raise not_empty(state, int(held), expected)
        if word == b"OK":
            break
    # Before the list: whatever fails from here on, this client must not believe that the queue is there.
    state.know(QueueView())
    yield from told_after("the queue was deleted", _strike(state, until))
    if doubted and expected != 0:
        raise OutcomeUnknown(
            f"queue {state.keys.name!r} is gone: an earlier try of this call, without an answer, may have deleted it; "
            "how many messages it held is not known"
        )
    return int(held)


def _strike(state: QueueState, until: float) -> Op[None]:
    """Take the name of a deleted queue out of the list of all queues, in which no partition is."""
    if state.number:
        return
    yield from unregister(state, until)
    if (yield from exists(state, until)):  # a writer created it again, and added its name before that was taken out
        yield from register(state)


def resize(state: QueueState, streams: int, timeout: float | None = None) -> Op[tuple[int, int]]:
    """Write to *streams* streams from now on. Return how many streams are read and how many are written to.

    ConfigError if a stored shard contains a stream that would be removed; then nothing is changed.
    """
    QueueConfig(streams=streams)
    until = state.until(timeout)
    declared = tuple(map(state.keys.stream, range(streams)))

    def make(epoch: str, following: str) -> Call:
        return Call.on(state.keys, "resize", (epoch, following, streams), rest=declared)

    reply, underreplicated = yield from change_queue(state, make, until)
    if reply == b"ASSIGNED":
        yield from reopen(state, until)
        raise shrink_refused(state, streams)
    yield from told_after(f"the queue has {streams:,} streams now", reopen(state, until))
    # New streams have no expiry yet, and streams that are left over may be empty: both are looked after at once.
    state.touch_at = state.shrink_at = 0.0
    yield from upkeep(state, state.clock.monotonic())
    return check_replicas(state, underreplicated, (state.streams, state.wanted))


def settings(state: QueueState, timeout: float | None = None) -> Op[QueueConfig]:
    """Return the queue's settings as they are now. It only reads. QueueMissing if there is no such queue."""
    return (yield from sight(state, state.until(timeout))).view.config


def check_changes(changes: Mapping[str, Any]) -> None:
    """ConfigError for what is no setting, or none that configure() changes."""
    if "streams" in changes:
        raise ConfigError("the number of streams is changed by resize(), not by configure()")
    check_known("queue", changes, {*QueueConfig.__struct_fields__} - {"streams", "partitions"})


def configure(
    state: QueueState, changes: dict[str, Any], timeout: float | None = None, who: Who = NOBODY
) -> Op[QueueConfig]:
    """Change settings of the queue and return all its settings. ConfigError for a bad one; then nothing is changed."""
    check_changes(changes)
    until, said = state.until(timeout), who.said_by(state)
    if not changes:
        return (yield from settings(state, timeout))

    def make(epoch: str, following: str) -> Call:
        return Call.on(state.keys, "configure", (epoch, following, said, *_settings(state, changes)))

    reply, underreplicated = yield from change_queue(state, make, until)
    if reply == b"BUSY":
        raise ConfigError(
            "parents can change only while no message that was written with fairness settings waits or is delayed: "
            "let readers drain the queue"
        )
    if reply == b"KEYS":
        raise ConfigError(
            f"queue {state.keys.name!r} remembers keys, so key_scope cannot change: wait until the messages with a "
            "unique_key are done (their keys are forgotten a minute later or more), and until dedup_window is over for "
            "the last dedup_key; ids that a gateway stored may be remembered for days"
        )
    yield from told_after("the settings were changed", _follow(state, changes, until))
    return check_replicas(state, underreplicated, state.config)


def _follow(state: QueueState, changes: dict[str, Any], until: float) -> Op[None]:
    """Do what follows from *changes* of settings."""
    yield from reopen(state, until)
    if "ttl" in changes:
        yield from touch(state, until)


def _settings(state: QueueState, changes: dict[str, Any]) -> list[Argument]:
    """Return the names and values of the settings to change, as Redis stores them. ConfigError for a bad one."""
    target = replace(state.config, **changes)
    check_legacy(state, target)
    settings = target.settings()
    kept: dict[Any, Argument] = dict(zip(settings[::2], settings[1::2], strict=True))
    args: list[Argument] = []
    # "accounts" is set and never removed: messages that were counted must still be discounted when they leave.
    for name in (*changes, *[each for each in ("accounts", WHOLE_FIELD) if each in kept]):
        args += (name, kept.get(name, ""))
    return args


def redrive(state: QueueState, letters: list[DeadLetter], timeout: float | None = None, who: Who = NOBODY) -> Op[int]:
    """Move dead letters back into the queue, with their ids and headers. Return how many were moved.

    QueueFull if the queue has room for none of those that are there; PartlyDone if it has room for some.
    """
    until, said = state.until(timeout), who.said_by(state)
    yield from require_queue(state, until)
    moved = left = bound = 0
    for start in range(0, len(letters), REDRIVEN):
        names = [letter.entry_id for letter in letters[start : start + REDRIVEN]]

        def make(sequence: ProducerSequence, names: Sequence[str] = names) -> Call:
            return Call.on(state.keys, "redrive", (spelled(state, sequence, until), said, *names))

        (_, told), _ = yield from part_of(moved, numbered(state, make, until))
        some, others, bound = map(int, told.split(b"|"))
        moved, left = moved + some, left + others
    if left:
        fail_after(moved, _no_room(state, left, bound))
    return moved


def _no_room(state: QueueState, left: int, bound: int) -> QueueFull:
    return QueueFull(
        f"queue {state.keys.name!r} may hold max_len = {bound:,} messages{part_told(state)}, {shares(bound)}: {left:,} "
        "dead letters were left; redrive them later, or raise it",
        bound="max_len", limit=bound,
    )  # fmt: skip

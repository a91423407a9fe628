"""Limits of shard keys, and pauses, changed while the queue is used.

A rate is a bucket of tokens by the server's clock (the generic cell rate algorithm, ITU-T I.371).
lua/limits.lua has the mechanism, docs/limits.md what it promises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardq.arguments import seconds, shown
from shardq.errors import ConfigError
from shardq.model import Limits, Plan
from shardq.ops.queue.change import Agree, change_queue, check_replicas
from shardq.ops.queue.outcome import fail_after, part_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op
from shardq.ops.queue.who import NOBODY, Who
from shardq.protocol.limits import DEFAULT, NEVER_MS
from shardq.sharding import key_bytes

MAX_SHARD_KEYS: Final = 10_000
"""Shard keys that can be given limits at once."""
MAX_PAUSE: Final = 366 * 86_400.0
LIMITS_A_CALL: Final = 50
READERS_WOKEN: Final = 64
"""Blocked readers that are woken when a pause of a queue ends. Others look again by themselves, within 5 s."""
_SAME = ""
_PLAN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

Key = str | bytes
Change = tuple[bytes, Argument, Argument, Argument, Argument]
"""A shard key's cap, rate and burst, and for how long it is paused, as the verb `limit` has them."""


def set_limits(
    state: QueueState,
    changes: Mapping[Key, Limits | str],
    timeout: float | None = None,
    lasting: float | None = None,
    who: Who = NOBODY,
    agree: Agree | None = None,
) -> Op[None]:
    """Give shard keys limits, or put them on a plan, for *lasting* seconds, None for no end.

    ConfigError for a bad one; then nothing is changed. *agree* as of `change_queue`, once.
    """
    if not isinstance(changes, Mapping):
        raise ConfigError(f"limits must be a dict of shard key: Limits or the name of a plan, not {shown(changes)}")
    rows: dict[bytes, Change] = {}
    for key, each in changes.items():
        name = key_bytes(key)
        rows[name] = (name, *_spelled(key, each), _SAME)
    lasts = spelled_end(lasting, "limits", none=Limits() in changes.values())
    # To take limits back is always possible, of however many.
    if sum(each != Limits() for each in changes.values()) > MAX_SHARD_KEYS:
        raise ConfigError(f"at most {MAX_SHARD_KEYS:,} shard keys can be given limits at once")
    yield from _limit(state, [*rows.values()], lasts, who, timeout, agree)


def _spelled(key: Key, each: Limits | str) -> tuple[Argument, Argument, Argument]:
    if isinstance(each, str):
        return f"={check_plan(each)}", DEFAULT, DEFAULT
    if not isinstance(each, Limits) or isinstance(each, Plan):
        raise ConfigError(f"the limits of {shown(key)} must be Limits(...) or the name of a plan, not {shown(each)}")
    return argument(each.max_in_flight), argument(each.rate), argument(each.burst)


def spelled_end(lasting: float | None, what: str, *, none: bool) -> Argument:
    """Return for how many ms limits or weights last, as the verbs read it. ConfigError for a bad time.

    *none* says whether some of them are none at all, which have no end.
    """
    if lasting is None:
        return ""
    seconds("seconds", lasting, 0.001, MAX_PAUSE)
    if none:
        raise ConfigError(f"seconds is of {what} that are given: those that are taken back have no end")
    return round(lasting * 1000)


def pause(
    state: QueueState,
    key: Key | None,
    lasting: float | None,
    timeout: float | None = None,
    who: Who = NOBODY,
    agree: Agree | None = None,
) -> Op[None]:
    """Pause the queue, or one shard key (with a parent all its children), for *lasting* seconds, None for no end.

    *agree* as of `change_queue`.
    """
    if lasting is not None:
        seconds("a pause", lasting, 0.001, MAX_PAUSE)
    yield from _pause(state, key, NEVER_MS if lasting is None else f"+{round(lasting * 1000)}", who, timeout, agree)


def resume(
    state: QueueState,
    key: Key | None,
    timeout: float | None = None,
    who: Who = NOBODY,
    agree: Agree | None = None,
) -> Op[None]:
    """Let the queue, or a shard key, continue. *agree* as of `change_queue`."""
    yield from _pause(state, key, 0, who, timeout, agree)


def _pause(
    state: QueueState,
    key: Key | None,
    until_when: Argument,
    who: Who,
    timeout: float | None,
    agree: Agree | None,
) -> Op[None]:
    if key is not None:
        yield from _limit(state, [(key_bytes(key), _SAME, _SAME, _SAME, until_when)], "", who, timeout, agree)
        return
    said = who.said_by(state)

    def make(epoch: str, following: str) -> Call:
        return Call.on(state.keys, "pause", (epoch, following, until_when, READERS_WOKEN, said))

    _, underreplicated = yield from change_queue(state, make, state.until(timeout), agree)
    check_replicas(state, underreplicated, None)


def _limit(
    state: QueueState,
    rows: Sequence[Change],
    lasts: Argument,
    who: Who,
    timeout: float | None,
    agree: Agree | None = None,
) -> Op[None]:
    until, missing, at, said = state.until(timeout), None, 0, who.said_by(state)
    while at < len(rows):
        part = rows[at : at + LIMITS_A_CALL]
        args = tuple(word for row in part for word in row)

        def make(epoch: str, following: str, args: tuple[Argument, ...] = args) -> Call:
            return Call.on(state.keys, "limit", (epoch, following, said, lasts, *args))

        reply, underreplicated = yield from part_of(at, change_queue(state, make, until, None if at else agree))
        if (refused := _refused(state, reply)) is not None:
            fail_after(at, refused)
        missing, at = missing or underreplicated, at + len(part)
    check_replicas(state, missing, None)


def _refused(state: QueueState, reply: Any) -> ConfigError | None:
    """Return the error that a reply means, None if the limits were set."""
    if reply == b"PLAIN":
        return knows_nobody(state)
    if reply[0] == b"NOPLAN":
        return no_plan(state, reply[1].decode())
    if reply == b"CHILD":
        return ConfigError(
            f"queue {state.keys.name!r} has parents: limits and pauses are a parent's, which is what stands before '/'"
        )
    return None


def knows_nobody(state: QueueState) -> ConfigError:
    """Return the error for a queue without accounts."""
    return ConfigError(
        f"queue {state.keys.name!r} has no window, so it does not know its shard keys: "
        "configure(window=1) switches the window on"
    )


class PlanMissing(ConfigError):
    """The queue has no such plan."""


def no_plan(state: QueueState, name: str) -> PlanMissing:
    """Return the error for a plan that the queue does not have."""
    return PlanMissing(f"queue {state.keys.name!r} has no plan {name!r}: set_plan makes it")


def check_plan(name: str) -> str:
    """Return the name of a plan if it has 1 to 64 letters, digits and ``. _ -``; else ConfigError."""
    if not isinstance(name, str) or not _PLAN.fullmatch(name):
        raise ConfigError(f"the name of a plan is 1 to 64 letters, digits and . _ -, not {shown(name)}")
    return name


def argument(number: float | None, unset: str = DEFAULT) -> Argument:
    """Return a limit as the verbs read it; *unset* where it is what the queue says."""
    if number is None:
        return unset
    return int(number) if number == int(number) else repr(float(number))

"""read: hand out messages, waiting for them without losing a wake-up and without giving up early."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shardq.errors import ConfigError
from shardq.keys import MAX_STREAMS
from shardq.lease import believed_until, new_holder
from shardq.model import Received
from shardq.ops.opening import opened, reopen, upkeep
from shardq.ops.persist import TRANSIENT, give_up, pause_after, persist, refuse
from shardq.ops.state import LEGACY_TURN, QueueState, ServerTime
from shardq.ops.steps import Argument, Block, Call, Op, Refused, Sleep, Unanswered
from shardq.replies import deliveries
from shardq.scripts import load

MAX_COUNT = 1000
ALL_DECLARED = 8


@dataclass(frozen=True, slots=True)
class Want:
    """What a reader asks for: at most `count` messages, leases of `visibility` seconds, a stream to prefer."""

    count: int
    visibility: float
    prefer: int | None


@dataclass(slots=True)
class Asked:
    """A look that has no answer yet: what a cancelled reader must give back.

    Its leases last *visibility* ms and end at *since* or later, in ms of the server's clock.
    """

    holder: str = ""
    since: int = 0
    visibility: int = 0


def read(
    state: QueueState,
    count: int,
    block: float = 0.0,
    visibility: float | None = None,
    prefer: int | None = None,
    timeout: float | None = None,
    asked: Asked | None = None,
) -> Op[list[Received]]:
    """Up to *count* messages; waits up to *block* seconds for the first one. [] at the deadline, never before."""
    clock = state.clock
    deadline = clock.monotonic() + block
    yield from opened(state, state.until(timeout))
    want = Want(
        count,
        state.config.visibility_timeout if visibility is None else visibility,
        prefer if prefer is not None and prefer < state.streams else None,
    )
    hint: str | None = None
    asked = asked or Asked()
    while True:
        now = clock.monotonic()
        yield from upkeep(state, now)
        left = max(0.0, deadline - now)
        until = max(deadline, state.until(timeout))
        rows, wait_ms = yield from _attempt(state, want, min(left, state.wait_slice), hint, until, asked)
        if rows or clock.monotonic() >= deadline:
            return rows
        left = min(state.wait_slice, deadline - clock.monotonic())
        if wait_ms >= 0:
            left = min(left, wait_ms / 1000)
        hint = yield from _wait(state, left)


def _wait(state: QueueState, left: float) -> Op[str | None]:
    """Block for a notification; the stream that it names. Trouble ends the wait early: the next look will tell."""
    if left <= 0:
        return None
    try:
        notification = yield Block(state.keys.notifications, max(1, math.ceil(left * 1000)))
    except Unanswered:
        return None
    except Refused as refused:
        if refused.code not in TRANSIENT and refused.code != "NOGROUP":
            refuse(refused)
        yield Sleep(0.01)
        return None
    return notification.decode() if notification else None


def _attempt(
    state: QueueState, want: Want, blocks: float, hint: str | None, until: float, asked: Asked
) -> Op[tuple[list[Received], int]]:
    """Look once (again at once after a miss); the messages, and ms until there is a reason to look again (-1: none)."""
    hints = state.hints if not hint or hint == LEGACY_TURN else (hint, *state.hints)
    while True:
        holder = new_holder()
        sent = state.clock.monotonic()
        numbers = _numbers(state, want, hints)
        call = _call(state, want, blocks, numbers, holder)
        asked.visibility = round(want.visibility * 1000)
        asked.since = (state.seen.ms if state.seen is not None else 0) + asked.visibility
        asked.holder = holder
        reply = yield from _looked(state, call, asked, until)
        asked.holder = ""
        if reply[0] == b"NOQUEUE":
            state.epoch = ""
            yield from reopen(state, until)
            continue
        now_ms = int(reply[1])
        state.seen = ServerTime(now_ms, sent)
        hints = _hints(reply[4])
        state.hints = hints
        deadline = believed_until(sent, want.visibility)
        rows = deliveries(reply, holder, deadline)
        if reply[2].decode() != state.epoch:
            state.epoch = ""
            if not rows:  # else the next call looks it up: what is in hand must not be lost to trouble here
                yield from reopen(state, until)
        if reply[0] == b"OK":
            state.hit()
            return rows, int(reply[3])
        state.missed(len(numbers))
        if state.clock.monotonic() >= until:
            return [], 0  # others are always faster, or something else writes to the queue's keys


def _looked(state: QueueState, call: Call, asked: Asked, until: float) -> Op[Any]:
    """The reply to one look. When a reply is lost, what it had granted is given back before the next look."""
    tries = 0
    while True:
        try:
            return (yield call)
        except Refused as refused:
            if refused.code not in TRANSIENT:
                refuse(refused)
            sent, last = False, refused.code
        except Unanswered as lost:
            sent, last = lost.sent, str(lost)
        tries += 1
        if sent:
            yield from recovered(state, asked, until)
        if state.clock.monotonic() >= until:
            give_up(tries, False, last)
        yield Sleep(pause_after(tries))


def recovered(state: QueueState, asked: Asked, until: float) -> Op[Any]:
    """Give back the leases of a look whose reply was lost."""
    keys = state.keys
    declared = (
        keys.meta, keys.lens, keys.ready, keys.notifications, keys.leases, keys.returned, keys.attempts, keys.cancelled,
        keys.tenants, keys.owners, keys.overflow,
    )  # fmt: skip
    call = Call(load("recover"), declared, (asked.holder, asked.since, asked.visibility))
    return (yield from persist(lambda _: call, until, state.clock))


def _hints(raw: bytes) -> tuple[str, ...]:
    return tuple(turn for turn in raw.decode().split(",") if turn and turn != LEGACY_TURN)


def _numbers(state: QueueState, want: Want, hints: tuple[str, ...]) -> list[str]:
    """Which streams to declare: all when they are few, else those that are likely to be next."""
    if state.streams <= ALL_DECLARED:
        numbers = list(dict.fromkeys([*map(str, range(state.streams)), *hints]))  # a hint may be news of a resize
    else:
        numbers = list(dict.fromkeys(hints[: max(state.width, want.count)]))
        if want.prefer is not None and str(want.prefer) not in numbers:
            numbers.append(str(want.prefer))
    if state.config.legacy_stream is not None:
        numbers.append("l")
    return numbers


def _call(state: QueueState, want: Want, blocks: float, numbers: list[str], holder: str) -> Call:
    keys, config = state.keys, state.config
    declared = (
        keys.meta, keys.lens, keys.ready, keys.notifications, keys.leases, keys.delayed, keys.returned, keys.later,
        keys.attempts, keys.cancelled, keys.dead, keys.moved, keys.tenants, keys.owners, keys.overflow,
        *state.declared(numbers),
    )  # fmt: skip
    args: tuple[Argument, ...] = (
        want.count,
        holder,
        round(want.visibility * 1000),
        state.expected_ms(state.clock.monotonic()),
        config.max_deliveries,
        config.max_dead,
        math.ceil(blocks * 1000),
        0 if state.streams <= ALL_DECLARED else max(state.width, min(want.count, state.streams)),
        "" if want.prefer is None else str(want.prefer),
        config.legacy_group or "",
        *numbers,
    )
    return Call(load("read"), declared, args)


def checked_count(count: int) -> int:
    """*count* if it can be asked for in one read; else ConfigError."""
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
        raise ConfigError(f"count must be a whole number from 1 to {MAX_COUNT}, not {count!r}")
    return count


def checked_stream(number: int | None) -> int | None:
    """*number* if it can be a stream's; else ConfigError."""
    if number is not None and (
        not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_STREAMS
    ):
        raise ConfigError(f"prefer_stream must be a stream number from 0 to {MAX_STREAMS - 1}, not {number!r}")
    return number

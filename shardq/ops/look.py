"""One look: the call of read.lua, what is to be made of its reply, and giving back what nobody could take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardq.model import Received
from shardq.ops.retry import retry_until
from shardq.ops.server_time import Jump
from shardq.ops.state import LEGACY_TURN, QueueState
from shardq.ops.steps import Argument, Call, Op
from shardq.ops.waiting import Asked, Want
from shardq.protocol.lease import believed_until, new_holder, sent
from shardq.protocol.replies import deliveries

ALL_DECLARED = 8
RECOVER_PAGE = 1000
"""So many leases are looked at in one call."""

GIVEN_BACK = 250
"""So many messages are given back in one call."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look to be sent at local time `sent`, which tells the server of `jump`."""

    call: Call
    holder: str
    sent: float
    visibility: float
    declared: int
    jump: Jump | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found: rows, and ms until there is a reason to look again (-1: none).

    After a `miss` there may be more; if the queue `moved`, what the client knows of it is out of date. If the server's
    clock `jumped`, nothing was found, and the server does not know of the jump yet: the next look tells it.
    """

    rows: list[Received]
    wait_ms: int = -1
    miss: bool = False
    moved: bool = False
    jumped: bool = False

    def wake_at(self, now: float) -> float:
        """The local time at which there is a reason to look again, where the reply came at local time *now*."""
        return now + self.wait_ms / 1000 if self.wait_ms >= 0 else math.inf


def look(state: QueueState, want: Want, block: float, asked: Asked, *, declare: int, delay: float = 0.0) -> Look:
    """A look for *want*, noted in *asked*.

    *block*: seconds for which the reader will wait after it; *declare*: up to how many streams all are declared;
    *delay*: the seconds for which the server may put it off.
    """
    holder = new_holder()
    sent = state.clock.monotonic()
    numbers = _numbers(state, want, declare)
    clock = state.seen
    call = _call(state, want, block, numbers, holder, clock.told(sent, sent + delay) if clock else "")
    asked.visibility = round(want.visibility * 1000)
    asked.since = (clock.ms if clock else 0) + asked.visibility
    asked.holder = holder
    return Look(call, holder, sent, want.visibility, len(numbers), clock.jump if clock else None)


def seen(state: QueueState, look: Look, reply: Any, granted: float | None = None) -> Seen:
    """What *reply* says, remembered in *state*. The server looked at local time *granted* or later."""
    if reply[0] == b"NOQUEUE":
        state.forget()
        return Seen([], moved=True)
    granted = look.sent if granted is None else granted
    now_ms = int(reply[1])
    state.saw(now_ms, look.sent, granted)
    state.told(look.jump)
    state.hints = _hints(reply[4])
    rows = deliveries(reply, look.holder, believed_until(granted, look.visibility))
    moved = reply[2].decode() != state.epoch
    if moved:
        state.forget()
    miss = reply[0] != b"OK"
    if miss:
        state.missed(look.declared)
    else:
        state.hit()
    return Seen(rows, int(reply[3]), miss, moved, not rows and state.seen is not None and state.seen.jump is not None)


def recovered(state: QueueState, asked: Asked, until: float) -> Op[None]:
    """Give back the leases of a look whose reply was lost."""
    where, page, holder = "", RECOVER_PAGE, sent(asked.holder)
    while True:
        call = _recover(state, (holder, asked.since, asked.visibility, page, where))
        reply = yield from retry_until(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]
        if not reply:
            return
        page = page * 2 if reply.decode() == where else RECOVER_PAGE
        where = reply.decode()


def given_back(state: QueueState, rows: Sequence[Received], until: float) -> Op[None]:
    """Give back, uncounted, what a look was granted for nobody; nothing of it may have been begun or settled."""
    for start in range(0, len(rows), GIVEN_BACK):
        tokens = [sent(row.token) for row in rows[start : start + GIVEN_BACK]]
        call = _recover(state, ("", 0, 0, 0, ""), tokens)
        yield from retry_until(lambda _, call=call: call, until, state.clock)  # type: ignore[misc]


def undone(state: QueueState, asked: Asked, until: float) -> Op[None]:
    """Give back all that a read was granted which nobody waits for any more."""
    yield from given_back(state, asked.rows, until)
    if asked.holder:
        yield from recovered(state, asked, until)


def _recover(state: QueueState, search: tuple[Argument, ...], tokens: Sequence[Argument] = ()) -> Call:
    return Call.on(state.keys, "recover", (*search, state.client, *tokens))


def unread(state: QueueState, rows: Sequence[Received], timeout: float | None = None) -> Op[None]:
    """Give back, uncounted, what a read just brought; nothing of it may have been begun or settled."""
    yield from given_back(state, rows, state.until(timeout))


def _hints(raw: bytes) -> tuple[str, ...]:
    return tuple(turn for turn in raw.decode().split(",") if turn and turn != LEGACY_TURN)


def _numbers(state: QueueState, want: Want, declare: int) -> list[str]:
    """Which streams to declare: all when they are few, else those that are likely to be next."""
    if state.streams <= declare:
        numbers = list(dict.fromkeys([*map(str, range(state.streams)), *state.hints]))  # a hint may be news of a resize
    else:
        numbers = list(dict.fromkeys(state.hints[: max(state.width, want.count)]))
        if want.prefer is not None and str(want.prefer) not in numbers:
            numbers.append(str(want.prefer))
    if state.config.legacy_stream is not None:
        numbers.append("l")
    return numbers


def _call(state: QueueState, want: Want, block: float, numbers: list[str], holder: str, clock: str) -> Call:
    config = state.config
    args: tuple[Argument, ...] = (
        want.count,
        holder,
        round(want.visibility * 1000),
        clock,
        config.max_deliveries,
        config.max_dead,
        math.ceil(block * 1000),
        0 if state.streams <= ALL_DECLARED else max(state.width, min(want.count, state.streams)),
        "" if want.prefer is None else str(want.prefer),
        config.legacy_group or "",
        state.client,
        *numbers,
    )
    return Call.on(state.keys, "read", args, rest=state.declared(numbers))

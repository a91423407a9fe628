"""Make a call of read.lua, read its reply, and give back messages that no reader could take."""

from __future__ import annotations

import math
import os
from binascii import b2a_base64
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final

import msgspec

from shardq.model import Received
from shardq.ops.queue.server_time import Jump, noted, safe_deadline
from shardq.ops.queue.state import MIN_WIDTH, OTHERS_WATCH, READS_REMEMBERED, FewKeys, QueueState
from shardq.ops.queue.steps import Call
from shardq.ops.read.waiting import Outstanding, ReadRequest, Waiting
from shardq.protocol.bodies import deliveries

ALL_DECLARED = 8
ALL_KNOWN = 64
"""In a queue of this many streams a read declares all of them if it knows of none with a message: else it would be
sent again as soon as there is one; and for some reads after a miss: messages that were given back lie in any."""
MAX_SHARED_READ = 10
"""A read of more messages makes a call of its own. It would gain little, and hold up those who share its call."""

MIN_NAMED_READ = 16
"""A read of at least this many messages declares all streams that the last reply named: these are more while much comes
due.
"""


_OTHERS_WATCH = -2
"""The wait of a reader that found nothing while others watch for what time brings."""

_NONE_LEFT = -3
"""The wait of a reader that took all there was, while nobody watches for what time brings."""


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


class ReadCall(msgspec.Struct, frozen=True):
    """A call of read.lua, made at local time `sent`. It reports `jump` (of the server's clock) to the server.

    Its caller `watches` if it then looks again when the reply says so: the one pump of a client, or the read that will
    start it. If there is nothing, it stays until local time `stays_until`, and writers notify until then.
    """

    call: Call
    count: int
    holder: str
    sent: float
    visibility: float
    declared: int
    jump: Jump | None
    watches: bool
    stays_until: float


class ReadReply(msgspec.Struct, frozen=True):
    """The reply to a read: rows, and in how many ms there is a reason to read again (negative: no known reason).

    If there is `more`, another read may find more messages: the call had not declared the streams that it needed, or
    one call does no more work than it did. If the queue `moved`, its epoch is not the one that this client knows. If
    the server's clock `jumped`, the read returned nothing, and the next read reports the jump to the server.
    """

    rows: list[Received]
    wait_ms: int = -1
    more: bool = False
    moved: bool = False
    jumped: bool = False

    def wake_at(self, now: float) -> float:
        """Return the local time at which there is a reason to read again, for a reply that came at local time *now*."""
        return now + self.wait_ms / 1000 if self.wait_ms >= 0 else math.inf


def new_holder(draw: Callable[[int], bytes] = os.urandom) -> str:
    """Return a nonce of 128 bits that marks the leases of one try of a read.

    A counter could repeat after a failover, and a generator of our own in a copy of this process, after a fork or out
    of a snapshot; the system's random numbers do not.
    """
    return b2a_base64(draw(16)).translate(_URL_SAFE)[:22].decode()  # `secrets` takes twice as long


def request_of(
    state: QueueState,
    count: int,
    visibility: float | None,
    prefer: int | None,
    *,
    is_bare: bool = False,
    due: int | None = None,
) -> ReadRequest:
    """Return what a caller requests. By default the leases last as long as the queue's settings say."""
    view = state.view
    if prefer is not None and prefer >= view.streams:
        # It is a wish, and the queue may have fewer streams by now.
        prefer = None
    lease = view.config.visibility_timeout if visibility is None else visibility
    return ReadRequest(count, lease, prefer, is_bare, due)


def read_call(
    state: QueueState,
    request: ReadRequest,
    block: float,
    outstanding: Outstanding,
    *,
    declare: int,
    likely: Collection[str] = (),
    delay: float = 0.0,
    pumped: bool = False,
) -> ReadCall:
    """Make the call that reads for *request*, and note it in *outstanding*.

    *block* is for how many seconds the reader will wait after the call. A queue of up to *declare* streams has all of
    them declared, unless these are *likely* to do. The server may run the call up to *delay* seconds later, because a
    blocking wait comes before it. *pumped*: it is the pump's.
    """
    holder = new_holder(state.draw)
    sent = state.clock.monotonic()
    numbers = _numbers(state, request, declare, likely)
    clock = state.server_time
    waiting = state.waiting.get("read")
    watches = pumped or waiting is None or waiting.pump is None
    time = clock.argument(sent, sent + delay) if clock else ""
    call = _call(state, request, delay + block, numbers, holder, time, _watch(state) if watches else "-")
    outstanding.visibility = round(request.visibility * 1000)
    outstanding.since = (clock.ms if clock else 0) + outstanding.visibility
    # The holder comes last: from here on a caller that is cancelled looks for what was granted, by the two above.
    outstanding.holder = holder
    # Noted with this call: only this jump is reported if the call is answered, though another may be seen meanwhile.
    jump = clock.jump if clock else None
    stays_until = sent + delay + block
    return ReadCall(call, request.count, holder, sent, request.visibility, len(numbers), jump, watches, stays_until)


def read_reply(state: QueueState, call: ReadCall, reply: Any, granted: float | None = None) -> ReadReply:
    """Read *reply* and note in *state* what it says. The server ran the call at local time *granted* or later."""
    # A queue that is gone is looked up by the next call, which says that it is missing or creates it.
    if reply[0] == b"NOQUEUE":
        state.forget()
        return ReadReply([], more=True, moved=True)
    granted = call.sent if granted is None else granted
    now_ms = int(reply[1])
    _note_time(state, call, now_ms, granted)
    state.hints = _hints(reply[4])
    rows = deliveries(
        reply, call.holder, safe_deadline(granted, call.visibility), is_timed=state.view.config.journal > 0
    )
    # The rows count anyway: the server has leased them, whatever this client believed of the queue.
    moved = reply[2].decode() != state.view.epoch
    if moved:
        state.forget()
    if reply[0] == b"MISS":
        _declare_more(state, call.declared)
    else:
        _declare_fewer(state, reply)
    wait_ms = int(reply[3])
    # A call of a reader that does not watch says nothing of when somebody must look again.
    if call.watches and (rows or reply[0] == b"OK"):
        state.watch = now_ms + wait_ms if wait_ms >= 0 else OTHERS_WATCH if wait_ms == _OTHERS_WATCH else 0
        state.turn = 0
    jumped = _has_jumped(state)
    found = ReadReply(rows, wait_ms, reply[0] != b"OK" or len(rows) == call.count, moved, jumped and not rows)
    if (waiting := state.waiting.get("read")) is not None:
        _note_left(waiting, call, found, jumped, state.clock.monotonic())
    return found


def _has_jumped(state: QueueState) -> bool:
    """Return whether a read is to tell the server of a jump of its clock. By that clock writers notify."""
    return state.server_time is not None and state.server_time.jump is not None


def _note_left(waiting: Waiting, call: ReadCall, found: ReadReply, jumped: bool, now: float) -> None:
    """Note whether the read left something, and until when writers notify."""
    if found.wait_ms == _NONE_LEFT and not (found.moved or jumped):
        waiting.emptied(call.sent, now)
        return
    waiting.left_some(now)
    if not (found.rows or found.more or found.moved or jumped):
        waiting.told_until = max(waiting.told_until, call.stays_until)


def _watch(state: QueueState) -> int | str:
    """Return what a read says of when this client was to look."""
    if state.turn:
        return f"{state.watch}/{state.turn}"
    return max(0, state.watch)


def plain_rows(state: QueueState, call: ReadCall, reply: Any) -> list[Received] | None:
    """Return the rows of *reply* if it has all that *call* asked for, and note in *state* what else it says.

    Return None for any other reply, and note nothing of it: `read_reply` reads it.
    """
    if reply[0] != b"OK" or reply[2].decode() != state.view.epoch:
        return None
    rows = deliveries(
        reply, call.holder, safe_deadline(call.sent, call.visibility), is_timed=state.view.config.journal > 0
    )
    if len(rows) != call.count:
        return None
    _note_time(state, call, int(reply[1]), call.sent)
    state.hints = _hints(reply[4])
    _declare_fewer(state, reply)
    if (waiting := state.waiting.get("read")) is not None:
        if reply[3] == _NONE_LEFT and not _has_jumped(state):
            waiting.emptied(call.sent, state.clock.monotonic())
        else:
            waiting.left_some(state.clock.monotonic())
    if call.watches:
        state.watch = state.turn = 0
    return rows


def _note_time(state: QueueState, call: ReadCall, ms: int, granted: float) -> None:
    """Note that *call*, which ran at local time *granted* or later, saw *ms* on the server's clock."""
    now = noted(state.server_time, ms, call.sent, granted, state.clock.monotonic())
    state.server_time = now if call.jump is None else now.reported(call.jump)


def _declare_fewer(state: QueueState, reply: Any) -> None:
    """After 64 reads without a miss, declare one stream less: each declared stream costs time on both sides.

    If this many brought messages and none out of a stream, nor a hint at one, none is declared: all wait in their
    turns.
    """
    of_streams, others, hints = reply[5], reply[6], reply[4]
    state.reads_beside_streams = state.reads_beside_streams + 1 if others and not of_streams and not hints else 0
    state.reads_without_miss += 1
    state.reads_after_miss += 1
    if state.reads_without_miss % READS_REMEMBERED == 0 and state.width > MIN_WIDTH:
        state.width -= 1


def _declare_more(state: QueueState, declared: int) -> None:
    """After a miss, declare twice as many streams, if the call had declared as many as it could.

    Other readers may have moved on to streams that this client did not expect.
    """
    state.reads_after_miss = state.reads_beside_streams = 0
    if declared >= state.width:
        state.width = min(max(state.view.streams, 1), state.width * 2)


def _hints(raw: bytes) -> tuple[str, ...]:
    if not raw:
        return ()
    return tuple(raw.decode().split(","))


@lru_cache(maxsize=64)
def all_numbers(streams: int) -> list[str]:
    """Return the numbers of the *streams*; nobody changes the list."""
    return [*map(str, range(streams))]


def _numbers(state: QueueState, request: ReadRequest, declare: int, likely: Collection[str]) -> list[str]:
    """Return which streams to declare: all if there are at most *declare*, else those that may come next."""
    view = state.view
    knows_little = (not state.hints and state.reads_beside_streams < READS_REMEMBERED) or (
        state.reads_after_miss < READS_REMEMBERED and request.count >= MIN_NAMED_READ
    )
    if not likely and view.streams <= (max(declare, ALL_KNOWN) if knows_little else declare):
        numbers = [*all_numbers(view.streams)]
        numbers += [hint for hint in state.hints if hint not in numbers]  # it may name a stream of a later resize
    else:
        most = max(state.width, request.count) if request.count < MIN_NAMED_READ else None
        numbers = list(dict.fromkeys([*likely, *state.hints[:most]]))
        if request.prefer is not None and str(request.prefer) not in numbers:
            numbers.append(str(request.prefer))
    if view.config.legacy_stream is not None:
        # The last one: the verb takes the last key for it, if it is no stream of the queue.
        numbers.append("l")
    return numbers


def _call(
    state: QueueState, request: ReadRequest, stays: float, numbers: list[str], holder: str, clock: str, watch: int | str
) -> Call:
    count, streams = request.count, state.view.streams
    own = len(numbers) - (numbers[-1:] == ["l"])
    has_all = 0 < own == streams and numbers[:own] == all_numbers(streams)
    # No hints where all streams are declared anyway.
    width = 0 if streams <= ALL_DECLARED else max(state.width, min(count, streams))
    prefer = "-" if request.prefer is None else request.prefer
    visibility, blocks = round(request.visibility * 1000), math.ceil(stays * 1000)
    due = "" if request.due is None else f"={request.due}"
    bare = " b" if request.is_bare else ""
    head = f"{count} {holder} {visibility} {blocks} {width} {prefer} {has_all:d} {watch}{due}{bare}"
    names = state.names
    rest = tuple([names[number] for number in numbers])
    return Call.on(state.keys, "read", (head, clock, state.client), rest=rest, few=_few(state, count))


def _few(state: QueueState, count: int) -> FewKeys | None:
    """Say that a read of *count* messages declares few keys; None if it declares all."""
    few = state.few["read"]
    return few if count == 1 and not (few.lacking and few.lacked()) else None

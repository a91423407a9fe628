"""Actions: redrive, delete, cancel or retry now what a filter selects, a piece at a time.

An action runs in the process that waits for it. It stands in Redis, so that others see it, stop it, and take it over if
that process is silent (lua/actions.lua). Each piece says by the holder's nonce that the action is still its own.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from shardq.arguments import MAX_BLOCK, seconds, shown, text, whole
from shardq.arguments import rate as checked_rate
from shardq.errors import ConfigError, LeaseLost, ShardqError
from shardq.model.action import ActionKind, ActionStatus
from shardq.model.where import Where
from shardq.ops.operate.selection import LETTERS, Bounds, Chosen, Search, check, next_page
from shardq.ops.queue.opening import missing, require_queue
from shardq.ops.queue.retry import Same, always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Call, Op, Sleep
from shardq.ops.queue.who import MAX_BY, NOBODY, Who
from shardq.protocol.actions import AskedAction, StoredAction, spelled, statuses, stored

MESSAGES_A_CALL: Final = 100
"""Messages that one call acts on."""

PIECE_IN_FLIGHT: Final = 10
"""The same of messages in flight: the journal tells of each how often it was delivered, which takes a search."""

MAX_CHOSEN_AHEAD: Final = 5_000
"""Messages that are chosen ahead."""

RENEWED_SECONDS: Final = 5.0
"""Seconds after which an action that has nothing to do says that it is there."""

RATE_INTERVAL: Final = 0.1
"""Seconds between two pieces of an action with a rate, if these have a message in them."""

MAX_LIMIT: Final = 2**40


@dataclass(eq=False)
class Running:
    """An action, as the process has it that works on it. Times are of its monotonic clock.

    `chosen` are messages to come, which the `search` has found; `seen` are those that were acted on, so that one which
    fails again meanwhile is not retried for ever. In this pass of the search it `acted` on this many.
    """

    state: QueueState
    id: str
    holder: str
    record: StoredAction
    search: Search
    chosen: deque[Chosen] = field(default_factory=deque)
    seen: set[str] = field(default_factory=set)
    acted: int = 0
    heard_at: float = 0.0
    next_at: float = 0.0
    is_over: bool = False
    is_waited_for: bool = False

    @property
    def left(self) -> int | None:
        """About how many are to come; None if that is not known yet."""
        if not (self.search.is_over or self.is_over):
            return None
        limit = self.record.asked.limit
        return len(self.chosen) if limit is None else min(len(self.chosen), max(0, limit - self.record.done))


def new_id() -> str:
    """Return the id of a new action."""
    return secrets.token_hex(4)


def begin(
    state: QueueState,
    kind: ActionKind,
    where: Where,
    rate: float | None,
    limit: int | None,
    who: Who,
    timeout: float | None,
    via: str = "",
    action_id: str = "",
) -> Op[Running]:
    """Begin an action. ConfigError if something is wrong with it, or another one is under way.

    *via* names the program that begins it, so that it finds its own after a restart. *action_id* is a `new_id`, by
    which the caller finds it if no answer comes; a queue with partitions has the same one in all. One of these may have
    a *limit* of 0.
    """
    check(kind, where)
    if rate is not None:
        checked_rate("rate", rate)
    if limit is not None:
        whole("limit", limit, 0 if action_id else 1, MAX_LIMIT)
    who.said_by(state)  # it is checked
    asked = AskedAction(kind, where, who.by or state.client[:MAX_BY], who.note or "", rate or None, limit, via)
    until = state.until(timeout)
    yield from require_queue(state, until)
    action_id, holder = action_id or new_id(), secrets.token_hex(8)
    reply = yield from _steer(state, "begin", action_id, holder, until, spelled(asked))
    return _running(state, action_id, holder, reply)


def take_over(state: QueueState, action_id: str, timeout: float | None, how: str = "take") -> Op[Running]:
    """Continue an action whose process is silent, or that failed or was stopped. ConfigError if it is no such.

    *how* "adopt" leaves alone what failed, and what somebody stopped, be it in this instant.
    """
    until, holder = state.until(timeout), secrets.token_hex(8)
    yield from require_queue(state, until)
    reply = yield from _steer(state, how, _checked_id(action_id), holder, until)
    return _running(state, action_id, holder, reply)


def stop(state: QueueState, action_id: str, timeout: float | None, who: Who = NOBODY) -> Op[ActionStatus]:
    """Stop an action, even one that another process works on.

    It is over with its next piece. ConfigError if there is none.
    """
    reply = yield from _steer(state, "stop", _checked_id(action_id), "-", state.until(timeout), who=who)
    return _stored(reply).status(action_id, float(reply[1]))


def actions(state: QueueState, timeout: float | None) -> Op[list[ActionStatus]]:
    """Return what is under way, and was on the last day, the newest first."""
    call = Call.on(state.keys, "actions")
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if reply == b"NOQUEUE":
        raise missing(state)
    return statuses(reply)


def status(running: Running, timeout: float | None) -> Op[ActionStatus]:
    """Return how the action is, as Redis has it. ConfigError if that does not know it any more."""
    for each in (yield from actions(running.state, timeout)):
        if each.id == running.id:
            return each
    raise _gone(running.state, running.id)


def work(running: Running, seconds_to_wait: float | None) -> Op[None]:
    """Work on the action until it is over, or for this many seconds. LeaseLost if another process took it over."""
    clock, until = running.state.clock, None
    if seconds_to_wait is not None:
        until = clock.monotonic() + seconds("timeout", seconds_to_wait, 0, MAX_BLOCK)
    if running.is_waited_for:
        raise ConfigError(f"action {running.id} is waited for already by this process")
    running.is_waited_for = True
    try:
        while not running.is_over:
            if not running.chosen:
                yield from _choose(running, until)
            yield from _next_piece(running, until)
            if until is not None and clock.monotonic() >= until:
                return
    finally:
        running.is_waited_for = False


def _choose(running: Running, until: float | None) -> Op[None]:
    """Choose messages ahead. The search begins again where the last pass acted on some: lists change under it."""
    search, clock = running.search, running.state.clock
    if search.is_over and running.acted and running.record.asked.kind not in LETTERS:
        search.restart()
        running.acted = 0
    while not search.is_over and len(running.chosen) < MAX_CHOSEN_AHEAD:
        for each in (yield from next_page(running.state, search)):
            if each.message_id not in running.seen:
                running.chosen.append(each)
        if clock.monotonic() - running.heard_at > RENEWED_SECONDS:
            yield from _act(running, [])
        if running.is_over or (until is not None and clock.monotonic() >= until):
            return


def _next_piece(running: Running, until: float | None) -> Op[None]:
    """Act on the next messages, when it is time for them; end the action if there are none."""
    clock, asked = running.state.clock, running.record.asked
    if running.is_over:
        return
    room = MAX_LIMIT if asked.limit is None else asked.limit - running.record.done
    if room <= 0 or (not running.chosen and running.search.is_over and (asked.kind in LETTERS or not running.acted)):
        running.chosen.clear()
        yield from _act(running, [], "done")
        return
    if not running.chosen:
        return
    if asked.rate:
        now = clock.monotonic()
        # A process that stood still does not make up for it.
        running.next_at = max(running.next_at, now - RATE_INTERVAL)
        if running.next_at > now:
            pause = min(running.next_at - now, RENEWED_SECONDS, MAX_BLOCK if until is None else max(0.0, until - now))
            yield Sleep(pause)
            if clock.monotonic() < running.next_at:
                if clock.monotonic() - running.heard_at >= RENEWED_SECONDS:
                    yield from _act(running, [])
                return
    piece = _piece_of(running, room)
    if asked.rate:
        running.next_at += len(piece) / asked.rate
    try:
        yield from _act(running, piece)
    except ShardqError:
        # It may have been acted on: the next process learns that, or finds that these have changed.
        running.chosen.extendleft(reversed(piece))
        raise


def _piece_of(running: Running, room: int) -> list[Chosen]:
    """Take the messages of the next piece."""
    rate, chosen = running.record.asked.rate, running.chosen
    most = min(MESSAGES_A_CALL, room, len(chosen))
    if rate:
        most = min(most, max(1, int(rate * RATE_INTERVAL)))
    if chosen[0].state == "in_flight":
        most = min(most, PIECE_IN_FLIGHT)
    return [chosen.popleft() for _ in range(most)]


def _act(running: Running, piece: list[Chosen], becomes: str = "running", problem: str = "") -> Op[None]:
    """Make the call for a piece, and note what became of it. Repeated, it does nothing twice: pieces are counted."""
    state, record, asked = running.state, running.record, running.record.asked
    until, is_ours = state.until(), asked.by == state.client[:MAX_BY]
    position = piece[-1].entry if piece and asked.kind in LETTERS else record.position
    said = Who(None if is_ours else asked.by, asked.note).said_by(state)
    args: list[Argument] = [
        running.id, running.holder, record.step, said, asked.kind, becomes, position,
        "-" if running.left is None else running.left, problem,
    ]  # fmt: skip
    for each in piece:
        args += (each.message_id, each.origin, each.entry, each.key, each.state, each.deliveries)
    streams = tuple(dict.fromkeys(stream for each in piece for stream in each.streams))
    call = Call.on(state.keys, "act", tuple(args), rest=streams)
    reply = yield from retry_until(Same(call), until, state.clock)
    if reply[0] == b"NOQUEUE":
        raise missing(state)
    if reply[0] == b"LOST":
        running.is_over = True
        raise LeaseLost(f"action {running.id} is another process's by now, or forgotten: this one does no more of it")
    _, told, acted, passed, left_over = reply
    record.step, record.position = record.step + 1, record.position if int(left_over) else position
    record.done, record.passed = record.done + int(acted), record.passed + int(passed)
    running.acted, running.heard_at = running.acted + int(acted), state.clock.monotonic()
    if asked.kind == "retry_now":
        running.seen.update(each.message_id for each in piece)
    running.is_over = told in (b"done", b"stopped", b"failed")
    if running.is_over:
        return
    if int(left_over):
        text_of = f"the queue may hold no more messages (max_len): {int(left_over):,} dead letters of a piece were left"
        yield from _act(running, [], "failed", text_of)
    elif told == b"stopping":
        yield from _act(running, [], "stopped")


def _steer(
    state: QueueState, how: str, action_id: str, holder: str, until: float, spec: str = "", who: Who = NOBODY
) -> Op[Any]:
    call = Same(Call.on(state.keys, "steer", (how, action_id, holder, spec, who.said_by(state))))
    reply = yield from retry_until(call, until, state.clock)
    match reply:
        case [b"OK", *_]:
            return reply
        case [b"NOQUEUE"]:
            raise missing(state)
        case [b"BUSY", other]:
            raise ConfigError(
                f"action {other.decode()} is under way on queue {state.keys.name!r}, and one runs at a time: let it "
                "end, or stop it"
            )
        case [b"RUNNING"]:
            raise ConfigError(f"somebody works on action {action_id}: it can be taken over when it is silent for 30 s")
        case [b"OVER", word]:
            raise ConfigError(f"action {action_id} is over: {word.decode()}")
    raise _gone(state, action_id)


def _gone(state: QueueState, action_id: str) -> ConfigError:
    return ConfigError(f"queue {state.keys.name!r} knows no action {shown(action_id)}: it keeps 20, for a day")


def _stored(reply: Any) -> StoredAction:
    record = stored(reply[2])
    if record is None:
        raise ConfigError("another program wrote this action, or another version of shardq")
    return record


def _running(state: QueueState, action_id: str, holder: str, reply: Any) -> Running:
    record = _stored(reply)
    bounds = Bounds(record.started / 1000, record.last, max(record.started, record.last_ms), record.last_letter)
    search = Search(record.asked.kind, record.asked.where, bounds)
    search.restart()
    if record.asked.kind in LETTERS and record.position:
        search.after = record.position
    now = state.clock.monotonic()
    return Running(state, action_id, holder, record, search, heard_at=now, next_at=now)


def _checked_id(action_id: str) -> str:
    if not text("an action's id", action_id).isalnum() or not action_id.isascii() or len(action_id) > 64:
        raise ConfigError(f"an action's id is what actions() shows, not {shown(action_id)}")
    return action_id

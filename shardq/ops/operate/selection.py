"""Which messages a filter selects: they are looked up page by page, and nothing is changed.

The caller says for each of them where it was and how often it had been delivered, so that a message that has changed
since is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from shardq.errors import ConfigError
from shardq.model import DeadLetter, MessageId, PeekedMessage, PeekState
from shardq.model.action import ActionKind
from shardq.model.where import Where, WhereState
from shardq.ops.inspect.dead_letters import dead_letters
from shardq.ops.inspect.peek import peek
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.settle.cancel import located
from shardq.sharding import key_bytes

MESSAGES_A_PAGE: Final = 500
"""Messages that are looked at by one page."""

LETTERS: Final[frozenset[ActionKind]] = frozenset({"redrive", "delete_dead"})
"""The actions on dead letters."""

STATES: Final[Mapping[ActionKind, tuple[WhereState, ...]]] = {
    "redrive": ("dead",),
    "delete_dead": ("dead",),
    "cancel": ("waiting", "delayed", "retrying", "in_flight"),
    "retry_now": ("retrying",),
}
"""The states of messages that an action can be about."""

_LISTS: Final[tuple[PeekState, ...]] = ("waiting", "delayed", "in_flight")


class Chosen(NamedTuple):
    """A message that was selected, as `act` gets it. For a dead letter only `entry` counts: its entry id."""

    message_id: str
    origin: str
    entry: str
    key: bytes
    state: str
    deliveries: int
    streams: tuple[str, ...] = ()


class Bounds(NamedTuple):
    """The messages that an action is about: up to the number `last`, dead letters up to the entry id `letter`.

    The clock does not tell that, since it may have been set back. By it the action began at `started`, in seconds;
    messages that other programs wrote have no number, so those up to `last_ms` in their ids are meant.
    """

    started: float
    last: int
    last_ms: int
    letter: str


class Search(msgspec.Struct):
    """How far the search of an action has come.

    It is about what was there when the action began. Dead letters come after the entry id `after`; others stand behind
    `cursor` in the list `lists[0]`.
    """

    kind: ActionKind
    where: Where
    bounds: Bounds
    after: str = "-"
    cursor: str | None = None
    lists: tuple[PeekState, ...] = ()
    is_over: bool = False

    def restart(self) -> None:
        """Begin again."""
        self.after, self.cursor, self.is_over = "-", None, False
        if self.kind in LETTERS:
            self.lists = ("dead",)
        elif self.kind == "retry_now" or self.where.state in ("delayed", "retrying"):
            self.lists = ("delayed",)
        elif self.where.state == "in_flight":
            self.lists = ("in_flight",)
        else:
            self.lists = _LISTS  # what came due, or has lost its holder, waits, but no read has moved it yet


def check(kind: ActionKind, where: Where) -> None:
    """ConfigError if the action cannot be about such messages."""
    if not isinstance(where, Where):
        raise ConfigError(f"say which messages by a Where(...), not by {type(where).__name__}")
    states = STATES[kind]
    if where.state is not None and where.state not in states:
        raise ConfigError(
            f"{kind} is about messages that are {' or '.join(states)}, and not about those that are {where.state}"
        )
    if where.is_empty:
        raise ConfigError(f"Where() says nothing: say which messages, with Where(state={states[0]!r}) for all")


def next_page(state: QueueState, search: Search) -> Op[list[Chosen]]:
    """Return those of the next page that are meant. The search notes where it continues, or that it is over."""
    if search.kind in LETTERS:
        return (yield from _letters(state, search))
    where, wanted = search.where, search.lists[0]
    parents = bool(state.view.config.parents)
    # Only of a shard key that is nobody's parent can the server look for it.
    only = where.tenant if where.tenant is not None and not parents else None
    page = yield from peek(
        state, MESSAGES_A_PAGE, only, None, wanted, payloads=False, after=search.cursor, timeout=None
    )
    search.cursor = page.cursor
    if page.cursor is None:
        search.lists = search.lists[1:]
        search.is_over = not search.lists
    now = page.time
    return [
        _chosen(state, each)
        for each in page.messages
        if not each.cancelled and _was_there(search.bounds, each) and _selects(where, each, now, parents, search.kind)
    ]


def _was_there(bounds: Bounds, each: PeekedMessage) -> bool:
    """Return whether a message was there when the action began."""
    parsed = MessageId.parse(each.message_id)
    if parsed.place == "l":
        return parsed.written_ms <= bounds.last_ms
    return int(parsed.entry.partition("-")[2]) <= bounds.last


def _letters(state: QueueState, search: Search) -> Op[list[Chosen]]:
    letters = yield from dead_letters(state, MESSAGES_A_PAGE, search.after)
    if letters:
        search.after = letters[-1].entry_id
    last = _ordered(search.bounds.letter)
    search.is_over = len(letters) < MESSAGES_A_PAGE or _ordered(letters[-1].entry_id) > last
    parents = bool(state.view.config.parents)
    return [
        Chosen("0-0-d", "d", each.entry_id, b"", "dead", 0)
        for each in letters
        if _ordered(each.entry_id) <= last and selects_letter(search.where, each, search.bounds.started, parents)
    ]


def _ordered(entry_id: str) -> tuple[int, int]:
    """Return an entry id as what orders it."""
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number)


def _chosen(state: QueueState, each: PeekedMessage) -> Chosen:
    entry, place = MessageId.parse(each.message_id)
    origin, key, streams = located(state, place)
    told = "waiting" if each.state == "held_back" else each.state
    return Chosen(each.message_id, origin, entry, key, told, each.deliveries, streams)


def _selects(where: Where, each: PeekedMessage, now: float, parents: bool, kind: ActionKind) -> bool:
    is_retrying = each.state == "delayed" and each.deliveries > 0 and each.reason != "max_dead"
    if kind == "retry_now" and not is_retrying:
        return False
    match where.state:
        case "retrying":
            if not is_retrying:
                return False
        case "waiting":
            if each.state not in ("waiting", "held_back"):
                return False
        case None:
            pass
        case wanted:
            if each.state != wanted:
                return False
    return (
        _is_of(where, each.shard_key, parents)
        and (where.task is None or where.task == each.task)
        and (where.error is None or has_error(where.error, each))
        and (where.reason is None or where.reason == _reason_of(each))
        and _is_aged(where, now - each.written_at)
    )


def selects_letter(where: Where, each: DeadLetter, now: float, parents: bool) -> bool:
    """Return whether a filter means this dead letter, at the server's time *now*, in a queue with *parents* or not."""
    return (
        _is_of(where, each.shard_key, parents)
        and (where.task is None or where.task == each.task)
        and (where.error is None or has_error(where.error, each))
        and (where.reason is None or where.reason == each.failure_reason or where.reason in each.reason)
        and _is_aged(where, now - each.died_at)
    )


def has_error(error: str, each: PeekedMessage | DeadLetter) -> bool:
    """Return whether *error* is the class of the message's last error, or stands in its text."""
    return error == each.error_type or error in each.last_error


def _reason_of(each: PeekedMessage) -> str:
    """Return how the last try of a message failed that is not dead."""
    if each.last_error == "lease ended":
        return "lease ended"
    return "retry" if each.last_error else ""


def _is_of(where: Where, shard_key: str | bytes, parents: bool) -> bool:
    if where.tenant is None:
        return True
    if not shard_key:  # another program wrote it
        return False
    name, key = key_bytes(where.tenant), key_bytes(shard_key)
    return key == name or (parents and (key.split(b"/")[0] or key) == name)


def _is_aged(where: Where, age: float) -> bool:
    is_old = where.older_than is None or age >= where.older_than
    return is_old and (where.newer_than is None or age < where.newer_than)

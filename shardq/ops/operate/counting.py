"""How many messages an action would be about: they are looked up as it would, and nothing is changed."""

from __future__ import annotations

from typing import Final, NamedTuple

from shardq.model.action import ActionKind
from shardq.model.where import Where
from shardq.ops.operate.selection import Bounds, Search, check, next_page
from shardq.ops.queue.opening import missing, require_queue
from shardq.ops.queue.retry import always, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.replies import pairs

_ANY_MS: Final = 2**63
MAX_PAGES: Final = 200
"""Pages of 500 messages that a glance looks at."""


class Counted(NamedTuple):
    """How many messages were found, and whether these are all: no more were looked at than there was time for."""

    found: int
    are_all: bool


def count(
    state: QueueState, kind: ActionKind, where: Where, now: float, limit: int | None, timeout: float | None
) -> Op[int]:
    """Return how many messages *where* selects of those that are there, at most *limit*. *now* is the server's time.

    ConfigError if the action cannot be about such messages; QueueMissing if there is no such queue.
    """
    check(kind, where)
    until = state.until(timeout)
    yield from require_queue(state, until)
    search, found = Search(kind, where, (yield from _bounds(state, now, until))), 0
    search.restart()
    while not search.is_over and (limit is None or found < limit):
        found += len((yield from next_page(state, search)))
    return found if limit is None else min(found, limit)


def glance(
    state: QueueState, kind: ActionKind, where: Where, now: float, *, seconds: float, timeout: float | None = None
) -> Op[Counted]:
    """Return how many messages *where* selects, among those that can be looked at in a few *seconds*.

    Errors as `count`.

    *now* is the server's time.
    """
    check(kind, where)
    until, ends = state.until(timeout), state.clock.monotonic() + seconds
    yield from require_queue(state, until)
    search, found = Search(kind, where, (yield from _bounds(state, now, until))), 0
    search.restart()
    for _ in range(MAX_PAGES):
        found += len((yield from next_page(state, search)))
        if search.is_over or state.clock.monotonic() > ends:
            break
    return Counted(found, search.is_over)


def _bounds(state: QueueState, now: float, until: float) -> Op[Bounds]:
    """Return what is there now."""
    facts = pairs((yield from retry_until(always(Call.on(state.keys, "facts")), until, state.clock)))
    if "n" not in facts:
        raise missing(state)
    letters = yield from ask(state, "XREVRANGE", state.keys.dead, "+", "-", "COUNT", 1, until=until)
    return Bounds(now, int(facts["n"]), _ANY_MS, letters[0][0].decode() if letters else "0-0")

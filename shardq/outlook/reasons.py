"""For what messages wait: reasons that exclude one another, and add up to what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardq.model.outlook import WAIT_REASONS, WaitReason
from shardq.model.waiter import Waiter
from shardq.outlook.facts import Facts
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Parts

Reasons = dict[WaitReason, int]
REASON_WORDS: Final[Mapping[WaitReason, tuple[str, str]]] = {
    "worker": ("for a worker", "none reads this queue"),
    "turn": ("for a turn", "others are served in between, each its share"),
    "limit": ("for a limit", "its own limit, or its plan's, allows no more now"),
    "pause": ("paused", "somebody paused it"),
    "delay": ("not due yet", "written for later"),
    "retry": ("to be tried again", "it failed, and waits for its next try"),
}
"""The name of each reason, and its meaning."""


def nothing() -> Reasons:
    """Return that nothing waits."""
    return dict.fromkeys(WAIT_REASONS, 0)


def of_queue(facts: Facts) -> Reasons:
    """Return for what all messages wait: they add up to the backlog and the delayed messages of the stats, exactly."""
    found, stats = nothing(), facts.stats
    backlog, delayed = max(0, stats.backlog), max(0, stats.delayed)
    found["retry"] = _within(stats.retrying, delayed)
    found["delay"] = delayed - found["retry"]
    if facts.paused_until is not None:
        found["pause"] = backlog
        return found
    limited = _within(stats.limited, backlog)
    found["pause"] = _within(_paused(facts), limited)
    others = backlog - limited
    # A read could get less now only where the limits of the whole queue say so.
    runnable = _within(stats.runnable, others)
    found["limit"] = limited - found["pause"] + others - runnable
    found["turn" if facts.has_reader else "worker"] = runnable
    return found


def of_waiter(facts: Facts, waiter: Waiter) -> Reasons:
    """Return for what the messages of one shard key wait: they add up to its backlog and its delayed messages."""
    found = nothing()
    found["retry"] = _within(waiter.retrying, waiter.delayed)
    found["delay"] = waiter.delayed - found["retry"]
    if facts.paused_until is not None:
        found["pause"] = waiter.backlog
        return found
    blocked = _within(waiter.blocked, waiter.backlog)
    found["pause" if waiter.paused_until is not None else "limit"] = blocked
    found["turn" if facts.has_reader else "worker"] = waiter.backlog - blocked
    return found


def _paused(facts: Facts) -> int:
    """Return how many messages wait for pauses of shard keys; an estimate where not all were looked at."""
    rows = [each for each in facts.waiters.rows if each.blocked]
    paused = sum(each.blocked for each in rows if each.paused_until is not None)
    found = sum(each.blocked for each in rows)
    if facts.waiters.are_all or found == 0:
        # It is from a moment later than the stats, so among those that wait for anything it is a share, too.
        return facts.stats.limited if paused and paused == found else paused
    return round(facts.stats.limited * paused / found)


def _within(number: int, most: int) -> int:
    return max(0, min(number, most))


def why(facts: Facts) -> dict[WaitReason, Parts]:
    """Return what each reason means in this queue."""
    found: dict[WaitReason, Parts] = {reason: [meaning] for reason, (_, meaning) in REASON_WORDS.items()}
    if facts.paused_until is not None:
        by = f" by {name_of(facts.stats.paused_by)}" if facts.stats.paused_by else ""
        found["pause"] = [f"the whole queue is paused{by}"]
    elif facts.waiters.total_in_flight or facts.waiters.total_rate:
        found["limit"] = ["limits of shard keys, of their plans, or of the whole queue allow no more now"]
    heard = max((each.heard for each in facts.workers), default=facts.last_read)
    if not facts.has_reader and heard is not None:
        found["worker"] = ["none reads this queue since ", At(max(heard, facts.last_read or heard), facts.now)]
    return found

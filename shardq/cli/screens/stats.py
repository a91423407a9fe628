"""The screen of one queue: how it is, who waits and for what, what would help, and all of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.cli.width import columns, cut, width, wrapped
from shardq.model.outlook import WAIT_REASONS, Help, Outlook
from shardq.model.verdict import Verdict
from shardq.model.wording import number, span

REASONS: Final = {
    "worker": "for a worker",
    "turn": "for a turn",
    "limit": "a limit",
    "pause": "paused",
    "delay": "not due",
    "retry": "a retry",
}
"""For what a message waits, before how many do."""
MAX_HELPS: Final = 4


def lines(verdict: Verdict, outlook: Outlook) -> list[str]:
    """Return how the queue is, who waits, and what would help."""
    return [*wrapped(verdict.sentence), *waiting(outlook), *helps(outlook.helps)]


def waiting(outlook: Outlook) -> list[str]:
    """Return for what how many wait, and when what waits is served."""
    if not outlook.waits:
        return []
    parts = [
        f"{REASONS[reason]} {number(outlook.reasons[reason])}" for reason in WAIT_REASONS if outlook.reasons.get(reason)
    ]
    return _beside(f"waiting {number(outlook.waits)}: {', '.join(parts)}", drains(outlook), gap=5)


def drains(outlook: Outlook) -> str:
    """When what waits is served."""
    if outlook.drains == "empty":
        return ""
    if outlook.drains == "drains":
        return f"drains in {span(outlook.drain_seconds)}"
    return outlook.why or {"grows": "it grows", "stands": "it stands"}.get(outlook.drains, "drains: nobody knows yet")


def helps(found: Sequence[Help]) -> list[str]:
    """Return what would help, and what would not."""
    told: list[str] = []
    for each in found[:MAX_HELPS]:
        is_of_all = each.helps and each.seconds is not None and each.shard_key is None
        change = span(each.seconds) if is_of_all else each.text
        what = cut(each.what, columns() // 2)
        line = f"{what}: {cut(change, columns() - width(what) - 2)}"
        told = _beside(told, line, gap=4) if told else [line]
    return told


def _beside(told: str | list[str], more: str, *, gap: int) -> list[str]:
    """Return a text with another one behind it, or below it where there is no room."""
    before = wrapped(told, indent="  ") if isinstance(told, str) else told
    if not more:
        return before
    if width(before[-1]) + gap + width(more) <= columns():
        return [*before[:-1], f"{before[-1]}{' ' * gap}{more}"]
    return [*before, *wrapped(more)]

"""Schedules in words: what runs next, and why a call will be late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from shardq.model.outlook import Outlook
from shardq.model.schedule import Schedule
from shardq.model.status import MessageStatus
from shardq.model.verdict import Verdict
from shardq.model.wording import plural, span
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Bold, Parts

RunKind: TypeAlias = Literal["done", "failed", "retry", "waits", "runs", "comes"]
"""The outcome of a call: "comes" is one that is not due yet, "done" also one that nothing is known of any more."""

_KINDS: Final[dict[str, RunKind]] = {"dead": "failed", "in_flight": "runs", "done": "done", "unknown": "done"}
_WORDS: Final[dict[RunKind, str]] = {
    "done": "done", "failed": "failed", "retry": "is tried again", "waits": "waits", "runs": "runs", "comes": "not due",
}  # fmt: skip


def became(status: MessageStatus) -> tuple[RunKind, str]:
    """Return what became of a call of a schedule, and that in words.

    Nothing but its result is kept of a call that was settled, if the queue keeps results: without, it was done, or
    somebody removed it.
    """
    kind = _KINDS.get(status.state, "waits")
    if status.state == "delayed":
        kind = "retry" if status.deliveries else "comes"
    return kind, "settled" if status.state == "unknown" else _WORDS[kind]


def why_late(queue: str, verdict: Verdict, outlook: Outlook) -> str:
    """Say why calls of a queue's schedules will not be done when they are due; '' if nothing is in their way."""
    if verdict.kind == "redis_full":
        return "Redis is full: its calls cannot be written"
    if not outlook.is_read:  # workers write the calls, so these are not even written
        return f"no worker reads {queue}: nobody writes its calls"
    if verdict.kind == "paused":
        return f"{queue} is paused: its calls will wait"
    return ""


def heading(schedules: Sequence[Schedule], late: int, failed: Sequence[str], now: float) -> Parts:
    """Return which comes next, how many will be *late*, and which *failed* at their last run."""
    if not schedules:
        return [Bold("No schedule"), " is stored."]
    coming = [each for each in schedules if each.next is not None]
    if coming:
        first = min(coming, key=lambda each: each.next or 0.0)
        parts: Parts = [Bold(name_of(first.name)), " is next, in ", Bold(span((first.next or now) - now)), "."]
    elif len(schedules) == 1:
        parts = [Bold("The only schedule"), " is paused."]
    else:
        parts = [Bold(f"All {plural(len(schedules), 'schedule')}"), " are paused."]
    if late:
        parts += [" ", Bold(plural(late, "schedule")), " will be late."]
    if failed:
        more = f" and {plural(len(failed) - 1, 'other')}" if len(failed) > 1 else ""
        parts += [" ", Bold(f"{name_of(failed[0])}{more}"), " failed at ", "the last run." if more else "its last run."]
    return parts

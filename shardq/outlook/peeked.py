"""A message that was looked at, in a few words."""

from __future__ import annotations

from shardq.model.peeked import PeekedMessage
from shardq.model.wording import span


def when(message: PeekedMessage, now: float) -> str:
    """When a message comes due or its lease ends; else for how long it has waited, or since when it is dead."""
    if message.cancelled:
        return "cancelled"
    if message.until is not None and message.until > now:
        return f"{'due in' if message.state == 'delayed' else 'leased'} {span(message.until - now)}"
    since = message.until or message.since or message.written_at
    verb = {"held_back": "held", "dead": "died"}.get(message.state, "waits")
    return f"{verb} {span(max(0.0, now - since))}"

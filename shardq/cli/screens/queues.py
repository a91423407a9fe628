"""The screen of all queues: which of them need somebody, and how each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardq.cli.grid import Column, Rest, grid
from shardq.cli.width import wrapped
from shardq.model.outlook import Outlook
from shardq.model.wording import short_number, span
from shardq.outlook.queues import QueueLook, sentences, worst_first

TABLE: Final = (
    Column("QUEUE", 12),
    Column("STATE", begins=True),
    Column("WAITING"),
    Column("FLIGHT"),
    Column("DEAD"),
    Column("OLDEST"),
    Column("DRAINS"),
    Column("BUSY"),
)
STATES: Final = {
    "redis_full": "full",
    "no_worker": "no worker",
    "paused": "paused",
    "failing": "fails",
    "flood": "flooded",
    "grows": "grows",
    "flows": "flows",
    "quiet": "quiet",
    "idle": "idle",
}


def lines(looks: Sequence[QueueLook]) -> list[str]:
    """Return the sentence on all of them, and a table with a line on each."""
    ordered = worst_first(looks)
    return [*heading(ordered), *grid(TABLE, map(_row, ordered))]


def heading(ordered: Sequence[QueueLook]) -> list[str]:
    """Return how the queues are, the worst first: what is wrong, behind how many need you if more are named."""
    return [line for each in sentences(ordered) for line in wrapped("".join(each.parts), indent="  ")]


def _row(look: QueueLook) -> list[str | Rest]:
    if look.stats is None:
        return [look.name, Rest("unreadable: this user may not look at it")]
    if look.is_missing:
        return [look.name, Rest("missing: Redis lost its keys")]
    now, outlook = look.stats, look.outlook
    return [
        look.name,
        STATES[look.verdict.kind] if look.verdict else "",
        short_number(now.backlog),
        short_number(now.in_flight),
        short_number(now.dead),
        "-" if now.oldest_age is None else span(now.oldest_age),
        drains(outlook),
        f"{round(outlook.busy):,}/{outlook.slots:,}" if outlook and outlook.slots else "-",
    ]


def drains(outlook: Outlook | None) -> str:
    """When the backlog is served, in a word."""
    if outlook is None or outlook.drains in ("unknown", "empty"):
        return "-"
    return span(outlook.drain_seconds) if outlook.drains == "drains" else outlook.drains

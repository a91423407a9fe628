"""The screen of all queues: which of them need somebody, and how each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from shardq.cli.grid import Column, Rest, grid
from shardq.cli.width import wrapped
from shardq.model.outlook import Outlook
from shardq.model.stats import QueueStats
from shardq.model.verdict import SEVERITIES, VERDICT_KINDS, Verdict
from shardq.model.wording import plural, short_number, span

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


class QueueLook(NamedTuple):
    """One queue: its numbers (None if this user may not read them), and what is reckoned of them if that can be."""

    name: str
    stats: QueueStats | None
    verdict: Verdict | None = None
    outlook: Outlook | None = None

    @property
    def is_missing(self) -> bool:
        """Whether it was declared, and Redis lost its keys."""
        return self.stats is not None and not self.stats.streams

    @property
    def needs_you(self) -> bool:
        """Whether somebody should do something about it now."""
        return self.is_missing or (self.verdict is not None and self.verdict.severity == "bad")

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """Where it stands: the worst first, then by what is wrong, then the one of which most waits."""
        if self.verdict is None:
            return 0 if self.is_missing else len(SEVERITIES), 0, 0, self.name
        backlog = self.stats.backlog if self.stats else 0
        kind = VERDICT_KINDS.index(self.verdict.kind)
        return SEVERITIES.index(self.verdict.severity), kind, -backlog, self.name


def worst_first(looks: Sequence[QueueLook]) -> list[QueueLook]:
    """Return the queues in the order in which they need somebody."""
    return sorted(looks, key=lambda look: look.rank)


def lines(looks: Sequence[QueueLook]) -> list[str]:
    """Return the sentence on all of them, and a table with a line on each."""
    ordered = worst_first(looks)
    return [*heading(ordered), *grid(TABLE, map(_row, ordered))]


def heading(ordered: Sequence[QueueLook]) -> list[str]:
    """Return how the queues are, the worst first: what is wrong, behind how many need you if more are named."""
    if not ordered:
        return []
    full = next((look.verdict for look in ordered if look.verdict and look.verdict.kind == "redis_full"), None)
    told = [look for look in ordered if look.is_missing or (look.verdict and look.verdict.severity != "good")]
    if full is not None:  # it is the same of all queues
        told = [look for look in told if look.verdict and look.verdict.kind != "redis_full"]
        return [line for text in (full.sentence, *map(_named, told)) for line in wrapped(text, indent="  ")]
    if len(told) == 1:
        return wrapped(_sentence(told[0]), indent="  ")
    need = sum(look.needs_you for look in told)
    begins = [f"{need} of {len(ordered)} queues {'needs' if need == 1 else 'need'} you."] if need else []
    lines = [line for look in told for line in wrapped(_named(look), indent="  ")]
    return [*begins, *lines] if told else [_all_well(ordered)]


def _all_well(ordered: Sequence[QueueLook]) -> str:
    if not all(look.verdict for look in ordered):
        return f"{plural(len(ordered), 'queue')}."
    flows = any(look.verdict and look.verdict.kind == "flows" for look in ordered)
    where = f"in all {len(ordered):,} queues" if len(ordered) > 1 else f"in {ordered[0].name}"
    return f"{'Work flows' if flows else 'Nothing waits'} {where}."


def _sentence(look: QueueLook) -> str:
    if look.verdict is None:
        return f"{look.name} is missing: Redis lost its keys, or somebody deleted them."
    return look.verdict.sentence


def _named(look: QueueLook) -> str:
    """The sentence of a queue, which names it: among those of others."""
    sentence = _sentence(look)
    return sentence if sentence.startswith(f"{look.name} ") else f"{look.name}: {sentence}"


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

"""All queues in a few sentences: how many of them need somebody, and what is wrong, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shardq.model.outlook import Outlook
from shardq.model.stats import QueueStats
from shardq.model.verdict import SEVERITIES, VERDICT_KINDS, Verdict
from shardq.model.wording import plural
from shardq.outlook.sentence import Bold, Parts, parts_of


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
        """Its place: the worst first, then by the problem, then the one with most waiting."""
        if self.verdict is None:
            return 0 if self.is_missing else len(SEVERITIES), 0, 0, self.name
        backlog = self.stats.backlog if self.stats else 0
        kind = VERDICT_KINDS.index(self.verdict.kind)
        return SEVERITIES.index(self.verdict.severity), kind, -backlog, self.name


def worst_first(looks: Sequence[QueueLook]) -> list[QueueLook]:
    """Return the queues in the order in which they need somebody."""
    return sorted(looks, key=lambda look: look.rank)


class Sentence(NamedTuple):
    """One sentence, in parts, and the queue that it is about (None: of all)."""

    parts: Parts
    look: QueueLook | None = None


def sentences(ordered: Sequence[QueueLook], *, named: bool = False) -> list[Sentence]:
    """Return the state of the queues, the worst first: the problem, behind how many need you if there are more.

    A sentence that stands alone names its queue only if all are to be *named*.
    """
    if not ordered:
        return []
    full = next((look for look in ordered if look.verdict and look.verdict.kind == "redis_full"), None)
    told = [look for look in ordered if look.is_missing or (look.verdict and look.verdict.severity != "good")]
    if full is not None:  # it is the same of all queues
        told = [look for look in told if look.verdict and look.verdict.kind != "redis_full"]
        return [Sentence(_parts(full)), *map(_named, told)]
    if not told:
        return [Sentence(_all_well(ordered))]
    if len(told) == 1:
        return [_named(told[0]) if named else Sentence(_parts(told[0]), told[0])]
    need = sum(look.needs_you for look in told)
    needs = "needs" if need == 1 else "need"
    begins = [Sentence([Bold(f"{need:,} of {plural(len(ordered), 'queue')}"), f" {needs} you."])] if need else []
    return [*begins, *map(_named, told)]


def _all_well(ordered: Sequence[QueueLook]) -> Parts:
    if not all(look.verdict for look in ordered):
        return [f"{plural(len(ordered), 'queue')}."]
    flows = any(look.verdict and look.verdict.kind == "flows" for look in ordered)
    where = f"in all {len(ordered):,} queues" if len(ordered) > 1 else f"in {ordered[0].name}"
    return [Bold("Work flows" if flows else "Nothing waits"), f" {where}."]


def _parts(look: QueueLook) -> Parts:
    if look.verdict is None:
        return [Bold(look.name), " is missing: Redis lost its keys, or somebody deleted them."]
    return parts_of(look.verdict)


def beside_name(parts: Parts, name: str) -> Parts:
    """Return a sentence as it stands beside the name of its queue: without that name at its beginning.

    >>> beside_name([Bold("exports"), " has ", Bold("no worker"), "."], "exports")
    ['No worker', '.']
    """
    if len(parts) < 3 or parts[0] != name or parts[1] != " has ":
        return parts
    return [Bold(parts[2][:1].upper() + parts[2][1:]), *parts[3:]]


def _named(look: QueueLook) -> Sentence:
    """Return the sentence of a queue, which names it: among those of others."""
    parts = _parts(look)
    is_named = "".join(parts).startswith(f"{look.name} ")
    return Sentence(parts if is_named else [Bold(look.name), ": ", *parts], look)

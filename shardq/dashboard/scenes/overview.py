"""Overview: does work flow, and which queue needs somebody?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from shardq.dashboard import numbers
from shardq.dashboard.deeds import deeds
from shardq.dashboard.drains import drains
from shardq.dashboard.fitting import fitted
from shardq.dashboard.marked import here, said, spelled
from shardq.dashboard.numbers import NumbersLook
from shardq.dashboard.past import lately
from shardq.dashboard.redis_server import server_rows
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.side import tone
from shardq.dashboard.source import SceneSource
from shardq.dashboard.verdicts import coloured, linked, others_wait, paused_for
from shardq.model.stats import QueueStats
from shardq.model.wording import plural
from shardq.outlook.queues import QueueLook, Sentence, beside_name, sentences, worst_first
from shardq.outlook.sentence import Bold, Parts, parts_of

MAX_QUEUES: Final = 60
"""Queues that are shown: those that need somebody first."""
MAX_NAMED: Final = 4
"""Queues that the heading names, and as many that the lines below it name."""
MAX_SEARCH: Final = 100
"""Letters of a search."""


async def overview(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """Return how all queues are. The query `search` shows those alone that have it in their names."""
    if asked.parts:
        raise NotThere("The overview is of all queues.")
    names = await numbers.queues(source)
    found = await numbers.looks(source, names)
    ordered = worst_first([_queue_look(name, found[name]) for name in found] + await _lost(source, names, found))
    wanted = asked.query.get("search", "")[:MAX_SEARCH].strip()
    shown = [each for each in ordered if wanted.casefold() in each.name.casefold()]
    looks = [each for each in found.values() if each is not None]
    now = max((each.facts.now for each in looks), default=source.client.clock.wall())
    first = next((each.name for each in ordered if found.get(each.name)), None)
    scene = {
        "said": _said(ordered, found, len(names)),
        "now": now,
        "figures": _figures(looks),
        "queues": [_row(each, found.get(each.name)) for each in shown[:MAX_QUEUES]],
        "more": max(0, len(shown) - MAX_QUEUES) + (len(names) - len(ordered) if not wanted else 0),
        "all": len(names),
        "search": wanted,
        "did": await deeds(source, [each.name for each in ordered if found.get(each.name)]),
        "server": [] if first is None else await server_rows(source, first, now),
    }
    return fitted(scene, {"queues": "more"})


def _queue_look(name: str, look: NumbersLook | None) -> QueueLook:
    if look is None:
        return QueueLook(name, None)
    return QueueLook(name, look.stats, look.verdict, look.outlook)


async def _lost(source: SceneSource, names: Sequence[str], found: Iterable[str]) -> list[QueueLook]:
    """Return the queues that were declared, and whose keys are gone; not those that were deleted just now."""
    gone = set(names[: numbers.MAX_QUEUES]) - set(found)
    if not gone:
        return []
    source.forget(("queues",))
    still = gone & set(await numbers.queues(source))
    return [QueueLook(name, QueueStats(name, 0.0, 0, 0, 0, 0, None, ())) for name in sorted(still)]


def _said(ordered: Sequence[QueueLook], found: dict[str, NumbersLook | None], count: int) -> dict[str, Any]:
    """Return the heading: the things that need somebody; and below it, those that do so later."""
    if not ordered:
        return said([Bold("There is no queue yet"), ": write a message, and here it is."], "good")
    told = sentences(ordered, named=True)
    needs = [each for each in told if each.look is None or each.look.needs_you]
    rest = [each for each in told if each not in needs]
    if not needs:  # nothing needs anybody at once
        needs, rest = rest[:1], rest[1:]
    line, more = _joined(needs, found), _joined(rest, found)
    if count > len(ordered):
        more.append(f" The first {len(ordered):,} of {plural(count, 'queue')} are looked at.")
    worst = ordered[0]
    severity = "bad" if worst.needs_you else worst.verdict.severity if worst.verdict else "good"
    return said(line, severity, more)


def _joined(told: Sequence[Sentence], found: dict[str, NumbersLook | None]) -> Parts:
    """Return some sentences as one text, in which the names of queues lead to them."""
    parts: Parts = []
    most = MAX_NAMED + (1 if told and told[0].look is None else 0)
    for each in told[:most]:
        parts += [" "] if parts else []
        parts += _linked(each, found)
    if len(told) > most:
        parts.append(f" And {len(told) - most:,} more.")
    return parts


def _linked(each: Sentence, found: dict[str, NumbersLook | None]) -> Parts:
    if each.look is None:
        return each.parts
    look = found.get(each.look.name)
    parts = each.parts if look is None else coloured(look.verdict, each.parts, others_wait(look))
    return linked(parts, each.look.name, here(each.look.name))


def _beside_name(look: NumbersLook) -> Parts:
    """Return the sentence of a queue as it stands below its name."""
    parts = beside_name(parts_of(look.verdict), look.stats.queue)
    return coloured(look.verdict, parts, others_wait(look))


def _figures(looks: Sequence[NumbersLook]) -> dict[str, Any]:
    """Return the sums of all queues. A worker's slots count once, however many queues it reads."""
    workers = {each.id: each for look in looks for each in look.facts.working}
    memory = next((each.facts.memory for each in looks if each.facts.memory), None)
    return {
        "written": sum(each.outlook.written_rate or 0.0 for each in looks),
        "done": sum(each.outlook.rate or 0.0 for each in looks),
        "waiting": sum(each.stats.backlog for each in looks),
        "in_flight": sum(each.stats.in_flight for each in looks),
        "busy": round(sum(each.outlook.busy for each in looks)),
        "slots": sum(each.slots for each in workers.values()),
        "dead": sum(each.stats.dead for each in looks),
        "memory": None if memory is None else {"used": memory.used, "limit": memory.limit, "share": memory.share},
    }


def _row(each: QueueLook, look: NumbersLook | None) -> dict[str, Any]:
    if look is None:
        text = (
            "Missing: Redis lost its keys, or somebody deleted them."
            if each.is_missing
            else "This page's user of Redis may not look at it."
        )
        return {"name": each.name, "tone": "bad" if each.is_missing else "idle", "line": [[text]], "unknown": True}
    outlook, stats = look.outlook, look.stats
    return {
        "name": each.name,
        "tone": tone(look.verdict),
        "line": spelled(_beside_name(look)),
        "lately": lately(look.facts.minutes, look.facts.now),
        "written": outlook.written_rate,
        "done": outlook.rate,
        "waiting": stats.backlog,
        "reasons": {reason: count for reason, count in outlook.reasons.items() if count},
        "oldest": stats.oldest_age,
        "paused_for": paused_for(look),
        "busy": round(outlook.busy),
        "slots": outlook.slots,
        "dead": stats.dead,
        **drains(look),
    }

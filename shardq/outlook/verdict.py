"""How a queue is, in one sentence: rules over its numbers are tried in order, and the first that holds speaks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from shardq.model.outlook import Outlook, TenantOutlook
from shardq.model.verdict import Severity, Verdict, VerdictKind
from shardq.model.wording import number, plural, rate, share, size, span
from shardq.outlook import failing
from shardq.outlook.facts import Facts
from shardq.outlook.names import name_of
from shardq.outlook.noisy import FLOOD, noisy, waits_of
from shardq.outlook.sentence import At, Bold, Parts, joined, moments_in

Known = dict[str, int | float | str | None]
Rule = Callable[[Facts, Outlook], Verdict | None]

FULL_MEMORY_SHARE: Final = 0.98
"""The share of Redis's memory from which on it is full: writes come and go there."""
SURELY_FULL_SHARE: Final = 0.995
GOOD_WRITE_SECONDS: Final = 5.0
"""Seconds for which a write that went well says that writes do not fail."""
LAST_WRITE_SECONDS: Final = 600.0
"""Seconds within which the last write tells since when writes fail, if nobody knows how often there is one."""
ENDED_IN_ORDER: Final = 10.0
"""Seconds after the last worker ended in order, and for which something waits, before a queue lacks a worker.

Another may be starting: as in a deploy, or where none runs while nothing waits.
"""
HALF: Final = 0.5
SLOW_DRAIN_SECONDS: Final = 600.0
"""Seconds from which on a backlog drains slowly."""
STUCK_SECONDS: Final = 60.0
"""Seconds that something waits while nothing is done, from which on that is said."""
RECENT_SECONDS: Final = 300.0


def verdict_of(facts: Facts, outlook: Outlook) -> Verdict:
    """Return how the queue is: by the first rule that holds."""
    for rule in RULES:
        found = rule(facts, outlook)
        if found is not None:
            return found
    return idle(facts, outlook)


def said(
    facts: Facts,
    kind: VerdictKind,
    severity: Severity,
    parts: Parts,
    *,
    second: str = "",
    since: float | None = None,
    known: Known | None = None,
) -> Verdict:
    """Make a verdict of the parts of its sentence, and of what it says in numbers."""
    sentence, bold = joined(parts)
    return Verdict(
        facts.stats.queue, facts.now, kind, severity, sentence, second, bold, since, known or {}, moments_in(parts)
    )


def redis_full(facts: Facts, outlook: Outlook) -> Verdict | None:
    """Redis has no memory left, so writes fail."""
    memory = facts.memory
    if memory is None or memory.share < FULL_MEMORY_SHARE:
        return None
    part = min(1.0, memory.share)
    how = f" ({share(part)} of {size(memory.limit)}): "
    known: Known = {"share": part, "limit": memory.limit, "refused": memory.refused}
    written = facts.waiters.last_written
    is_writing = written is not None and facts.now - written < GOOD_WRITE_SECONDS and memory.share < SURELY_FULL_SHARE
    if not memory.refused or is_writing:
        rest = "soon writes fail; reads and acks go on."
        return said(facts, "redis_full", "bad", [Bold("Redis is nearly full"), how, rest], known=known)
    since = _writes_fail_since(facts)
    rest = f", {number(memory.refused)} so far; reads and acks go on."
    parts = [Bold("Redis is full"), how, "writes fail", *_since(since, facts.now), rest]
    return said(facts, "redis_full", "bad", parts, since=since, known=known)


def _since(at: float | None, now: float) -> Parts:
    return [] if at is None else [" since ", At(at, now)]


def _writes_fail_since(facts: Facts) -> float | None:
    """Return when the last message was written, if others would have been since then."""
    last = facts.waiters.last_written
    if last is None:
        return None
    before = [each.written for each in facts.minutes if each.written is not None and each.at <= last][-10:]
    if len(before) >= 3:
        return last if sum(1 for each in before if each) > HALF * len(before) else None
    return last if facts.now - last <= LAST_WRITE_SECONDS else None


def no_worker(facts: Facts, outlook: Outlook) -> Verdict | None:
    """Something could be delivered, and nobody reads."""
    waits = facts.stats.backlog
    if facts.has_reader or facts.paused_until is not None or not outlook.reasons["worker"]:
        return None
    last = max(facts.workers, key=lambda each: each.heard, default=None)
    age = facts.stats.oldest_age
    if last is not None and last.state == "ended" and min(age or 0.0, facts.now - last.heard) < ENDED_IN_ORDER:
        return None
    heard = max((each for each in (last.heard if last else None, facts.last_read) if each is not None), default=None)
    second = ""
    if last is not None:
        how = "ended in order" if last.state == "ended" else "has not been heard since then"
        second = f"The last one was {name_of(last.host)}, which {how}."
    start: Parts = [Bold(name_of(facts.stats.queue)), " has ", Bold("no worker")]
    parts = [*start, *_since(heard, facts.now), f": {_messages_wait(waits)}."]
    return said(facts, "no_worker", "bad", parts, second=second, since=heard, known={"waits": waits})


def _messages_wait(count: int) -> str:
    return f"{plural(count, 'message')} {_wait(count)}"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def paused(facts: Facts, outlook: Outlook) -> Verdict | None:
    """Somebody paused the queue."""
    until = facts.paused_until
    if until is None:
        return None
    waits = facts.stats.backlog
    by = name_of(facts.stats.paused_by) if facts.stats.paused_by else ""
    when = _at(facts.stats.paused_since, facts.now)
    end: Parts = ["without an end"] if math.isinf(until) else ["until ", At(until, facts.now)]
    parts: Parts = [Bold(f"{number(waits)} {_wait(waits)}"), " because "] if waits else ["Nothing waits, and "]
    parts += [
        Bold(f"{by} paused it" if by else "it is paused" if not when else "it was paused"),
        *when,
        ", ",
        *end,
        ".",
    ]
    second = f"“{name_of(facts.stats.paused_note)}”, says the pause." if facts.stats.paused_note else ""
    known: Known = {"waits": waits, "by": facts.stats.paused_by, "until": until}
    return said(facts, "paused", "pause", parts, second=second, since=facts.stats.paused_since, known=known)


def _at(at: float | None, now: float) -> Parts:
    if at is None:
        return []
    told = At(at, now)
    return [" at " if told[:1].isdigit() and ":" in told else " ", told]


def fails(facts: Facts, outlook: Outlook) -> Verdict | None:
    """One kind of task fails."""
    groups = failing.groups_of(facts)
    if not groups:
        return None
    parts, since = failing.sentence_of(groups, facts)
    first = groups[0]
    known: Known = {
        "task": first.task,
        "error": first.error_type,
        "recent": first.recent,
        "tenants": first.tenants_lately,
    }
    retrying = facts.stats.retrying
    second = f"{_messages_wait(retrying)} for a next try." if retrying else ""
    return said(facts, "failing", "bad", parts, second=second, since=since, known=known)


def flood(facts: Facts, outlook: Outlook) -> Verdict | None:
    """One shard key has most of what waits."""
    large = noisy(outlook)
    if large is None:
        return None
    waits, backlog = waits_of(large), facts.stats.backlog
    # All of it, or less.
    part = 1.0 if waits >= backlog else min(0.99, waits / backlog)
    parts: Parts = [Bold(name_of(large.shard_key)), f" holds {share(part)} of what waits."]
    parts += _ends(_how_it_ends(large, outlook), _others(facts, outlook))
    known: Known = {
        "waits": waits,
        "share": part,
        "drain_seconds": outlook.drain_seconds,
        "others": _count_others(facts, outlook)[0],
    }
    second = "The others are served first, each time one of their messages comes: it has what they leave."
    return said(facts, "flood", "warn", parts, second=second if large.reasons["turn"] else "", known=known)


def _how_it_ends(large: TenantOutlook, outlook: Outlook) -> Parts:
    reasons = large.reasons
    if reasons["pause"] > reasons["turn"]:
        return [" It ", Bold("is paused")]
    if reasons["limit"] > reasons["turn"]:
        return [" It ", Bold("waits for its limit")]
    if outlook.drains == "drains":
        # Others may wait longer, for the end of a pause.
        own = outlook.drain_seconds if large.served_in is None else large.served_in
        return [" It ", Bold(f"drains in {span(own)}")]
    return [" It ", Bold("grows")] if outlook.grows else []


def _ends(one: Parts, other: Parts) -> Parts:
    """Join two halves of a sentence; either may be missing."""
    if one and other:
        return [*one, "; the ", *other, "."]
    if other:
        return [" The ", *other, "."]
    return [*one, "."] if one else []


def _others(facts: Facts, outlook: Outlook) -> Parts:
    """Return how long the others wait; nothing if there are none, or nobody knows."""
    count, are_all = _count_others(facts, outlook)
    seconds = outlook.others_pickup if outlook.others_pickup is not None else outlook.others_served_in
    if not count or not seconds:
        return []
    who = f"other {plural(count, 'tenant')} {_wait(count)} " if are_all else "others wait "
    return [who, Bold(span(seconds))]


def _count_others(facts: Facts, outlook: Outlook) -> tuple[int, bool]:
    """Return how many shard keys there are besides the largest one, and whether these are all.

    The queue knows those with something waiting or in flight, its workers some of those that they served.
    """
    large = outlook.tenants[0].shard_key
    if not facts.waiters.are_all:
        return max(0, outlook.tenants_waiting - 1), True
    known = {each.shard_key for each in facts.waiters.rows if each.shard_key not in ("", large)}
    served = {each.shard_key for worker in facts.working for each in worker.tenants} - {large}
    are_more = any(sum(worker.other_tenants) for worker in facts.working)
    return len(known | served), not are_more or served <= known


def grows(facts: Facts, outlook: Outlook) -> Verdict | None:
    """More is written than is done, or nothing is done."""
    waits = facts.stats.backlog
    known: Known = {"waits": waits, "written": outlook.written_rate, "done": outlook.rate}
    wait = Bold(f"{number(waits)} {_wait(waits)}")
    if outlook.grows:
        into, out = rate(outlook.written_rate or 0.0), rate(outlook.rate or 0.0)
        parts = [Bold("More comes than goes"), ": ", wait, f", {into} in, {out} out."]
        return said(facts, "grows", "warn", parts, known=known)
    age = facts.stats.oldest_age or 0.0
    # Workers that have just begun have not done anything yet, nor told of it.
    lived = max((each.heard - each.started for each in facts.working), default=0.0)
    is_stuck = outlook.is_read and outlook.reasons["turn"] and min(age, lived) > STUCK_SECONDS and not outlook.rate
    if is_stuck and outlook.slots:
        busy = f"{outlook.busy:.0f} of {plural(outlook.slots, 'slot')} are busy"
        parts = [wait, ", and ", Bold("nothing was done"), f" in the last minute: {busy}."]
        return said(facts, "grows", "warn", parts, since=facts.now - age, known=known)
    return None


def flows(facts: Facts, outlook: Outlook) -> Verdict | None:
    """Work is done, or something waits that will be."""
    waits = facts.stats.backlog
    if not outlook.is_read or not (waits or outlook.rate):
        return None
    known: Known = {"waits": waits, "done": outlook.rate, "drain_seconds": outlook.drain_seconds}
    if outlook.drain_seconds is not None and outlook.drain_seconds > SLOW_DRAIN_SECONDS:
        how = f"drains in {span(outlook.drain_seconds)}"
        if waits != 1:
            how = f"drain in {span(outlook.drain_seconds)}"
        parts = [
            Bold(f"{number(waits)} {_wait(waits)}"),
            ", and ",
            Bold(how),
            f": {rate(outlook.rate or 0.0)} are done.",
        ]
        return said(facts, "flows", "warn", parts, known=known)
    if outlook.drains == "unknown" and (waits > FLOOD or (facts.stats.oldest_age or 0.0) > STUCK_SECONDS):
        served = "it is served" if waits == 1 else "they are served"
        parts = [Bold(f"{number(waits)} {_wait(waits)}"), f", and nobody knows yet how fast {served}."]
        return said(facts, "flows", "good", parts, known=known)
    blocked = outlook.reasons["limit"] + outlook.reasons["pause"]
    ages = [each.oldest_age for each in facts.minutes if facts.now - each.at <= RECENT_SECONDS]
    longest = max((each for each in (*ages, facts.stats.oldest_age) if each is not None), default=None)
    start: Parts = [Bold("Flows")]
    if outlook.rate:
        start += [": ", Bold(rate(outlook.rate)), ", "]
    else:
        start += [": "]
    told = "nobody waits long" if longest is None else f"nobody waits longer than {span(longest)}"
    more = f", but {number(blocked)} {_wait(blocked)} for limits and pauses." if blocked else "."
    return said(facts, "flows", "good", [*start, told, more], known=known | {"longest": longest, "blocked": blocked})


def quiet(facts: Facts, outlook: Outlook) -> Verdict | None:
    """Nothing waits, and nothing was done, but somebody is ready."""
    if not outlook.is_read:
        return None
    count = outlook.workers
    ready = f"{plural(count, 'worker')} {'is' if count == 1 else 'are'} ready" if count else "somebody reads"
    parts = [Bold("Quiet"), f": nothing waits, and {ready}.", *_later(facts)]
    return said(facts, "quiet", "good", parts, known={"workers": count})


def idle(facts: Facts, outlook: Outlook) -> Verdict:
    """Nobody reads, and nothing waits that anybody could read."""
    waits = facts.stats.backlog
    if waits:
        parts = [Bold(f"{number(waits)} {_wait(waits)}"), " and nobody reads it now."]
        return said(facts, "idle", "warn", [*parts, *_later(facts)], known={"waits": waits})
    return said(facts, "idle", "good", [Bold("Idle"), ": nothing waits, and nobody reads it.", *_later(facts)])


def _later(facts: Facts) -> Parts:
    delayed = facts.stats.delayed
    return [f" {number(delayed)} {'comes' if delayed == 1 else 'come'} due later."] if delayed else []


RULES: Final[tuple[Rule, ...]] = (redis_full, no_worker, paused, fails, flood, grows, flows, quiet)
"""The rules, in the order in which they are tried."""

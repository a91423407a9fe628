"""Remedies for a backlog, and their effects. A remedy that would change little says so, too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from shardq.model.outlook import Help
from shardq.model.waiter import Waiter
from shardq.model.wording import plural, span
from shardq.outlook.crowd import Crowd, Served, part_of
from shardq.outlook.facts import Facts
from shardq.outlook.fluid import FluidPart
from shardq.outlook.names import name_of
from shardq.outlook.pace import MANY_WAITING, DrainPace
from shardq.outlook.sentence import Bold, Parts

MORE_WORKERS = 2
HELPING_SHARE = 0.8
"""A remedy makes a time shorter than this part of it."""
ADVISED = 3
"""Limits, and pauses, whose end is reckoned."""
MIN_MESSAGES = 10
"""Messages that wait for a limit or a pause from which on that is shown."""
SOON_SECONDS = 3.0
"""Seconds of work that are no backlog yet."""
HALF = 0.5


def helps_of(
    facts: Facts, pace: DrainPace, crowd: Crowd, drain: float | None, served: Served | None
) -> tuple[Help, ...]:
    """Return what would help, and what would not. *drain* is as it stands, *served* when each is served."""
    if facts.stats.backlog <= 0:
        return ()
    if facts.paused_until is not None:
        return (_end_of_pause(facts, pace, crowd),)
    if not facts.has_reader:
        return (_first_worker(facts),)
    if served is None or not pace.capacity:
        return ()
    found = [*_more_workers(facts, pace, crowd, drain), *_large_one(facts, pace, crowd, served)]
    found += _larger_weight(facts, pace, crowd, served)
    return (*found, *_limits(facts, pace, crowd, served), *_pauses(facts, pace, crowd))


def _end_of_pause(facts: Facts, pace: DrainPace, crowd: Crowd) -> Help:
    seconds, what = None, "the end of the pause"
    if not facts.has_reader:
        return Help(what, helps=False, seconds=None, instead_of=None, text="no use: no worker reads it")
    if pace.capacity:
        changed = {waiter.shard_key: _without_pause(facts, pace, waiter) for waiter, _ in crowd.shown}
        seconds = _known(crowd.served(pace.capacity, 0.0, changed=changed).last())
    text = f"all served in about {span(seconds)}" if seconds is not None else "then it is served"
    return Help(what, helps=True, seconds=seconds, instead_of=None, text=text)


def _without_pause(facts: Facts, pace: DrainPace, waiter: Waiter) -> FluidPart:
    """Return the part of one as if the queue were not paused."""
    return replace(part_of(facts, pace, waiter), free_at=max(0.0, (waiter.paused_until or 0.0) - facts.now))


def _first_worker(facts: Facts) -> Help:
    """Say what one worker would do that is like the last one that was heard."""
    last = max(facts.workers, key=lambda each: each.heard, default=None)
    if last is not None and last.slots:
        jobs = sum(each.done + each.failed for each in last.tasks)
        took = sum((each.done + each.failed) * each.seconds for each in last.tasks)
        if jobs and took:
            seconds = facts.stats.backlog * took / jobs / last.slots
            text = f"{plural(last.slots, 'slot')} would serve all in about {span(seconds)}"
            return Help("a worker", helps=True, seconds=seconds, instead_of=None, text=text)
    return Help("a worker", helps=True, seconds=None, instead_of=None, text="nothing is served without one")


def _more_workers(facts: Facts, pace: DrainPace, crowd: Crowd, drain: float | None) -> Iterator[Help]:
    if not pace.workers or not pace.capacity:
        return
    what = "two more workers"
    runnable = facts.stats.runnable
    if runnable <= SOON_SECONDS * pace.capacity:
        if facts.stats.limited > MIN_MESSAGES:
            text = "no use: what waits is limited or paused"
            yield Help(what, helps=False, seconds=drain, instead_of=drain, text=text)
        return
    capacity = pace.capacity * (1 + MORE_WORKERS / pace.workers)
    if facts.waiters.total_rate:
        capacity = min(capacity, facts.waiters.total_rate)
    if facts.waiters.total_in_flight and pace.seconds:
        capacity = min(capacity, facts.waiters.total_in_flight / pace.seconds)
    written = pace.written or 0.0
    if written > 0.98 * capacity:
        yield Help(
            what, helps=False, seconds=None, instead_of=drain, text="too few: more is written than they would do"
        )
        return
    seconds = _known(crowd.served(capacity, written).last())
    good = seconds is not None and (drain is None or seconds < HELPING_SHARE * drain)
    text = span(seconds) if good else "no use: the queue's limits allow no more" if seconds is not None else "no use"
    yield Help(what, helps=good, seconds=seconds, instead_of=drain, text=text)


def _large_one(facts: Facts, pace: DrainPace, crowd: Crowd, served: Served) -> Iterator[Help]:
    """Say what it would change to pause the one that has most, or to give it a larger weight."""
    if not crowd.shown or not pace.capacity:
        return
    large, part = crowd.shown[0]
    if large.backlog <= max(MANY_WAITING, HALF * facts.stats.backlog) or not math.isinf(part.top) or large.paused_until:
        return
    key, name = large.shard_key, name_of(large.shard_key)
    before = served.last(beside=key)
    after = crowd.served(pace.capacity, pace.background, without=key).last()
    good = before - after > max(1.0, (1 - HELPING_SHARE) * before)
    text = f"the others in {span(after)} instead of {span(before)}" if good else "no use to the others"
    yield Help(f"pausing {name}", helps=good, seconds=_known(after), instead_of=_known(before), text=text)
    if before < HALF * served.of(key):
        yield Help(
            f"a larger weight of {name}",
            helps=False,
            seconds=_known(served.of(key)),
            instead_of=_known(served.of(key)),
            text="no use: it has all that the others leave",
            shard_key=key,
        )


def _larger_weight(facts: Facts, pace: DrainPace, crowd: Crowd, served: Served) -> Iterator[Help]:
    """Say what twice the weight would do for the one that is asked for, if it waits long for its turns."""
    found = next((each for each in crowd.shown if each[0].shard_key in facts.asked), None)
    if found is None or not pace.capacity or len(facts.asked) > 1:
        return
    asked, part = found
    key, name, is_large = asked.shard_key, name_of(asked.shard_key), crowd.shown[0][0] is asked
    before = served.of(key)
    is_said = is_large and before > served.last(beside=key) / HALF  # see `_large_one`
    if is_said or not math.isinf(part.top) or asked.paused_until is not None or not SOON_SECONDS < before < math.inf:
        return
    changed = {key: replace(part, weight=2 * part.weight)}
    after = crowd.served(pace.capacity, pace.background, changed=changed).of(key)
    good = after < HELPING_SHARE * before
    text = span(after) if good else "no use: it would wait as long"
    yield Help(f"twice the weight of {name}", good, _known(after), _known(before), text, key)


def _limits(facts: Facts, pace: DrainPace, crowd: Crowd, served: Served) -> Iterator[Help]:
    limited = [each for each, _ in crowd.shown if each.paused_until is None and _is_told(facts, each)]
    limited.sort(key=lambda each: (each.shard_key not in facts.asked, -each.blocked))
    for each in limited[:ADVISED]:
        before = served.of(each.shard_key)
        free = {each.shard_key: part_of(facts, pace, each, limited=False)}
        after = crowd.served(pace.capacity or 1.0, pace.background, changed=free).of(each.shard_key)
        good = after < HELPING_SHARE * before
        text = span(after) if good else "no use: it would wait as long for its turns"
        yield Help(
            f"no limit of {name_of(each.shard_key)}",
            helps=good,
            seconds=_known(after),
            instead_of=_known(before),
            text=text,
            shard_key=each.shard_key,
        )


def _pauses(facts: Facts, pace: DrainPace, crowd: Crowd) -> Iterator[Help]:
    paused = [each for each, _ in crowd.shown if each.paused_until is not None and _is_told(facts, each)]
    paused.sort(key=lambda each: each.shard_key not in facts.asked)
    for each in paused[:ADVISED]:
        free = {each.shard_key: part_of(facts, pace, each, paused=False)}
        after = crowd.served(pace.capacity or 1.0, pace.background, changed=free).of(each.shard_key)
        before = None if each.paused_until is None or math.isinf(each.paused_until) else each.paused_until - facts.now
        yield Help(
            f"no pause of {name_of(each.shard_key)}",
            helps=True,
            seconds=_known(after),
            instead_of=before,
            text=f"its {each.backlog:,} in {span(after)}",
            shard_key=each.shard_key,
        )


def _is_told(facts: Facts, waiter: Waiter) -> bool:
    """Say whether enough of one waits for a limit or a pause to tell of it."""
    return waiter.blocked >= (1 if waiter.shard_key in facts.asked else MIN_MESSAGES)


def _known(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def effect_of(found: Help) -> Parts:
    """Return the effect, beside a word that says whether it helps: a time, and the time before.

    >>> effect_of(Help("two more workers", True, 240.0, 480.0, "4 min"))
    ['4 min', ' instead of 8 min']
    """
    if found.helps and found.seconds is not None and found.text == span(found.seconds):
        instead = "" if found.instead_of is None else f" instead of {span(found.instead_of)}"
        return [Bold(found.text), *filter(None, [instead])]
    return [found.text.removeprefix("no use: ")]


def effect_of_whom(found: Help) -> Parts:
    """Return the same, and whose time it is: that of one tenant, or of all that wait.

    >>> effect_of_whom(Help("two more workers", True, 240.0, 480.0, "4 min"))
    ['all served in ', '4 min', ' instead of 8 min']
    """
    parts = effect_of(found)
    if not isinstance(parts[0], Bold):
        return parts
    return ["all served in " if found.shard_key is None else "its last message in ", *parts]

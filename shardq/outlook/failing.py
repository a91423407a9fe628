"""Whether one kind of task fails, and the sentence about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from shardq.model.failure import Failure
from shardq.model.minute import Minute, TaskMinute
from shardq.model.wording import number, plural
from shardq.outlook.facts import Facts
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Bold, Parts

FAILS: Final = 20
"""Tries that fail in 10 minutes, above which a group fails, if it is not a small part of what is done."""
FAILING_SHARE: Final = 0.1
TEN_MINUTES: Final = 600.0
PIECE_SECONDS: Final = 300.0
"""Seconds of each of the pieces in which tries of the last hour are counted."""
HOUR: Final = 3600.0
MAX_TENANTS: Final = 5
"""Tenants that are named of what fails."""
RATE: Final = 50
"""Dead letters a second that are sent again: if they fail again, few have by then."""
MANY_TENANTS: Final = 64
"""Tenants from which on nobody counts them any more."""

_WITHOUT_CLASS: Final = {
    "lease ended": "leases ended",
    "time limit": "the time limit",
    "process died": "its process died",
    "no such task": "no such task",
    "cannot decode": "cannot be decoded",
    "rejected": "rejected",
}


Kind = tuple[str, str]
"""A kind of failure: a task, and the name of its error."""


def kind_of(failure: Failure) -> Kind:
    """Return what fails in a group."""
    return failure.task, error_of(failure)


def error_of(failure: Failure) -> str:
    """The name of a group's error: its class, or how the tries failed where there was none."""
    if failure.reason in ("retry", "dead", "rejected"):
        return failure.error_type or failure.reason
    return f"{failure.error_type}, {failure.reason}" if failure.error_type else failure.reason


def united(failures: Iterable[Failure]) -> list[Failure]:
    """Unite the groups of one task that have one error: tries that are tried again, and those that were the last.

    To a reader these are one thing that fails. How many tenants have both nobody knows: there are at least as many as
    of the one that has more.
    """
    found: dict[tuple[str, str], Failure] = {}
    for each in failures:
        kind = kind_of(each)
        found[kind] = _both(found[kind], each) if kind in found else each
    return sorted(found.values(), key=lambda each: (-each.recent, -each.last))


def _both(one: Failure, other: Failure) -> Failure:
    newer, older = (one, other) if one.last >= other.last else (other, one)
    tenants = tuple(dict.fromkeys(newer.tenants + older.tenants))[:MAX_TENANTS]
    return msgspec.structs.replace(
        newer,
        retried=one.retried + other.retried,
        dead=one.dead + other.dead,
        first=min(one.first, other.first),
        minutes=tuple(map(sum, zip(one.minutes, other.minutes, strict=True))),
        recent=one.recent + other.recent,
        tenants=tenants,
        tenants_lately=max(
            one.tenants_lately, other.tenants_lately, len(tenants) if one.recent and other.recent else 0
        ),
        trace=newer.trace or older.trace,
    )


def groups_of(facts: Facts) -> list[Failure]:
    """Return what fails now, that first which fails most."""
    found = [each for each in united(facts.failures) if each.recent > FAILS and _is_large_part(facts, each)]
    return sorted(found, key=lambda each: (-each.recent, each.task, each.error_type))


def fails_of(facts: Facts) -> frozenset[Kind]:
    """Return the kinds that fail now: by the rule of the verdict, which each screen goes by."""
    return frozenset(map(kind_of, groups_of(facts)))


def fails_by_count(failures: Iterable[Failure]) -> frozenset[Kind]:
    """Return the same where nobody knows how much is done beside: the groups that fail more than a few times."""
    return frozenset(kind_of(each) for each in united(failures) if each.recent > FAILS)


def _is_large_part(facts: Facts, group: Failure) -> bool:
    """Say whether of all tries of the last ten minutes a good part failed in this way."""
    tasks = _done_lately(facts)
    if group.task and (tasks or any(each.tasks for each in facts.working)):
        done = sum(each.done for each in tasks if each.task == group.task)
        told = sum(each.done for worker in facts.working for each in worker.tasks if each.task == group.task)
    else:
        done = sum(each.done or 0 for each in _minutes_lately(facts))
        told = sum(each.done for each in facts.working)
    # Failures count at once, and minutes only when they are over: in the first ones workers know more.
    done = max(done, round(told * facts.worker_factor))
    return group.recent >= FAILING_SHARE * (group.recent + done)


def _minutes_lately(facts: Facts) -> list[Minute]:
    return [each for each in facts.minutes if facts.now - each.at <= TEN_MINUTES]


def _done_lately(facts: Facts) -> list[TaskMinute]:
    """Return what was done of each kind of task in the last ten minutes, by the minute."""
    return [task for minute in _minutes_lately(facts) for task in minute.tasks]


def _done_kinds(facts: Facts) -> set[str]:
    """Return the kinds of task with something done lately: by the minutes, and by workers that live."""
    told = {each.task for worker in facts.working for each in worker.tasks if each.done}
    return told | {each.task for each in _done_lately(facts) if each.done}


def sentence_of(groups: Sequence[Failure], facts: Facts) -> tuple[Parts, float | None]:
    """Return the sentence about the first of *groups* beside the other kinds of task, and since when it fails."""
    first = groups[0]
    parts, since = group_parts(first, facts.now)
    others = len({each.task for each in groups} - {first.task})
    if others:
        parts.append(f" {plural(others, 'other kind')} of task {'fails' if others == 1 else 'fail'}, too.")
    elif first.task and _done_kinds(facts) - {first.task}:
        parts.append(" The other kinds of task are well.")
    return parts, since


def group_parts(group: Failure, now: float) -> tuple[Parts, float | None]:
    """Return what fails, since when, for what, and (the last part) how often and of how many; and since when."""
    since = since_of(group, now)
    when: Parts = [" for more than an hour"] if since is None else [" since ", At(since, now)]
    error = name_of(group.error_type) if group.error_type else _WITHOUT_CLASS.get(group.reason, "errors")
    subject = f"{name_of(group.task)} fails" if group.task else "Messages fail"
    how_often = f", {number(group.recent)} in 10 min{_of_tenants(group.tenants_lately)}."
    return [Bold(subject), *when, ": ", Bold(error), how_often], since


def lately(failures: Sequence[Failure], fails: Collection[Kind], now: float) -> Parts:
    """Return what *fails* now; else what failed before, and what of it is dead."""
    groups = sorted((each for each in failures if kind_of(each) in fails), key=lambda each: -each.recent)
    if groups:
        *parts, how_often = group_parts(groups[0], now)[0]  # how others are is in the table
        return [*parts, how_often.replace(", of ", ", ")]
    recent, dead = sum(each.recent for each in failures), sum(each.dead for each in failures)
    told = f"{plural(recent, 'try', 'tries')} failed in 10 min" if recent else "Nothing fails now"
    if not dead:
        return [f"{told}."]
    verb = "is" if dead == 1 else "are"
    return [f"{told}; ", Bold(plural(dead, "message")), f" failed for good and {verb} dead."]


def advice(failures: Sequence[Failure], fails: Collection[Kind], retrying: int) -> Parts:
    """Return what is to be done about tries that failed: *retrying* messages wait for their next try."""
    dead = sum(each.dead for each in failures)
    again = sum(each.dead for each in failures if kind_of(each) in fails)
    parts: Parts = []
    if retrying:
        waits, needs = ("waits", "needs") if retrying == 1 else ("wait", "need")
        parts += [Bold(number(retrying)), f" {waits} for a next try and {needs} nothing from you. "]
    if dead:
        parts += [Bold(number(dead)), f" {'is' if dead == 1 else 'are'} dead"]
        if again:
            of = "" if again == dead else f", {number(again)} of {'it' if dead == 1 else 'them'}"
            parts.append(f"{of} of what still fails: mend that before you redrive.")
        elif any(kind_of(each) in fails for each in failures):
            parts.append(" of other errors than what fails now: redrive when their cause is mended.")
        else:
            parts.append(": redrive when the cause is mended.")
    return parts


def _of_tenants(count: int) -> str:
    if not count:
        return ""
    return f", of {plural(count, 'tenant')}" + (" or more" if count >= MANY_TENANTS else "")


def since_of(group: Failure, now: float) -> float | None:
    """Return since when tries fail without a break of five minutes; None if for longer than anybody counted."""
    at = len(group.minutes)
    while at > 0 and not group.minutes[at - 1]:  # the last piece has only begun, and it may have stopped since
        at -= 1
    while at > 0 and group.minutes[at - 1]:
        at -= 1
    if at == 0:
        return group.first if now - group.first <= HOUR else None
    begun = (now // PIECE_SECONDS - (len(group.minutes) - 1 - at)) * PIECE_SECONDS
    # When it was seen first says more than the piece in which that was.
    return group.first if group.first >= begun - PIECE_SECONDS else begun

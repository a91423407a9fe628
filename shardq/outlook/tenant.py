"""Why one tenant waits, in one sentence: rules are tried in order, and the first that holds speaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from shardq.model.controls import Control, Controls
from shardq.model.limits import Limits
from shardq.model.outlook import WAIT_REASONS, Outlook, TenantOutlook, WaitReason
from shardq.model.tenant import Tenant
from shardq.model.wording import number, plural, rate, share, span
from shardq.model.worker_status import WorkerStatus
from shardq.outlook.names import name_of
from shardq.outlook.said import Said, said, sentences
from shardq.outlook.sentence import At, Bold, Parts

SOON_SECONDS: Final = 3.0
"""Seconds within which all is served of one that hardly waits."""
LONG_WAIT_SECONDS: Final = 60.0
"""Seconds from which on a wait for turns is shown."""
MANY_WAITING: Final = 500
"""Messages that wait for turns from which on that is shown, where nobody knows how long."""
MAX_NOTE: Final = 200
"""Letters of a note."""
MINUTE: Final = 60.0


class TenantLoad(msgspec.Struct, frozen=True):
    """The workers' work for one tenant in their last minute, as far as they report it.

    `done` jobs, `rate` a second and a `share` of all; 99 of 100 of its messages waited for at most `pickup_p99` seconds
    (None: none came).
    """

    done: int
    rate: float
    share: float
    pickup_p99: float | None


def works_of(workers: Sequence[WorkerStatus]) -> dict[str | bytes, TenantLoad]:
    """Return the work for each tenant that living workers report: each reports the 20 that had most."""
    working = [each for each in workers if each.state == "working"]
    total = sum(each.done for each in working)
    found: dict[str | bytes, TenantLoad] = {}
    for worker in working:
        # One that began less than a minute ago did it in less.
        lived = min(MINUTE, max(1.0, worker.heard - worker.started))
        for each in worker.tenants:
            had = found.get(each.shard_key, NO_WORK)
            p99 = max((some for some in (had.pickup_p99, each.pickup_p99) if some is not None), default=None)
            done = had.done + each.done
            # A worker counts its jobs, and those of tenants, at moments that lie apart.
            part = min(1.0, done / total) if total else 0.0
            found[each.shard_key] = TenantLoad(done, had.rate + each.done / lived, part, p99)
    return found


NO_WORK: Final = TenantLoad(0, 0.0, 0.0, None)


class TenantCase(msgspec.Struct, frozen=True):
    """The known facts of one tenant: its numbers, its outlook (None: nothing of it waits), people's settings for it."""

    tenant: Tenant
    outlook: Outlook
    controls: Controls
    work: TenantLoad | None = None

    @property
    def now(self) -> float:
        """The instant of the numbers, by the server's clock."""
        return self.outlook.time

    @property
    def row(self) -> TenantOutlook | None:
        """Its part of the outlook."""
        key = self.tenant.shard_key
        return next((each for each in self.outlook.tenants if each.shard_key == key), None)

    @property
    def reasons(self) -> dict[WaitReason, int]:
        """For what its messages wait."""
        return self.row.reasons if self.row else dict.fromkeys(WAIT_REASONS, 0)

    @property
    def waits(self) -> int:
        """How many of its messages could be delivered if nothing held them back."""
        reasons = self.reasons
        return reasons["worker"] + reasons["turn"] + reasons["limit"] + reasons["pause"]

    @property
    def name(self) -> Bold:
        """Its name as it stands in a sentence."""
        return Bold(name_of(self.tenant.shard_key))

    @property
    def pause(self) -> Control | None:
        """Its own pause."""
        return self.controls.paused.get(self.tenant.shard_key)

    @property
    def pause_of_queue(self) -> Control | None:
        """The pause of the whole queue."""
        return self.controls.paused.get(None)


def tenant_said(case: TenantCase) -> Said:
    """Return why a tenant waits, or that it does not."""
    reasons, waits = case.reasons, case.waits
    if case.pause_of_queue and waits:
        parts = [case.name, " waits because ", Bold("the whole queue is paused"), f": {plural(waits, 'message')}."]
        return said("pause", parts, how_paused(case.pause_of_queue, case.now))
    if case.pause:
        return _paused(case, case.pause)
    if reasons["worker"]:
        parts = [case.name, " waits because ", Bold("no worker reads this queue"), f": {plural(waits, 'message')}."]
        return said("bad", parts, "Nothing of any tenant is served until one is started.")
    if reasons["limit"] and reasons["limit"] >= reasons["turn"]:
        return _limited(case)
    if reasons["turn"]:
        return _in_turn(case)
    return _not_waiting(case)


def how_paused(pause: Control, now: float) -> Parts:
    """Return who paused it, when, until when, and why."""
    return _given("paused", "pause", pause, now)


def _given(what: str, noun: str, control: Control, now: float) -> Parts:
    """Return who gave something, when, until when, and why."""
    found: Parts = [f"{what.capitalize()} by {name_of(control.by)}" if control.by else what.capitalize()]
    if control.since is not None:
        found += [" since ", At(control.since, now)]
    found += [", without an end."] if math.isinf(control.until) else [", until ", At(control.until, now), "."]
    return [*found, f" “{name_of(control.note, MAX_NOTE)}”, says the {noun}."] if control.note else found


def _paused(case: TenantCase, pause: Control) -> Said:
    by = f" by {name_of(pause.by)}" if pause.by else ""
    is_endless = math.isinf(pause.until)
    left = " without an end" if is_endless else f" for {span(pause.until - case.now)} more"
    parts: Parts = [case.name, " is ", Bold("paused"), f"{by}{left}"]
    if case.waits:
        parts += [": ", Bold(plural(case.waits, "message")), " waits." if case.waits == 1 else " wait."]
    else:
        parts += [", and nothing of it waits."]
    end: Parts = ["It ends by itself at ", At(pause.until, case.now), "."]
    rest = "Until then nothing of it is delivered; messages in flight continue."
    note = f"“{name_of(pause.note, MAX_NOTE)}”, says the pause." if pause.note else ""
    return said("pause", parts, sentences("Somebody must end the pause." if is_endless else end, rest, note))


def limit_of(case: TenantCase) -> str:
    """Return which limit holds it back, in words."""
    row, plan = case.row, case.tenant.plan
    if row is None:
        return "a limit"
    whose = f"the limit of its plan {name_of(plan)}," if plan else "its own limit of"
    if not plan and case.tenant.limits == Limits():
        whose = "the queue's limit for each tenant,"
    if row.max_in_flight and (row.in_flight >= row.max_in_flight or not row.rate):
        return f"{whose} {number(row.max_in_flight)} in flight"
    if row.rate:
        return f"{whose} {row.rate:g}/s"
    return "the limits of the whole queue"


def _limited(case: TenantCase) -> Said:
    row, count = case.row, case.reasons["limit"]
    parts: Parts = [case.name, " waits for ", Bold(limit_of(case)), ": ", Bold(plural(count, "message"))]
    if row and row.served_in is not None:
        parts += [", the last one served in about ", Bold(span(row.served_in))]
    return said("warn", [*parts, "."], sentences(_free_slots(case), end_of_limit(case)))


def _free_slots(case: TenantCase) -> str:
    free = int(case.outlook.slots - case.outlook.busy)
    return f"Nobody else is the reason: {plural(free, 'slot')} {'is' if free == 1 else 'are'} free." if free > 0 else ""


def end_of_limit(case: TenantCase) -> Parts:
    """Return until when its own limit holds, and who gave it; [] where nobody gave it one."""
    found = case.controls.limits.get(case.tenant.shard_key)
    return [] if found is None else _given("limited", "limit", found, case.now)


def _in_turn(case: TenantCase) -> Said:
    row, count = case.row, case.reasons["turn"]
    served_in = row.served_in if row else None
    if served_in is not None and served_in <= SOON_SECONDS:
        parts: Parts = [case.name, " hardly waits", f": {plural(count, 'message')}, served in {span(served_in)}."]
        return said("good", parts, _last_minute(case))
    parts = [case.name, " waits for ", Bold("its turns"), f": {plural(count, 'message')}"]
    if served_in is not None:
        parts += [", the last one served in about ", Bold(span(served_in))]
    is_long = count > MANY_WAITING if served_in is None else served_in >= LONG_WAIT_SECONDS
    return said("warn" if is_long else "good", [*parts, "."], _what_bounds(case))


def _what_bounds(case: TenantCase) -> str:
    """Return what was done for it in the last minute, and what bounds that."""
    told = _last_minute(case)
    slots = case.outlook.slots
    if slots and case.outlook.busy >= 0.9 * slots:
        told += f" It is limited by the {plural(slots, 'slot')}, not by a limit or by one other tenant."
    return told.strip()


def _last_minute(case: TenantCase) -> str:
    if case.work is None:
        return ""
    told = f"It was served {rate(case.work.rate)} in the last minute, {share(case.work.share)} of all"
    if case.work.pickup_p99 is None:
        return f"{told}."
    return f"{told}; 99 of 100 were picked up within {span(case.work.pickup_p99)}."


def _not_waiting(case: TenantCase) -> Said:
    reasons, tenant = case.reasons, case.tenant
    if reasons["retry"]:
        parts: Parts = [Bold(plural(reasons["retry"], "message")), " of ", case.name, " ", Bold("failed")]
        how = "waits for its next try" if reasons["retry"] == 1 else "wait for their next try"
        return said("warn", [*parts, f" and {how}; nothing else of it waits."], _last_minute(case))
    if reasons["delay"]:
        what = plural(reasons["delay"], "message")
        how = "was written for later and is" if reasons["delay"] == 1 else "were written for later and are"
        return said("good", [case.name, " ", Bold("does not wait"), f": {what} {how} not due yet."], _last_minute(case))
    if tenant.in_flight:
        on = f"{plural(tenant.in_flight, 'message')} of it {'is' if tenant.in_flight == 1 else 'are'} worked on"
        return said("good", [case.name, " ", Bold("does not wait"), f": {on}."], _last_minute(case))
    dead = f", and {plural(tenant.dead, 'dead letter')} of it {'is' if tenant.dead == 1 else 'are'} kept"
    text = f": nothing of it waits or is worked on{dead if tenant.dead else ''}."
    return said("good", [case.name, " ", Bold("does not wait"), text], _last_minute(case))


def untils(case: TenantCase) -> dict[WaitReason, Parts]:
    """Return for each reason for which messages of it wait, until when that is."""
    row, reasons = case.row, case.reasons
    end = None if row is None else row.served_in
    pause = case.pause_of_queue or case.pause
    last: Parts = ["nobody knows yet how fast"] if end is None else ["the last in ", Bold(span(end))]
    told: dict[WaitReason, Parts] = {
        "worker": ["until one is started"],
        "turn": ["others are served in between; ", *last],
        "limit": [limit_of(case), *([] if end is None else ["; ", *last])],
        "pause": [] if pause is None else how_paused(pause, case.now),
        "delay": ["written for later"],
        "retry": ["failed, and waits for the next try"],
    }
    return {reason: told[reason] for reason in WAIT_REASONS if reasons[reason]}

"""How all tenants of a queue are, in one sentence: who is noisy, and whether anybody suffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from shardq.model.outlook import Outlook, TenantOutlook
from shardq.model.wording import number, plural, span
from shardq.outlook.names import name_of
from shardq.outlook.noisy import noisy
from shardq.outlook.said import Said, said, sentences
from shardq.outlook.sentence import At, Bold, Parts
from shardq.outlook.tenant import TenantLoad

SUFFERING_SECONDS: Final = 5.0
"""Seconds that one of 100 messages of a tenant waited at least, if it suffers."""
MAX_NAMED: Final = 3
"""Tenants that are named with their limits, and with their pauses."""


def suffering(outlook: Outlook, works: Mapping[str | bytes, TenantLoad]) -> list[str | bytes]:
    """Return who waits long, and neither for a limit, nor for a pause, nor for the rest of a flood of its own."""
    large = noisy(outlook)
    held = {each.shard_key for each in outlook.tenants if each.reasons["limit"] or each.reasons["pause"]}
    if large is not None:
        held.add(large.shard_key)
    slow = [key for key, each in works.items() if key not in held and (each.pickup_p99 or 0.0) > SUFFERING_SECONDS]
    return sorted(slow, key=lambda key: -(works[key].pickup_p99 or 0.0))


def tenants_said(outlook: Outlook, count: int, works: Mapping[str | bytes, TenantLoad], *, is_paused: bool) -> Said:
    """Return the state of *count* tenants; workers report their work for some; *is_paused*: the whole queue."""
    all_of_them, reasons = plural(count, "tenant"), outlook.reasons
    if is_paused:
        waits = _messages_wait(reasons["pause"]) if reasons["pause"] else "nothing waits"
        return said("pause", [Bold("The whole queue is paused"), f": {waits} of {all_of_them}."])
    if reasons["worker"]:
        of_whom = _messages_wait(reasons["worker"])
        return said("bad", [Bold("No worker reads this queue"), f": {of_whom} of {all_of_them}."])
    large, slow = noisy(outlook), suffering(outlook, works)
    parts: Parts = [Bold(all_of_them), ", "]
    if large is not None:
        parts = [Bold(f"1 of {all_of_them}"), " is noisy, ", Bold(name_of(large.shard_key)), "; "]
    parts += _suffers(slow, is_noisy=large is not None)
    parts += _waits(outlook)
    return said("warn" if slow else "good", parts, _held_back(outlook))


def _messages_wait(count: int) -> str:
    return f"{plural(count, 'message')} {'waits' if count == 1 else 'wait'}"


def _suffers(slow: list[str | bytes], *, is_noisy: bool) -> Parts:
    if not slow:
        return [Bold("nobody suffers") if is_noisy else "none noisy"]
    named = ", ".join(map(name_of, slow[:MAX_NAMED]))
    more = f" and {number(len(slow) - MAX_NAMED)} more" if len(slow) > MAX_NAMED else ""
    verb = "suffers" if len(slow) == 1 else "suffer"
    return [*([] if is_noisy else ["none noisy, but "]), Bold(f"{named}{more} {verb}")]


def _waits(outlook: Outlook) -> Parts:
    """Return how long the others wait at most, as far as workers tell."""
    if outlook.others_pickup is None:
        return ["."]
    who = "the others wait" if noisy(outlook) is not None else "they wait"
    return [f": {who} ", Bold(span(outlook.others_pickup)), " at most, 99 times in 100."]


def _held_back(outlook: Outlook) -> Parts:
    """Return who waits for limits, and who is paused."""
    limited = [each for each in outlook.tenants if each.reasons["limit"] and each.paused_until is None]
    paused = [each for each in outlook.tenants if each.paused_until is not None]
    return sentences(
        *([Bold(name_of(each.shard_key)), f" waits for {_limit_of(each)}."] for each in limited[:MAX_NAMED]),
        *([Bold(name_of(each.shard_key)), " is paused ", *_end_of(each, outlook.time)] for each in paused[:MAX_NAMED]),
    )


def _limit_of(tenant: TenantOutlook) -> str:
    if tenant.max_in_flight and tenant.in_flight >= tenant.max_in_flight:
        return f"its limit of {number(tenant.max_in_flight)} in flight"
    return f"its limit of {tenant.rate:g}/s" if tenant.rate else "its limits"


def _end_of(tenant: TenantOutlook, now: float) -> Parts:
    until = tenant.paused_until or 0.0
    return ["without an end."] if math.isinf(until) else ["until ", At(until, now), "."]

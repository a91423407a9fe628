"""Purge: all that one tenant has in a queue is removed."""

from __future__ import annotations

from typing import Final

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogDone, DialogText, line
from shardq.dashboard.actions.fields import NOTE, Field, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.look import foresight, queue_of, tenant_of, typed_name, whose
from shardq.dashboard.people import Role
from shardq.model.wording import number, plural
from shardq.outlook.names import name_of

MAX_PURGE_SECONDS: Final = 300.0
"""Seconds that the purge of one tenant may take: it takes the server some µs a message."""

_IN_FLIGHT = Field("in_flight", "Cancel what is in flight, too", "flag")


async def _say(desk: Desk, given: Given, wish: Wish) -> DialogText:
    has = await tenant_of(desk.source, given.queue, given.tenant)
    title = f"Purge {whose(given.tenant, given.queue)}"
    total = has.backlog + has.delayed + has.dead
    if not total and not has.in_flight and not has.dedup_keys:
        return DialogText(title, "", [line("It has nothing here.")], is_possible=False)
    what = f"{number(has.backlog)} waiting, {number(has.delayed)} delayed, {plural(has.dead, 'dead letter')}"
    keys = f", and its {plural(has.dedup_keys, 'dedup or unique key')}" if has.dedup_keys else ""
    lines = [
        line(f"{plural(total, 'message')} {'is' if total == 1 else 'are'} gone for good: {what}{keys}.", tone="bad"),
        line("This cannot be undone.", tone="bad"),
    ]
    if has.in_flight and wish["in_flight"]:
        told = "are cancelled: their holders learn of it when they next extend or ack"
        lines.append(line(f"{number(has.in_flight)} in flight {told}.", tone="bad"))
    elif has.in_flight:
        lines.append(line(f"{number(has.in_flight)} in flight stay, and are done or tried again."))
    lines.append(line("Messages written for it meanwhile stay: pause its writers first if nothing may come after."))
    if told := (await foresight(desk.source, given.queue)).without(has.shard_key).on_others():
        lines.append(line(told))
    counts = {"waiting": has.backlog, "delayed": has.delayed, "dead": has.dead}
    if wish["in_flight"]:
        counts["in flight"] = has.in_flight
    return DialogText(title, "Purge", lines, danger=typed_name(given.tenant, given.queue), counts=counts)


async def _purge(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    found = await queue_of(desk.source, given.queue).purge(
        shard_key=given.tenant,
        in_flight=wish["in_flight"],
        by=desk.person.name,
        note=wish["note"],
        timeout=MAX_PURGE_SECONDS,
    )
    words = f"{number(found.waiting)} waiting, {number(found.delayed)} delayed, {plural(found.dead, 'dead letter')}"
    more = f"; {number(found.cancelled)} in flight were cancelled" if found.cancelled else ""
    more += f"; {number(found.left_in_flight)} in flight stay" if found.left_in_flight else ""
    return DialogDone(f"Removed of {name_of(given.tenant)}: {words}{more}.")


PURGE = DialogAction("purge", Role.ADMIN, Takes(key=True), (_IN_FLIGHT, NOTE), _say, _purge, is_bad=True)

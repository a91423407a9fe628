"""Pause for a while, and resume: a tenant, or the whole queue."""

from __future__ import annotations

import math
from typing import Final

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogDone, DialogLine, DialogText, line
from shardq.dashboard.actions.fields import DURATION_FIELD, NOTE, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.look import (
    State,
    agree_on,
    controls_of,
    foresight,
    queue_of,
    stats_of,
    tenant_of,
    whose,
)
from shardq.dashboard.actions.progress import MAX_NOTE
from shardq.dashboard.people import Role
from shardq.model import Controls
from shardq.model.controls import Control
from shardq.model.wording import number, plural, span
from shardq.ops.operate import limits
from shardq.ops.queue.change import Agree
from shardq.ops.queue.who import Who
from shardq.outlook.foresight import LONG_WAIT_SECONDS, Foresight
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Parts
from shardq.partitions.over import change


async def _say_pause(desk: Desk, given: Given, wish: Wish) -> DialogText:
    controls = await controls_of(desk.source, given.queue, given.key)
    seconds = _seconds(wish)
    ends: Parts = ["until somebody ends it"]
    if seconds is not None:
        ends = ["until ", At(controls.time + seconds, controls.time)]
    if given.key is None:
        lines = await _pause_of_all(desk, given, ends)
    else:
        lines = await _pause_of_one(desk, given, ends)
    if seconds is None:
        lines.append(line("A pause without an end is easily forgotten.", tone="warn"))
    before = controls.paused.get(given.key)
    if before is not None:
        lines.insert(0, line(_who_paused(before, controls.time), ": this takes the place of that.", tone="warn"))
    return DialogText(
        title=f"Pause {whose(given.key, given.queue)}",
        verb="Pause",
        lines=lines,
        state=_state(controls, given),
        changed={"the pause": _changed(before)},
    )


def _state(controls: Controls, given: Given) -> State:
    before = controls.paused.get(given.key)
    return {"the pause": None if before is None else (before.until, before.by, before.since)}


def _changed(pause: Control | None) -> str:
    """Say what somebody has done who was faster."""
    if pause is None:
        return "the pause has ended meanwhile"
    ends = "without an end" if math.isinf(pause.until) else "for a while"
    return f"{name_of(pause.by) if pause.by else 'somebody'} has paused it meanwhile, {ends}"


async def _pause_of_one(desk: Desk, given: Given, ends: Parts) -> list[DialogLine]:
    has = await tenant_of(desk.source, given.queue, given.tenant)
    lines = [_wait(has.backlog, has.delayed, ends)]
    goes = f"{plural(has.in_flight, 'message')} in flight {_continues(has.in_flight)}. So do its writes."
    lines.append(line(goes if has.in_flight else "Its writes continue."))
    effect = (await foresight(desk.source, given.queue)).without(has.shard_key)
    lines.append(line(effect.on_others() or "Nobody else waits longer."))
    return lines


async def _pause_of_all(desk: Desk, given: Given, ends: Parts) -> list[DialogLine]:
    has = await stats_of(desk.source, given.queue)
    waits = "waits" if has.backlog == 1 else "wait"
    what = f"It is the whole queue: {plural(has.backlog, 'message')} of all tenants {waits} "
    lines = [line(what, ends, ".", tone="warn")]
    goes = f"{plural(has.in_flight, 'message')} in flight {_continues(has.in_flight)}, and so do writes."
    lines.append(line(goes if has.in_flight else "Writes continue."))
    sight = await foresight(desk.source, given.queue)
    if sight.written:
        lines.append(line(f"About {number(60 * sight.written)} more come in a minute."))
    return lines


def _wait(backlog: int, delayed: int, ends: Parts) -> DialogLine:
    if not backlog and not delayed:
        return line("It has no messages now. New messages for it wait ", ends, ".")
    what = [f"its {plural(backlog, 'message')}"] if backlog else []
    what += [f"{number(delayed)} delayed"] if delayed else []
    words = " and ".join(what)
    verb = "waits" if backlog + delayed == 1 else "wait"
    return line(f"{words[0].upper()}{words[1:]} {verb} ", ends, ", with what is written for it.")


def _continues(count: int) -> str:
    return "continues" if count == 1 else "continue"


def _seconds(wish: Wish) -> float | None:
    return float(wish["seconds"]) if wish["seconds"] else None


def _who_paused(before: Control, now: float) -> Parts:
    by = name_of(before.by) if before.by else "Somebody"
    since: Parts = [" at ", At(before.since, now)] if before.since is not None else []
    ends: Parts = ["without an end"] if math.isinf(before.until) else ["until ", At(before.until, now)]
    note = f" ({name_of(before.note, MAX_NOTE)})" if before.note else ""
    return [f"{by} paused it", *since, ", ", *ends, note]


async def _pause(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    seconds = _seconds(wish)
    state, who = queue_of(desk.source, given.queue).state, Who(desk.person.name, wish["note"])
    agrees = _agree(desk, given, said)
    op = change(state, lambda each, agree: limits.pause(each, given.key, seconds, None, who, agree), agrees)
    await desk.source.client.run(op)
    lasts = "until somebody ends it" if seconds is None else f"for {dict(DURATION_FIELD.choices)[wish['seconds']]}"
    return DialogDone(f"{whose(given.key, given.queue)} is paused {lasts}.")


async def _say_resume(desk: Desk, given: Given, wish: Wish) -> DialogText:
    controls = await controls_of(desk.source, given.queue, given.key)
    title, before = f"End the pause of {whose(given.key, given.queue)}", controls.paused.get(given.key)
    if before is None:
        return DialogText(title, "", [_not_paused(controls, given)], is_possible=False)
    lines = [line(_who_paused(before, controls.time), ".")]
    sight = await foresight(desk.source, given.queue)
    lines += await (_resume_of_all if given.key is None else _resume_of_one)(desk, given, sight)
    if given.key is not None and None in controls.paused:
        lines.append(line("The whole queue is paused, too: nothing comes before that ends.", tone="warn"))
    if not sight.has_reader:
        lines.append(line("No worker reads the queue.", tone="warn"))
    changed = {"the pause": _changed(before)}
    return DialogText(title, "End the pause", lines, state=_state(controls, given), changed=changed)


async def _resume_of_all(desk: Desk, given: Given, sight: Foresight) -> list[DialogLine]:
    has = await stats_of(desk.source, given.queue)
    lines = [line(f"{plural(has.backlog, 'message')} can be delivered at once.")]
    if has.limited:
        lines.append(line(f"{number(has.limited)} of them still wait for limits or pauses of their tenants."))
    if served := sight.all_resumed().own_after:
        lines.append(line(f"All is served in about {span(served)}."))
    return lines


async def _resume_of_one(desk: Desk, given: Given, sight: Foresight) -> list[DialogLine]:
    has = await tenant_of(desk.source, given.queue, given.tenant)
    lines = [line(f"Its {plural(has.backlog, 'message')} can be delivered at once.")]
    effect = sight.resumed(has.shard_key)
    if effect.own_after:
        lines.append(line(f"They are served in about {span(effect.own_after)}."))
    if told := effect.on_others():
        lines.append(line(told, tone="warn" if (effect.longer or 0) > LONG_WAIT_SECONDS else ""))
    return lines


def _not_paused(controls: Controls, given: Given) -> DialogLine:
    if given.key is not None and None in controls.paused:
        who = _who_paused(controls.paused[None], controls.time)
        return line("It is not paused by itself: the whole queue is. ", who, ".")
    return line("It is not paused.")


async def _resume(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    state, who = queue_of(desk.source, given.queue).state, Who(desk.person.name, wish["note"])
    agrees = _agree(desk, given, said)
    op = change(state, lambda each, agree: limits.resume(each, given.key, None, who, agree), agrees)
    await desk.source.client.run(op)
    return DialogDone(f"{whose(given.key, given.queue)} goes on.")


def _agree(desk: Desk, given: Given, said: DialogText) -> Agree:
    return agree_on(desk.source, given.queue, given.key, said.state, lambda found: _state(found, given))


_ONE_OR_ALL: Final = Takes(key=True, or_all=True)

PAUSE = DialogAction("pause", Role.ACT, _ONE_OR_ALL, (DURATION_FIELD, NOTE), _say_pause, _pause)
RESUME = DialogAction("resume", Role.ACT, _ONE_OR_ALL, (NOTE,), _say_resume, _resume)

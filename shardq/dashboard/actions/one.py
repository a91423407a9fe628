"""Actions on one thing: a message is cancelled, a schedule runs now, an action is stopped."""

from __future__ import annotations

from typing import Final

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogDone, DialogText, line
from shardq.dashboard.actions.fields import NOTE, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.look import queue_of
from shardq.dashboard.actions.progress import ACTION_WORDS, VIA_ONE, can_go_on
from shardq.dashboard.actions.refused import FORBIDDEN, NOT_FOUND, ActionRefused
from shardq.dashboard.people import Role
from shardq.model.action import ActionStatus
from shardq.model.schedule import Schedule
from shardq.model.wording import number, plural
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At

_STATES: Final = {
    "waiting": "It waits for its turn", "held_back": "It waits for its turn", "delayed": "It is delayed",
    "in_flight": "It is being worked on", "dead": "It is a dead letter",
}  # fmt: skip
_DONE: Final = {
    "removed": "It is removed.",
    "in flight": "It is not delivered again; its holder learns of it when it next extends or acks.",
    "dead": "It is a dead letter by now: nothing was changed.",
}


async def _say_cancel(desk: Desk, given: Given, wish: Wish) -> DialogText:
    status = await queue_of(desk.source, given.queue).status(given.name)
    title = f"Cancel a message of {given.queue}"
    if status.state not in _STATES or status.cancelled:
        raise ActionRefused("There is no such message any more: it is done, or was removed.", NOT_FOUND)
    if status.state == "dead":
        return DialogText(title, "", [line("It is a dead letter: redrive it, or delete it.")], is_possible=False)
    whose = f", of {name_of(status.shard_key)}" if status.shard_key else ""
    task = f" It calls {name_of(status.task)}." if status.task else ""
    lines = [line(f"{_STATES[status.state]}{whose}.{task}")]
    if status.state == "in_flight":
        lines.append(
            line("Its holder learns of it when it next extends or acks: its work by then stays done.", tone="warn")
        )
    lines += [line("It is gone for good. This cannot be undone.", tone="bad"), line("Nobody waits longer.")]
    is_held = status.state == "in_flight"
    return DialogText(title, "Cancel the message", lines, state={"the message": is_held})


async def _cancel(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    was = await queue_of(desk.source, given.queue).cancel(given.name, by=desk.person.name, note=wish["note"])
    return DialogDone(_DONE[str(was)])


async def _schedule(desk: Desk, given: Given) -> tuple[Schedule, float]:
    queue = queue_of(desk.source, given.queue)
    now = (await queue.stats()).time
    for each in await queue.schedules.list():
        if each.name == given.name:
            return each, now
    raise ActionRefused(f"There is no schedule {name_of(given.name)} any more.", NOT_FOUND)


async def _say_run(desk: Desk, given: Given, wish: Wish) -> DialogText:
    schedule, now = await _schedule(desk, given)
    task = name_of(schedule.task) if schedule.task else "its payload"
    lines = [line(f"One message is written now: {task}, of {name_of(schedule.shard_key)}.")]
    if schedule.paused:
        lines.append(line("The schedule is paused, and stays so.", tone="warn"))
    elif schedule.next is not None:
        lines.append(line("Its next time, ", At(schedule.next, now), ", stays as it is: it runs twice then."))
    lines.append(line("It waits for its turn as others do."))
    state = {"the schedule": (schedule.task, schedule.paused, str(schedule.shard_key))}
    return DialogText(f"Run {name_of(schedule.name)} of {given.queue} now", "Run now", lines, state=state)


async def _run(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    written = await queue_of(desk.source, given.queue).schedules.run(given.name, by=desk.person.name, note=wish["note"])
    return DialogDone(f"Written: message {written}.")


async def _action(desk: Desk, given: Given) -> ActionStatus:
    for each in await queue_of(desk.source, given.queue).actions():
        if each.id == given.name:
            return each
    raise ActionRefused("There is no such action any more.", NOT_FOUND)


async def _say_stop(desk: Desk, given: Given, wish: Wish) -> DialogText:
    one = await _action(desk, given)
    title = f"Stop the {ACTION_WORDS[one.kind].noun} of {name_of(one.by)} in {given.queue}"
    if one.is_over:
        return DialogText(title, "", [line(f"It is over: {one.state}.")], is_possible=False)
    left = "" if one.left is None else f", about {number(one.left)} are left"
    lines = [line(f"{plural(one.done, 'message')} {ACTION_WORDS[one.kind].done} so far{left}.")]
    lines.append(
        line("It ends with its next piece, of a hundred at most. Messages that are done stay done; all others stay.")
    )
    return DialogText(title, "Stop it", lines)


async def _stop(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    found = await queue_of(desk.source, given.queue).stop_action(given.name, by=desk.person.name, note=wish["note"])
    word = "is stopped" if found.is_over else "stops with its next piece"
    return DialogDone(f"The {ACTION_WORDS[found.kind].noun} {word}.", given.name)


async def _say_go_on(desk: Desk, given: Given, wish: Wish) -> DialogText:
    one = await _action(desk, given)
    title = f"Continue the {ACTION_WORDS[one.kind].noun} of {name_of(one.by)} in {given.queue}"
    if one.via == VIA_ONE:
        return DialogText(title, "", [line("It was about one message: try that one again.")], is_possible=False)
    if not can_go_on(one):
        return DialogText(title, "", [line(f"Nobody needs to: it is {one.state}.")], is_possible=False)
    left = "" if one.left is None else f" About {number(one.left)} are left."
    done = f"{plural(one.done, 'message')} {ACTION_WORDS[one.kind].done}"
    why = {"abandoned": "Its process was silent for 30 s.", "failed": f"It failed: {one.problem}."}
    lines = [
        line(f"{why.get(one.state, 'Somebody stopped it.')} {done}.{left}"),
        line("This page continues it, under the same name. Each message is acted on once."),
    ]
    if one.kind in ("cancel", "delete_dead"):
        lines.append(line("The messages that it removes are gone for good.", tone="bad"))
    return DialogText(title, "Go on", lines, state={"the action": (one.state, one.done)})


async def _go_on(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    one = await _action(desk, given)
    if one.kind in ("cancel", "delete_dead") and desk.person.role < Role.ADMIN:
        raise ActionRefused("Actions that remove messages are for the role admin.", FORBIDDEN)
    await desk.handles.take_over(given.queue, one.id)
    return DialogDone(f"The {ACTION_WORDS[one.kind].noun} goes on.", one.id)


_MESSAGE: Final = Takes(name="message_id")
_ONE_ACTION: Final = Takes(name="id")

CANCEL_ONE = DialogAction("cancel", Role.ACT, _MESSAGE, (NOTE,), _say_cancel, _cancel, is_bad=True)
RUN_NOW = DialogAction("run_now", Role.ACT, Takes(name="schedule"), (NOTE,), _say_run, _run)
STOP = DialogAction("stop", Role.ACT, _ONE_ACTION, (NOTE,), _say_stop, _stop)
GO_ON_ACTION = DialogAction("go_on", Role.ACT, _ONE_ACTION, (), _say_go_on, _go_on)

"""One message that failed: it is tried now, or as a dead letter redriven or deleted."""

from __future__ import annotations

from typing import Final

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogDone, DialogLine, DialogText, line
from shardq.dashboard.actions.fields import NOTE, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.look import queue_of
from shardq.dashboard.actions.refused import NOT_FOUND, ActionRefused
from shardq.dashboard.people import Role
from shardq.model import DeadLetter, MessageStatus
from shardq.model.wording import plural
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Parts

LETTERS_A_PAGE: Final = 1000
"""Dead letters of about the same moment, among which one is looked for."""
MAX_REASON: Final = 200
"""Letters of a reason that a dialog shows."""


async def _status(desk: Desk, given: Given) -> MessageStatus:
    status = await queue_of(desk.source, given.queue).status(given.name)
    if status.state in ("unknown", "done"):
        raise ActionRefused("There is no such message any more: it is done, or was removed.", NOT_FOUND)
    return status


async def _letter(desk: Desk, given: Given) -> tuple[DeadLetter, float]:
    """The dead letter, and the server's time. Refused if it is none any more."""
    status = await _status(desk, given)
    if status.state != "dead" or status.since is None:
        raise ActionRefused("It is no dead letter any more.", NOT_FOUND)
    after = f"{max(0, int(status.since * 1000) - 1)}-0"
    for each in await queue_of(desk.source, given.queue).dead(LETTERS_A_PAGE, after=after):
        if each.message_id == given.name:
            return each, status.time
    raise ActionRefused("It was not found among the dead letters of its time: use the filter.", NOT_FOUND)


def _about(letter: DeadLetter, now: float) -> DialogLine:
    task = f" It calls {name_of(letter.task)}." if letter.task else ""
    whose = f"of {name_of(letter.shard_key)}, " if letter.shard_key else ""
    tries = plural(letter.count, "delivery", "deliveries")
    died = At(letter.died_at, now)
    return line(f"A dead letter {whose}{tries} so far.{task} It died at ", died, f": {letter.reason[:MAX_REASON]}.")


async def _say_redrive(desk: Desk, given: Given, wish: Wish) -> DialogText:
    letter, now = await _letter(desk, given)
    settings = await queue_of(desk.source, given.queue).settings()
    tries = plural(settings.max_deliveries, "more try", "more tries")
    told = line(f"It is delivered again, with up to {tries}. Nobody else waits longer.")
    return DialogText(f"Redrive a message of {given.queue}", "Redrive", [_about(letter, now), told])


async def _redrive(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    letter, _ = await _letter(desk, given)
    moved = await queue_of(desk.source, given.queue).redrive([letter], by=desk.person.name, note=wish["note"])
    return DialogDone("It waits for its turn again." if moved else "It is no dead letter any more: nothing was done.")


async def _say_delete(desk: Desk, given: Given, wish: Wish) -> DialogText:
    letter, now = await _letter(desk, given)
    lines = [_about(letter, now), line("It is gone for good, with its payload. This cannot be undone.", tone="bad")]
    return DialogText(f"Delete a dead letter of {given.queue}", "Delete", lines, danger=given.queue)


async def _delete(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    queue = queue_of(desk.source, given.queue)
    deleted = await queue.delete_dead(ids=[given.name], by=desk.person.name, note=wish["note"])
    return DialogDone("It is deleted." if deleted else "It is no dead letter any more: nothing was done.")


async def _say_retry(desk: Desk, given: Given, wish: Wish) -> DialogText:
    status, title = await _status(desk, given), f"Try a message of {given.queue} now"
    if status.state != "delayed" or not status.deliveries or status.shard_key is None:
        return DialogText(title, "", [line("It does not wait for its next try.")], is_possible=False)
    due: Parts = [", at ", At(status.until, status.time)] if status.until else []
    error = f" It failed with {name_of(status.error_type or status.last_error)}." if status.last_error else ""
    told = line("It waits for its next try", due, f".{error}")
    now = line("It can be delivered at once. Its tries so far stay counted, and nobody else waits longer.")
    return DialogText(title, "Try now", [told, now])


async def _retry(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    status = await _status(desk, given)
    if not now.is_possible or status.shard_key is None:
        raise ActionRefused("It does not wait for its next try any more.", NOT_FOUND)
    acted = await desk.handles.retry_one(given.queue, given.name, status.shard_key, desk.person.name, wish["note"])
    return DialogDone("It can be delivered now." if acted else "It does not wait for its next try any more.")


_ONE: Final = Takes(name="message_id")

REDRIVE_ONE = DialogAction("redrive", Role.ACT, _ONE, (NOTE,), _say_redrive, _redrive)
DELETE_ONE = DialogAction("delete", Role.ADMIN, _ONE, (NOTE,), _say_delete, _delete, is_bad=True)
RETRY_ONE = DialogAction("retry_now", Role.ACT, _ONE, (NOTE,), _say_retry, _retry)

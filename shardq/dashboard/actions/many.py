"""Actions on many messages by a filter: redrive, retry now, cancel, delete. A handle continues each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogDone, DialogLine, DialogText, line
from shardq.dashboard.actions.fields import NOTE, RATE, Field, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.look import counted, foresight, queue_of, stats_of, typed_name
from shardq.dashboard.people import Role
from shardq.model.action import ActionKind, ActionStatus
from shardq.model.where import Where, WhereState
from shardq.model.wording import number, plural, span
from shardq.ops.operate.counting import Counted
from shardq.outlook.filters import filter_in_words
from shardq.outlook.names import name_of

RECENT_MINUTES: Final = 10
"""Minutes that `Failure.recent` covers."""

_FULL_RATE = RATE.with_value("")


@dataclass(frozen=True, slots=True)
class ManyAction:
    """An action in words: it is to "Redrive" a number of "dead letters", which are "redriven" then."""

    kind: ActionKind
    verb: str
    noun: str
    done: str
    nouns: str = ""

    def of(self, count: int) -> str:
        """The count and the noun."""
        return plural(count, self.noun, self.nouns)


REDRIVE_WORDS: Final = ManyAction("redrive", "Redrive", "dead letter", "redriven")
RETRY_WORDS: Final = ManyAction(
    "retry_now", "Try now", "message that waits for its next try", "tried", "messages that wait for their next try"
)
CANCEL_WORDS: Final = ManyAction("cancel", "Cancel", "message", "cancelled")
DELETE_WORDS: Final = ManyAction("delete_dead", "Delete", "dead letter", "deleted")


async def _say(doing: ManyAction, desk: Desk, given: Given, wish: Wish) -> DialogText:
    found = await counted(desk.source, given.queue, doing.kind, given.filter)
    title = f"{doing.verb}: {'' if found.are_all else 'at least '}{doing.of(found.found)} of {given.queue}"
    about = line(_about(given.filter))
    if not found.found and found.are_all:
        return DialogText(title, "", [about, line("There are none.")], is_possible=False)
    if (busy := await _under_way(desk, given.queue)) is not None:
        told = (
            f"{name_of(busy.by)} has another action under way on this queue, and one runs at a time: wait, or stop it."
        )
        return DialogText(title, "", [about, line(told, tone="warn")], is_possible=False)
    lines = [about]
    if not found.are_all:
        lines.append(line("There are too many to count: it goes through all, not only these.", tone="warn"))
    lines += await _WHAT[doing.kind](desk, given, wish, found)
    lines.append(line(_takes(found, wish["rate"])))
    danger = typed_name(given.filter.tenant, given.queue) if doing.kind in ("cancel", "delete_dead") else ""
    limit = found.found if found.are_all else None
    return DialogText(title, doing.verb, lines, danger=danger, limit=limit)


def _about(where: Where) -> str:
    """Say which messages it is about. A part that is always the same need not be said."""
    rest = replace(where, state=None) if where.state in ("dead", "retrying") else where
    return "It is about all of them." if rest.is_empty else f"It is about those with {filter_in_words(rest)}."


async def _under_way(desk: Desk, queue: str) -> ActionStatus | None:
    """The action that somebody works on, if there is one."""
    found = await queue_of(desk.source, queue).actions()
    return next((each for each in found if each.state in ("running", "stopping")), None)


def _takes(found: Counted, rate: float | None) -> str:
    if not rate:
        return "It goes as fast as it can, a hundred a piece."
    return f"It takes {'' if found.are_all else 'at least '}{span(found.found / rate)} at {rate:,g}/s."


async def _of_redrive(desk: Desk, given: Given, wish: Wish, found: Counted) -> list[DialogLine]:
    queue = queue_of(desk.source, given.queue)
    settings, stats = await queue.settings(), await stats_of(desk.source, given.queue)
    tries = plural(settings.max_deliveries, "more try", "more tries")
    lines = [line(f"They are delivered again, the oldest first, with up to {tries} each.")]
    room = settings.max_len - stats.backlog - stats.delayed - stats.in_flight if settings.max_len else None
    if room is not None and room < found.found:
        lines.append(line(f"The queue has room for {number(max(0, room))} more (max_len): it ends there.", tone="warn"))
    lines += await _fails_still(desk, given)
    return lines + await _others(desk, given, wish, found)


async def _of_retry(desk: Desk, given: Given, wish: Wish, found: Counted) -> list[DialogLine]:
    lines = [line("They can be delivered at once. Their tries so far stay counted.")]
    lines += await _fails_still(desk, given)
    return lines + await _others(desk, given, wish, found)


async def _of_cancel(desk: Desk, given: Given, wish: Wish, found: Counted) -> list[DialogLine]:
    lines = [line("They are gone for good. This cannot be undone.", tone="bad")]
    if given.filter.state in (None, "in_flight"):
        told = "The holders of those in flight learn of it when they next extend or ack."
        lines.append(line(told, tone="warn"))
    return [*lines, line("Nobody waits longer.")]


async def _of_delete(desk: Desk, given: Given, wish: Wish, found: Counted) -> list[DialogLine]:
    return [
        line("They are gone for good, with their payloads. This cannot be undone.", tone="bad"),
        line("Nobody waits for them: all else stays as it is."),
    ]


_WHAT: Final = {"redrive": _of_redrive, "retry_now": _of_retry, "cancel": _of_cancel, "delete_dead": _of_delete}


async def _fails_still(desk: Desk, given: Given) -> list[DialogLine]:
    """A warning, if what is to be tried again has just failed."""
    where = given.filter
    groups = await queue_of(desk.source, given.queue).failures()
    recent = sum(
        each.recent
        for each in groups
        if where.task in (None, each.task) and (where.error is None or where.error == each.error_type)
    )
    if not recent:
        return []
    times = plural(recent, "try", "tries")
    return [
        line(f"{times} of this kind failed in the last {RECENT_MINUTES} minutes: they may fail again.", tone="warn")
    ]


async def _others(desk: Desk, given: Given, wish: Wish, found: Counted) -> list[DialogLine]:
    """Say what it costs the others."""
    sight = await foresight(desk.source, given.queue)
    if not sight.has_reader:
        return [line("No worker reads the queue: they wait there.", tone="warn")]
    rate, spare = wish["rate"], sight.spare
    lines = []
    if spare is not None and rate and rate > spare:
        lines.append(line(f"The workers have time for about {spare:,.2g}/s more: beyond that they wait.", tone="warn"))
    if told := sight.added(found.found, rate).on_others(at_most=True):
        lines.append(line(told))
    return lines


async def _do(doing: ManyAction, desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    limit = said.limit
    handle = await desk.handles.begin(
        given.queue, doing.kind, given.filter, wish["rate"] or None, limit, desk.person.name, wish["note"]
    )
    more = 0 if limit is None or now.limit is None else now.limit - limit
    left = f" {plural(more, 'more has', 'more have')} come since the dialog was opened, and stay." if more > 0 else ""
    of = "those that there are" if limit is None else doing.of(limit)
    return DialogDone(f"{doing.verb}: {of} of {given.queue}, under way.{left}", handle)


def _action(
    name: str, doing: ManyAction, role: Role, state: WhereState | None, rate: Field, *, is_bad: bool
) -> DialogAction:
    takes = Takes(is_filter=True, state=state)
    return DialogAction(name, role, takes, (rate, NOTE), partial(_say, doing), partial(_do, doing), is_bad)


REDRIVE = _action("redrive", REDRIVE_WORDS, Role.ACT, "dead", RATE, is_bad=False)
RETRY_NOW = _action("retry_now", RETRY_WORDS, Role.ACT, "retrying", RATE, is_bad=False)
CANCEL = _action("cancel", CANCEL_WORDS, Role.ADMIN, None, _FULL_RATE, is_bad=True)
DELETE = _action("delete", DELETE_WORDS, Role.ADMIN, "dead", _FULL_RATE, is_bad=True)

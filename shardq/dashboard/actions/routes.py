"""The addresses of actions: `GET ask/NAME` says what one will do, `POST act/NAME` does it, `GET handle` tells how far.

The page around it has looked at where a request comes from, and at who asks (`request.state.person`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogText
from shardq.dashboard.actions.fields import MAX_VALUE, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.handles import Handles, actions_of
from shardq.dashboard.actions.refused import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    TOO_LARGE,
    ActionRefused,
    refusal_of,
)
from shardq.dashboard.actions.table import action_of
from shardq.dashboard.actions.tickets import DialogTicket, Tickets
from shardq.dashboard.bodies import TooLarge, body_of
from shardq.dashboard.people import Person
from shardq.dashboard.refusal_log import RefusalLog
from shardq.dashboard.scene import NotThere
from shardq.dashboard.source import SceneSource
from shardq.errors import BackendError, BackendTimeout, ShardqError
from shardq.model.wording import number, plural
from shardq.ops.queue.change import Changed

log = logging.getLogger("shardq.dashboard")

MAX_BODY: Final = 8 * 1024
"""Bytes of what is posted."""
MAX_ASKED: Final = 20
"""Names in a query."""
MAX_DIALOGS_AT_ONCE: Final = 8
"""Dialogs that are reckoned at once; the others wait."""
PATIENCE: Final = 5.0
"""Seconds for which a person waits for what a dialog says."""
MAX_GROWTH: Final = 10
"""Messages by which a count may grow, and a tenth, before the person is asked again."""

LOOK_AGAIN: Final = "Look at what it does now."
NOTHING_DONE_YET: Final = f"Nothing was done yet: it was changed meanwhile, and changed back. {LOOK_AGAIN}"

Handler = Callable[[Request], Awaitable[dict[str, Any]]]
_HANDLE: Final = Takes(name="id")


class Posted(msgspec.Struct, forbid_unknown_fields=True):
    """The data of a POST from the page."""

    ticket: str
    fields: dict[str, str] = {}


class Counter:
    """Takes what people ask for and do. For one event loop."""

    def __init__(
        self, source: SceneSource, handles: Handles, refusals: RefusalLog, changed: Callable[[str], None]
    ) -> None:
        self.source = source
        self.handles = handles
        self._refusals, self._tell_screens = refusals, changed
        self.tickets = Tickets(source.client.clock)
        self._places = asyncio.Semaphore(MAX_DIALOGS_AT_ONCE)

    async def ask(self, request: Request) -> dict[str, Any]:
        """Say what an action will do, with a ticket for it."""
        self.handles.search()
        said = _asked(request)
        action = self._allowed(request, said)
        names = {each.name for each in action.fields}
        given = action.takes.read({name: value for name, value in said.items() if name not in names})
        wish = Wish(action.fields, {name: value for name, value in said.items() if name in names})
        person = _person(request)
        now = await self._say(Desk(self.source, person, self.handles), action, given, wish)
        return self._dialog(person, action, given, wish, now)

    async def act(self, request: Request) -> dict[str, Any]:
        """Do what a ticket is for, once."""
        self.handles.search()
        person, posted = _person(request), await _posted(request)
        ticket = self._ticket(request, person, posted)
        action = ticket.action
        wish = _wish(ticket, posted.fields)
        self.tickets.take(posted.ticket)  # from here on it is used, whatever comes
        desk = Desk(self.source, person, self.handles)
        now = await self._say(desk, action, ticket.given, wish)
        if told := _changed(ticket.said, now):
            return self._again(person, ticket, wish, now, told)
        try:
            done = await action.do(desk, ticket.given, wish, ticket.said, now)
        except Changed:  # by somebody who was faster by less than it took to look
            now = await self._say(desk, action, ticket.given, wish)
            return self._again(person, ticket, wish, now, _changed(ticket.said, now) or NOTHING_DONE_YET)
        except ShardqError as error:  # it may be done, or a part of it
            log.warning(
                "%s (%s) tried %s: %s", person.name, person.role.name.lower(), _told(action, ticket.given), error
            )
            self._tell_screens(ticket.given.queue)
            raise
        log.info("%s (%s) did %s", person.name, person.role.name.lower(), _told(action, ticket.given))
        self.source.forget(("actions", ticket.given.queue))  # it is cheap, and the person looks at it next
        self._tell_screens(ticket.given.queue)
        return {"said": done.text, "queue": ticket.given.queue, "handle": done.handle}

    async def handle(self, request: Request) -> dict[str, Any]:
        """Tell how far an action on many messages is."""
        self.handles.search()
        given = _HANDLE.read(_asked(request))
        for each in await actions_of(self.source, given.queue):
            if each["id"] == given.name:
                return each
        raise ActionRefused("There is no such action any more.", NOT_FOUND)

    def _again(self, person: Person, ticket: DialogTicket, wish: Wish, now: DialogText, told: str) -> dict[str, Any]:
        """Return the answer to one who saw a text that does not hold any more."""
        dialog = self._dialog(person, ticket.action, ticket.given, wish, now)
        return {"status": CONFLICT, "text": told, "ask": dialog}

    def _dialog(
        self, person: Person, action: DialogAction, given: Given, wish: Wish, said: DialogText
    ) -> dict[str, Any]:
        found = action.shown(said, wish)
        if said.is_possible:
            texts = {**wish.texts, **said.values}
            found["ticket"] = self.tickets.issue(person, action, given, texts, said)
        return found

    def _allowed(self, request: Request, said: Mapping[str, str]) -> DialogAction:
        """Return the action that is asked for, if this person may do it."""
        action, person = action_of(request.path_params["action"], said), _person(request)
        if action is None:
            raise ActionRefused("There is no such action.", NOT_FOUND)
        if person.role < action.role:
            self._refusals.tell(request, "the role does not allow it", person.name)
            raise ActionRefused(f"This is for people with the role {action.role.name.lower()}.", FORBIDDEN)
        return action

    async def _say(self, desk: Desk, action: DialogAction, given: Given, wish: Wish) -> DialogText:
        """Reckon what an action would do. It only reads, so a person who waits for Redis gets an answer soon."""
        try:
            async with asyncio.timeout(PATIENCE), self._places:
                return await action.say(desk, given, wish)
        except TimeoutError:
            raise refusal_of(BackendTimeout("no answer")) from None

    def _ticket(self, request: Request, person: Person, posted: Posted) -> DialogTicket:
        found = self.tickets.look(posted.ticket, person, request.path_params["action"])
        if found is None:
            self._refusals.tell(request, "no such ticket", person.name)
            raise ActionRefused("This dialog is over, or was used already. Open it again: nothing was done.", CONFLICT)
        return found


def routes(
    source: SceneSource, handles: Handles, refusals: RefusalLog, changed: Callable[[str], None]
) -> list[BaseRoute]:
    """Return the addresses of actions, for a page whose actions are on.

    *handles* continues actions that take long, *refusals* notes in the log what is refused. *changed* is called with
    the name of a queue to which something was done, which screens may show.
    """
    counter = Counter(source, handles, refusals, changed)
    return [
        Route("/ask/{action}", _answered(counter.ask, refusals), methods=["GET"]),
        Route("/act/{action}", _answered(counter.act, refusals), methods=["POST"]),
        Route("/handle", _answered(counter.handle, refusals), methods=["GET"]),
    ]


def _answered(handler: Handler, refusals: RefusalLog) -> Callable[[Request], Awaitable[Response]]:
    """Answer with JSON; why something is not done as a sentence. The log has what Redis said."""

    @wraps(handler)
    async def answer(request: Request) -> Response:
        try:
            found = await handler(request)
        except ActionRefused as refused:
            return JSONResponse({"text": refused.text}, refused.status)
        except NotThere as error:
            return JSONResponse({"text": str(error)}, NOT_FOUND)
        except ShardqError as error:
            if isinstance(error, BackendError) and request.method == "GET":  # of an act it stands there already
                refusals.tell(request, str(error), _person(request).name)
            told = refusal_of(error)
            return JSONResponse({"text": told.text}, told.status)
        return JSONResponse(found, found.pop("status", 200))

    return answer


def _person(request: Request) -> Person:
    person: Person = request.state.person
    return person


def _asked(request: Request) -> dict[str, str]:
    """The words of a query. Refused if it says much, or something twice."""
    said = request.query_params.multi_items()
    if len(said) > MAX_ASKED or len(dict(said)) < len(said):
        raise ActionRefused("Too much is asked for at once.")
    return dict(said)


async def _posted(request: Request) -> Posted:
    try:
        body = await body_of(request, MAX_BODY)
    except TooLarge:
        raise ActionRefused("Too much was sent.", TOO_LARGE) from None
    try:
        return msgspec.json.decode(body, type=Posted)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ActionRefused("The request is no action.") from None


def _wish(ticket: DialogTicket, sent: Mapping[str, str]) -> Wish:
    """The choices that were shown, with the note.

    Refused if something else is wanted than was shown, or a name is not typed right.
    """
    action = ticket.action
    for each in action.fields:
        if each.is_said and each.name in sent and sent[each.name] != ticket.texts[each.name]:
            raise ActionRefused("You chose otherwise meanwhile: look at what it does now.", CONFLICT)
    danger = ticket.said.danger
    if danger and sent.get("typed", "")[:MAX_VALUE].strip() != danger:
        raise ActionRefused(f"Type {danger} to continue: nothing was done.", BAD_REQUEST)
    free = {each.name: sent[each.name] for each in action.fields if not each.is_said and each.name in sent}
    return Wish(action.fields, {**ticket.texts, **free})


def _changed(before: DialogText, now: DialogText) -> str:
    """Say what is not as the person saw it; '' if all is."""
    if not now.is_possible:
        return f"Nothing was done: {' '.join(each.text for each in now.lines)}"
    for name, value in before.state.items():
        if now.state.get(name) != value:
            return f"Nothing was done yet: {now.changed.get(name, f'{name} has changed meanwhile')}. {LOOK_AGAIN}"
    for name, count in before.counts.items():
        grown = now.counts.get(name, 0)
        if grown > count + max(MAX_GROWTH, count // 10):
            are = "is" if grown == 1 else "are"
            return f"Nothing was done yet: {number(grown)} {are} {name} by now, and not {plural(count, 'message')}."
    return ""


def _told(action: DialogAction, given: Given) -> str:
    """The action for the log, without payloads."""
    about = [f"of queue {given.queue}"]
    about += [f"tenant {given.key!r}"] if given.key is not None else []
    about += [given.name] if given.name else []
    about += [repr(given.where)] if given.where is not None else []
    return f"{action.name} {', '.join(about)}"

"""`app(client)`: the page as an application of ASGI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from shardq import __version__, arguments
from shardq.arguments import check_name
from shardq.client import AsyncClient
from shardq.dashboard import table
from shardq.dashboard.actions import Handles, allowed, routes
from shardq.dashboard.channel import REDIS_AWAY, trouble
from shardq.dashboard.encoding import encoded
from shardq.dashboard.files import PAGE_FOLDER
from shardq.dashboard.guard import Guard
from shardq.dashboard.live import Live, TooMany
from shardq.dashboard.login import Login
from shardq.dashboard.origin import address_of
from shardq.dashboard.pace import Hasty, ScreenPace
from shardq.dashboard.people import ANYBODY, Auth, Person
from shardq.dashboard.refusal_log import RefusalLog
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.side import side
from shardq.dashboard.source import SceneSource
from shardq.dashboard.stream import Stream
from shardq.errors import BackendError, ConfigError

MAX_MAKERS: Final = 16
"""Scenes that are made at a time for those who ask once."""
SCENE_SECONDS: Final = 10.0
"""Longest wait for a scene that is asked for once."""
NO_SCREEN: Final = "There is no such screen."
MAX_PARTS: Final = 2
"""Parts that name what a screen shows."""
MAX_QUERY: Final = 12
"""Settings of a screen: order, search and such."""
MAX_LETTERS: Final = 4000
"""Letters of a part or of a setting."""


def app(
    client: AsyncClient,
    *,
    auth: Auth | None = None,
    people: str | os.PathLike[str] | None = None,
    actions: bool = False,
    payloads: bool = False,
    host_names: Iterable[str] = (),
    declared: str | os.PathLike[str] | None = None,
) -> Starlette:
    """Return the page of the queues that *client* reaches. Any site can mount it, under any prefix.

    *people* is a file with the tokens by which people log in (`shardq serve token --role`), or *auth* says who asks;
    without them anybody may look. *actions* lets people with the role for it change something. *payloads* shows
    payloads and results. *host_names* are the names under which browsers reach it, besides this machine's own; "*" is
    any name. *declared* is a file as `shardq apply` takes it: the page says how queues differ from it. ConfigError for
    what is of another type, or does not go together.

    >>> from shardq import AsyncClient
    >>> client = AsyncClient.from_url("redis://localhost:6379")
    >>> page = app(client, host_names=["ops.example"])
    """
    client = arguments.of_type("client", client, AsyncClient, "an AsyncClient")
    auth = None if auth is None else arguments.function("auth", auth)
    people = None if people is None else arguments.path("people", people)
    declared = None if declared is None else arguments.path("declared", declared)
    actions, payloads = arguments.flag("actions", actions), arguments.flag("payloads", payloads)
    if auth is not None and people is not None:
        raise ConfigError("either a file of people says who asks, or auth does: not both")
    if actions and auth is None and people is None:
        raise ConfigError("actions are for people who are known: give a file of people, or auth")
    refusals = RefusalLog(client.clock)
    login = None if people is None else Login(Path(people), client.clock, refusals)
    source = SceneSource(client, payloads=payloads, declared=None if declared is None else Path(declared))
    page = _PageApp(source, login, refusals, actions=actions)
    guard = Middleware(Guard, auth=login or auth, host_names=tuple(host_names), refusals=refusals)
    made = Starlette(routes=page.routes(), middleware=[guard])
    made.state.live, made.state.source, made.state.handles = page.live, page.source, page.handles
    return made


class _PageApp:
    def __init__(self, source: SceneSource, login: Login | None, refusals: RefusalLog, *, actions: bool) -> None:
        self.source = source
        self.live = Live(self.source, side)
        self.handles = Handles(self.source) if actions else None
        self._login, self._refusals = login, refusals
        self._makers = asyncio.Semaphore(MAX_MAKERS)
        self._pace = ScreenPace(source.client.clock)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/scene/{name}", self._scene),
            Route("/live", self._live),
            Route("/me", self._me),
            *(self._login.routes() if self._login else ()),
            *self._acting(),
            Mount("/", StaticFiles(directory=PAGE_FOLDER, html=True)),
        ]

    def _acting(self) -> list[BaseRoute]:
        return [] if self.handles is None else routes(self.source, self.handles, self._refusals, self.live.hurry)

    async def _me(self, request: Request) -> Response:
        if request.state.person is None:
            return Response(status_code=204)
        return JSONResponse(self._you(request))

    async def _scene(self, request: Request) -> Response:
        scene, asked = table.scene_of(request.path_params["name"]), asked_in(request)
        if scene is None or asked is None:
            return _error(NO_SCREEN, 404)
        if hasty := self._hasty(request):
            return hasty
        try:
            async with asyncio.timeout(SCENE_SECONDS), self._makers:
                made = await scene(self.source, asked)
        except BackendError as error:
            return _error(trouble(error)[1], 503)
        except TimeoutError:
            return _error(REDIS_AWAY, 503)
        except NotThere as error:
            return _error(str(error), 404)
        return Response(encoded(made), media_type="application/json")

    async def _live(self, request: Request) -> Response:
        name, asked = request.query_params.get("scene", ""), asked_in(request)
        scene = table.scene_of(name)
        if scene is None or asked is None:
            return _error(NO_SCREEN, 404)
        if request.method == "HEAD":
            return Response(media_type=Stream.media_type)
        person: Person = request.state.person
        try:
            place = self.live.place(_who(request))
        except TooMany as error:
            self._refusals.tell(request, "too many streams", person.name)
            return _error(str(error), 429)
        if hasty := self._hasty(request):
            place()
            return hasty
        events = self.live.events(name, scene, asked, self._you(request))
        return Stream(place, events, partial(self._may_look, request, person), self.source.client.clock)

    def _hasty(self, request: Request) -> Response | None:
        """Return what one gets who opens screens too fast."""
        try:
            self._pace.count(_who(request))
        except Hasty as error:
            person: Person = request.state.person
            self._refusals.tell(request, "too many screens at once", person.name)
            return _error(str(error), 429)
        return None

    def _may_look(self, request: Request, person: Person) -> bool:
        return self._login is None or self._login(request) == person

    def _you(self, request: Request) -> dict[str, Any]:
        person: Person = request.state.person
        return {
            "you": {"name": person.name, "role": person.role.name.lower()},
            "actions": self.handles is not None,
            "may": [] if self.handles is None else allowed(person),
            "login": self._login is not None,
            "version": __version__,
        }


def asked_in(request: Request) -> AskedScene | None:
    """Return what somebody looks at; None for more than a browser of this page would ask."""
    pairs = request.query_params.multi_items()
    parts = tuple(value for name, value in pairs if name == "part")
    query = {name: value for name, value in pairs if name not in ("part", "scene")}
    is_long = any(len(each) > MAX_LETTERS for each in (*parts, *query, *query.values()))
    if len(parts) > MAX_PARTS or len(query) > MAX_QUERY or is_long:
        return None
    try:
        if parts:  # the first part is always a queue
            check_name(parts[0])
    except ConfigError:
        return None
    return AskedScene(parts, query)


def _who(request: Request) -> str:
    """Return who asks, and where nobody is known, from where."""
    person: Person = request.state.person
    return person.name if person is not ANYBODY else f"of {address_of(request)}"  # a name has no spaces


def _error(text: str, status: int) -> Response:
    return JSONResponse({"text": text}, status)

"""The guard before all of the page: known names of the host, who asks, whose page a POST comes from, headers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardq.dashboard.login import Login
from shardq.dashboard.origin import foreign, host_of, is_loopback, path_of
from shardq.dashboard.people import ANYBODY, Auth, Person, Role
from shardq.dashboard.refusal_log import RefusalLog
from shardq.errors import ClosedError

PATIENCE: Final = 10.0
"""Seconds within which it has to be said who asks."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""The headers of each answer to the browser."""
OPEN_PATHS: Final = frozenset({"/login", "/logout"})
"""The paths that everybody may POST to."""

FAILED: Final = "This failed. The log of the page's process says why."
ENDED: Final = "The page has ended: its process closed its client of Redis. Try again when it was started again."
OTHER_PROCESS: Final = (
    "The page began in another process or event loop, and cannot continue in this one: start it again."
)

log = logging.getLogger("shardq.dashboard")


class Guard:
    """Lets through to *inner* what may come there, with `request.state.person`."""

    def __init__(self, inner: ASGIApp, *, auth: Auth | None, host_names: Iterable[str], refusals: RefusalLog) -> None:
        self._inner, self._auth, self._refusals = inner, auth, refusals
        self._login = auth if isinstance(auth, Login) else None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        """The process and the loop in which it was asked first: waiters there are of no use elsewhere."""
        self._host_names = {each.lower().rstrip(".") for each in host_names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        if scope["type"] != "http":  # the lifespan
            await self._inner(scope, receive, send)
            return
        has_begun = False

        async def with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        here = os.getpid(), asyncio.get_running_loop()
        self._home = self._home or here
        try:
            refusal = await self._refusal(request)
            await (refusal or self._inner)(scope, receive, with_headers)
        except ClosedError:
            log.exception("the page has ended, and is asked: %s %r", scope["method"], scope["path"][:200])
            if not has_begun:
                text = ENDED if here == self._home else OTHER_PROCESS
                await JSONResponse({"text": text}, 503)(scope, receive, with_headers)
        except Exception:  # what it says may name hosts, or quote what somebody sent
            log.exception("a request of the page failed: %s %r", scope["method"], scope["path"][:200])
            if not has_begun:
                text, status = (FAILED, 500) if here == self._home else (OTHER_PROCESS, 503)
                await JSONResponse({"text": text}, status)(scope, receive, with_headers)

    async def _refusal(self, request: Request) -> Response | None:
        if not self._is_known(host_of(request)):
            why = "the host of its address is not known: if it is the page's own, add it with --host-name"
            return self._refused(request, HTTPStatus.MISDIRECTED_REQUEST, why)
        if found := foreign(request):
            return self._refused(request, *found)
        request.state.person = person = await self._person(request)
        if self._login is not None and self._login.is_open(request):
            return None
        if person is None:
            return self._stranger(request)
        if request.method not in ("GET", "HEAD") and person.role < Role.ACT and path_of(request) not in OPEN_PATHS:
            return self._refused(request, HTTPStatus.FORBIDDEN, "the role view changes nothing", person.name)
        return None

    def _is_known(self, host: str) -> bool:
        return "*" in self._host_names or host in self._host_names or is_loopback(host)

    async def _person(self, request: Request) -> Person | None:
        """Return who asks. A failure to say it refuses."""
        if self._auth is None:
            return ANYBODY
        try:
            found: Any = self._auth(request)
            async with asyncio.timeout(PATIENCE):
                person = await found if inspect.isawaitable(found) else found
        except Exception:
            log.exception("the person who asks for the page could not be found out, so the request is refused")
            return None
        if person is not None and not isinstance(person, Person):
            log.error("auth of the page returned no Person but %s, so the request is refused", type(person).__name__)
            return None
        return person

    def _stranger(self, request: Request) -> Response:
        """Return what somebody gets who may not look. That a browser opens the page is no news."""
        if self._login is None:
            return self._refused(request, HTTPStatus.UNAUTHORIZED, "nobody who may look")
        if path_of(request) != "/":
            self._refusals.tell(request, "nobody who has logged in")
        return self._login.refusal(request)

    def _refused(self, request: Request, status: HTTPStatus, why: str, who: str = "") -> Response:
        self._refusals.tell(request, why, who)
        return JSONResponse({"text": f"Refused: {why}."}, status)

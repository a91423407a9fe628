"""Login by a token: it is shown once, and the browser has a cookie from then on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from shardq.bearer import digest_of
from shardq.clock import Clock
from shardq.dashboard.bodies import TooLarge, body_of
from shardq.dashboard.files import PAGE_FOLDER
from shardq.dashboard.guesses import Guesses
from shardq.dashboard.origin import address_of, host_of, is_loopback, path_of, port_of, prefix_of
from shardq.dashboard.people import PeopleFile, Person
from shardq.dashboard.refusal_log import RefusalLog
from shardq.dashboard.sessions import MAX_AGE, Sessions

MAX_BODY: Final = 4096
"""Bytes of a login."""
OPEN: Final = frozenset({"/login", "/me", "/css/page.css", "/js/login.js", "/icon.svg"})
"""The paths for those who have not logged in."""


class Login:
    """Knows people by a cookie, which they got for their token in the file of *people*."""

    def __init__(self, people: Path, clock: Clock, refusals: RefusalLog) -> None:
        self._file = PeopleFile(people)
        self._clock, self._refusals = clock, refusals
        self._sessions, self._guesses = Sessions(clock), Guesses(clock)

    def __call__(self, request: Request) -> Person | None:
        """Return who asks: somebody who has logged in, and whose token of then still holds."""
        session = self._sessions.find(request.cookies.get(_cookie(request), ""))
        entry = self._file.people.entries.get(session.name) if session else None
        if session is None or entry is None or session.digest not in entry.digests:
            return None
        return entry.person if self._clock.wall() < entry.expires else None

    def is_open(self, request: Request) -> bool:
        """Whether those may have it who have not logged in."""
        return path_of(request) in OPEN

    def refusal(self, request: Request) -> Response:
        """Return what they get that they may not have: the form, if they open the page."""
        if path_of(request) == "/":
            return RedirectResponse("login", 303)
        return JSONResponse({"text": "Log in first."}, 401)

    def routes(self) -> list[BaseRoute]:
        """Return the addresses of login and logout."""
        return [
            Route("/login", self._form, methods=["GET"]),
            Route("/login", self._begin, methods=["POST"]),
            Route("/logout", self._end, methods=["POST"]),
        ]

    async def _form(self, request: Request) -> Response:
        return FileResponse(PAGE_FOLDER / "login.html")

    async def _begin(self, request: Request) -> Response:
        wait = math.ceil(self._guesses.wait(address_of(request)))
        if wait:
            self._refusals.tell(request, "too many wrong tokens")
            text = f"Too many wrong tokens came from your address. Try again in {wait} s."
            return JSONResponse({"text": text}, 429, {"retry-after": str(wait)})
        token = await _token(request)
        entry = self._file.people.find(token)
        if entry is None or self._clock.wall() >= entry.expires:
            self._guesses.note(address_of(request))
            self._refusals.tell(request, "nobody has this token" if entry is None else "its token has expired")
            return JSONResponse({"text": "Nobody has this token, or it has expired."}, 403)
        # The key is always a new one: a key that somebody else has put into the browser is worth nothing.
        self._sessions.end(request.cookies.get(_cookie(request), ""))
        answer = Response(status_code=204)
        _give(request, answer, self._sessions.begin(entry.person.name, digest_of(token)), int(MAX_AGE))
        return answer

    async def _end(self, request: Request) -> Response:
        self._sessions.end(request.cookies.get(_cookie(request), ""))
        answer = Response(status_code=204)
        _give(request, answer, "", 0)
        return answer


def _cookie(request: Request) -> str:
    """Return the name of the cookie: cookies of one host are those of all its ports, on which other pages may be."""
    return f"shardq-{port_of(request)}".rstrip("-")


def _give(request: Request, answer: Response, key: str, seconds: int) -> None:
    answer.set_cookie(
        _cookie(request),
        key,
        max_age=seconds,
        path=f"{prefix_of(request)}/",
        secure=not is_loopback(host_of(request)),
        httponly=True,
        samesite="strict",
    )


async def _token(request: Request) -> str:
    """Return the token of a login; '' if there is none."""
    try:
        body = await body_of(request, MAX_BODY)
        shown: Mapping[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (TooLarge, msgspec.DecodeError, UnicodeError):
        return ""
    token = shown.get("token")
    return token.strip() if isinstance(token, str) else ""

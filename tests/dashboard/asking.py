"""A page without a Redis: for what it says before it asks anything. Its clock is moved by the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from shardq.bearer import fresh_token
from shardq.dashboard import app
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.source import SceneSource
from shardq.testing import ManualClock, fake_async_client

ADDRESS: Final = "http://127.0.0.1:8321"
OWN: Final = {"origin": ADDRESS, "x-shardq": "page"}
"""What the page's own scripts send with a POST."""
DONE: Final = {"text": "done"}


class Asking:
    """A page, and browsers that look at it."""

    def __init__(self, page: Starlette, clock: ManualClock) -> None:
        self.page, self.clock = page, clock

    def browser(self, address: str = ADDRESS, *, of: str = "192.0.2.1", prefix: str = "", **more: Any) -> TestClient:
        """Return a browser at an address, which names the page by *address*."""
        whole = Starlette(routes=[Mount(prefix, self.page)]) if prefix else self.page
        return TestClient(whole, base_url=address, client=(of, 50_000), follow_redirects=False, **more)


def asking(clock: ManualClock, **options: Any) -> Asking:
    """Return a page with these options, where /act/done and /fails are served beside its own."""
    page = app(fake_async_client(clock=clock), **options)
    page.router.routes[:0] = [
        Route("/act/done", _done, methods=["POST"]),
        Route("/fails", _fails),
        Route("/who", _who),
    ]
    return Asking(page, clock)


async def _done(request: Request) -> Response:
    return JSONResponse(DONE)


async def _who(request: Request) -> Response:
    return JSONResponse({"name": request.state.person.name, "role": request.state.person.role.name})


async def _fails(request: Request) -> Response:
    raise RuntimeError("redis://:secret@10.1.2.3 is why")


class TokenFile:
    """A file of people that a test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def add(self, name: str, role: str, more: str = "") -> str:
        """Write one more person, or another role and token of a person, and return the token."""
        self.tokens[name], digest = fresh_token()
        self._lines[name] = f'[[people]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest}"\n{more}\n'
        self._write()
        return self.tokens[name]

    def change(self, name: str, role: str) -> None:
        """Give a person another role."""
        lines = self._lines[name].splitlines(keepends=True)
        self._lines[name] = "".join(f'role = "{role}"\n' if each.startswith("role") else each for each in lines)
        self._write()

    def remove(self, name: str) -> None:
        """Write the file without a person."""
        del self._lines[name]
        self._write()

    def _write(self) -> None:
        text = "\n".join(self._lines.values()) or "people = []\n"
        fresh = self.path.with_suffix(".fresh")
        fresh.write_text(text)
        fresh.replace(self.path)


Make = Callable[..., Awaitable[dict[str, Any]]]


def scenes(monkeypatch: pytest.MonkeyPatch, **made: Make) -> None:
    """Let the page have these scenes, and no others."""
    monkeypatch.setattr("shardq.dashboard.table.scene_of", made.get)


async def hello(source: SceneSource, asked: AskedScene) -> dict[str, Any]:
    """A scene that says what it was asked for."""
    return {"said": {"line": "hello"}, "parts": list(asked.parts), "query": dict(asked.query)}


def said(caplog: pytest.LogCaptureFixture) -> str:
    """What the page told its log."""
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "shardq.dashboard")

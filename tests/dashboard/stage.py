"""A stage for the page's frame: it serves the page's files, and a test says what each stream brings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import shardq.dashboard

PAGE = Path(shardq.dashboard.__file__).parent / "page"
HEADERS = {"content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"}


class Stage:
    """The application, what was asked of it, and what it answers. Methods may be called in any thread."""

    def __init__(self, prefix: str = "") -> None:
        self.asked: list[str] = []
        """The queries of all streams that were opened."""
        self.open = 0
        """Streams that are open now."""
        self.refuses: tuple[int, str] | None = None
        """A status and a text, with which streams and scenes are refused."""
        self._events: list[tuple[str, Any]] = []
        self._changed: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._ended = 0
        inner = [
            Route("/live", self._live),
            Route("/scene/{name}", self._scene),
            Mount("/", StaticFiles(directory=PAGE, html=True)),
        ]
        self.app = Starlette(routes=[Mount(prefix, routes=inner)] if prefix else inner)

    def tell(self, event: str, data: Any) -> None:
        """Bring an event to all streams; those that open later get the last of each name."""
        self._events.append((event, data))
        self._wake()

    def end_streams(self) -> None:
        """End all streams."""
        self._ended += 1
        self._wake()

    def _wake(self) -> None:
        for loop, changed in list(self._changed):
            loop.call_soon_threadsafe(changed.set)

    async def _scene(self, request: Request) -> Response:
        if self.refuses:
            return JSONResponse({"text": self.refuses[1]}, self.refuses[0], headers=HEADERS)
        found = [data for event, data in self._events if event == "scene"]
        return JSONResponse(found[-1] if found else {}, headers=HEADERS)

    async def _live(self, request: Request) -> Response:
        self.asked.append(request.url.query)
        if self.refuses:
            return JSONResponse({"text": self.refuses[1]}, self.refuses[0], headers=HEADERS)
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=HEADERS)

    async def _stream(self) -> AsyncIterator[str]:
        changed, ended, at = asyncio.Event(), self._ended, len(self._events)
        mine = (asyncio.get_running_loop(), changed)
        self._changed.append(mine)
        self.open += 1
        try:
            yield ": begins\n\n"
            for event, data in dict(self._events[:at]).items():
                yield _written(event, data)
            while ended == self._ended:
                while at < len(self._events):
                    yield _written(*self._events[at])
                    at += 1
                await changed.wait()
                changed.clear()
        finally:
            self.open -= 1
            self._changed.remove(mine)


def _written(event: str, data: Any) -> str:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"

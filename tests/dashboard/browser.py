"""A real browser for the dashboard: Debian's Chromium, driven by Playwright, and what is asked of every screen.

A test that uses it must not be a coroutine, nor stand in a file with one: Playwright's loop runs in the test's thread.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from shardq import AsyncClient
from shardq.dashboard.app import app
from tests import parts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

SIZES: Final = {1440: (1440, 900), 900: (900, 800), 360: (360, 740)}
"""Windows in which each screen is looked at: width to (width, height) in px."""
Theme = Literal["light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("light", "dark")
PATIENCE: Final = 60_000
"""Milliseconds for which anything in the browser is waited for: on a loaded machine scenes are made seldom."""
_REPORT: Final = """
addEventListener("securitypolicyviolation", (e) => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`));
"""
_AXE: Final = """
async () => {
  const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: rules });
  const where = (one) => one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" | ");
  return violations.map((one) => `${one.id}: ${one.help}: ${where(one)}`);
}
"""


class Look:
    """One window on the page. It notes what the browser complains of."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context, self.address = context, address
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.add_init_script(_REPORT)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._refuse)

    def _note(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, screen: str = "#/") -> Page:
        """Open a screen, and wait until it says something."""
        self.page.goto(self.address + screen)
        self.page.wait_for_selector("h1")
        return self.page

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until an expression, or what a function gives for the *argument*, is true in the page.

        Playwright's own waiting evaluates a text in the page, which the page's policy forbids.
        """
        ends = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(expression, argument):
            assert time.monotonic() < ends, f"this did not become true: {expression}"
            self.page.wait_for_timeout(20)

    def check(self, *expected: str) -> None:
        """Assert that the browser complained of nothing, but of what has one of the *expected* texts in it."""
        left = [each for each in self.complaints if not any(text in each for text in expected)]
        assert not left, "\n".join(left)

    def check_width(self) -> None:
        """Assert that the page is no wider than its window."""
        wide, window = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window, f"{wide} px wide in a window of {window}"

    def check_axe(self) -> None:
        """Assert that axe-core finds nothing that keeps anybody from using the page."""
        parts.AXE.need()
        # The page's policy forbids scripts of others: the driver evaluates it, outside of that.
        self.page.evaluate((parts.NODE / "axe-core" / "axe.min.js").read_text() + "; void 0")
        found: list[str] = self.page.evaluate(_AXE)
        assert not found, "\n".join(found)

    def picture(self, path: Path) -> None:
        """Take a picture of the whole screen."""
        self.page.screenshot(path=path, full_page=True)


Open = Callable[..., Look]
"""open_look(address, width=1440, theme="light", zone="UTC")"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, for one file of tests."""
    parts.CHROMIUM.need()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Chromium's sandbox needs a user who is not root.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def open_look(chromium: Browser) -> Iterator[Open]:
    """Opens windows on a page, and closes them after the test."""
    opened: list[BrowserContext] = []

    def look(address: str, width: int = 1440, theme: Theme = "light", zone: str = "UTC", **more: Any) -> Look:
        wide, high = SIZES[width]
        context = chromium.new_context(
            viewport={"width": wide, "height": high}, color_scheme=theme, timezone_id=zone, **more
        )
        opened.append(context)
        return Look(context, address)

    yield look
    for context in opened:
        context.close()


@contextmanager
def served(site: Any) -> Iterator[str]:
    """Serve an ASGI application in a thread, for the time of a `with`. Gives its address, with a slash at the end."""
    server = _Ready(uvicorn.Config(site, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, name="dashboard")
    thread.start()
    try:
        assert server.ready.wait(30), "uvicorn did not start"
        (port,) = {sock.getsockname()[1] for each in server.servers for sock in each.sockets}
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(30)


def page_of(url: str, **options: Any) -> Starlette:
    """Return the page of a Redis, which closes its client at its end. *options* are those of `app`."""
    client = AsyncClient.from_url(url)

    @asynccontextmanager
    async def open_client(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    page = app(client, **options)
    site = Starlette(routes=[Mount("/", page)], lifespan=open_client)
    site.state.live = page.state.live  # which the server ends first
    return site


class _Ready(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams first: uvicorn cancels those that are open, and logs each as an error."""
        live = getattr(getattr(self.config.app, "state", None), "live", None)
        if live is not None:
            live.close()
        await super().shutdown(sockets)

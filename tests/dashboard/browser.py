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
from contextlib import ExitStack, asynccontextmanager, contextmanager
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
_FRAMES: Final = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
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

    def wear(self, width: int, theme: Theme) -> None:
        """Make the window as wide as that, and its colours those of a theme; wait until it is drawn so."""
        wide, high = SIZES[width]
        self.page.set_viewport_size({"width": wide, "height": high})
        self.page.emulate_media(color_scheme=theme)
        self.page.evaluate(_FRAMES)

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
        if not self.page.evaluate("'axe' in window"):
            # The page's policy forbids scripts of others: the driver evaluates it, outside of that.
            self.page.evaluate((parts.NODE / "axe-core" / "axe.min.js").read_text() + "; void 0")
        found: list[str] = self.page.evaluate(_AXE)
        assert not found, "\n".join(found)

    def picture(self, path: Path) -> None:
        """Take a picture of the whole screen."""
        self.page.screenshot(path=path, full_page=True)


Open = Callable[..., Look]
"""open_look(address, width=1440, theme="light", zone="UTC")"""


class Windows:
    """Debian's Chromium. What a window costs to begin is paid once for all that are open one after the other."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[str, list[BrowserContext]] = {}

    @contextmanager
    def open(
        self, address: str, width: int = 1440, theme: Theme = "light", zone: str = "UTC", **more: Any
    ) -> Iterator[Look]:
        """Have a window for the time of a `with`. It has no cookie, and knows of no other."""
        free = self._free.setdefault(repr((width, theme, zone, sorted(more.items()))), [])
        wide, high = SIZES[width]
        context = free.pop() if free else self._browser.new_context(
            viewport={"width": wide, "height": high}, color_scheme=theme, timezone_id=zone, **more
        )  # fmt: skip
        context.clear_cookies()
        look = Look(context, address)
        yield look
        look.page.close()
        free.append(context)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Windows]:
    """Debian's Chromium, for one file of tests."""
    parts.CHROMIUM.need()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Its sandbox needs a user who is not root. It draws without a process of its own for that, as nothing moves.
        args = ["--in-process-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        try:
            yield Windows(browser)
        finally:
            browser.close()


@pytest.fixture
def open_look(chromium: Windows) -> Iterator[Open]:
    """Opens windows on a page, and closes them after the test."""
    with ExitStack() as stack:

        def look(address: str, *how: Any, **more: Any) -> Look:
            return stack.enter_context(chromium.open(address, *how, **more))

        yield look


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

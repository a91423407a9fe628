"""The pictures of the page in README.md and docs/dashboard.md: `make pictures` takes them of the real demo as it runs.

They are taken by Debian's Chromium while one tenant floods the queue, and kept in few colours, so that they are small.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image

from tests.dashboard.browser import THEMES, Look

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
SIZE: Final = (1240, 700)
"""Width and height of a picture in px."""
COLOURS: Final = 256
PATIENCE: Final = 120.0
"""Seconds in which the demo has to begin its flood."""
SCREENS: Final = {"queue": "{queue}", "tenants": "{queue}/tenants", "workers": "#/workers"}
"""Names of pictures, and the screen that each shows."""
HEADING: Final = re.compile(r" holds \d.* drains in .* other.* wait ")
"""What the page's heading says while one tenant floods."""


@contextmanager
def demo() -> Iterator[str]:
    """Run the demo for the time of a `with`. Gives the address of its page."""
    words = [sys.executable, "-u", "-m", "examples.demo", "--dashboard"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"http://[\d.:]+/", line):
                    yield found.group()
                    return
            raise SystemExit("pictures: the demo gave no address of its page")
        finally:
            process.terminate()


def wait_for_flood(page: Page) -> str:
    """Wait until heading and side tell of the flood. Return the address of the queue's screen."""
    queue = page.wait_for_selector("#nav a[href^='#/q/']", state="attached")
    assert queue is not None
    to = queue.get_attribute("href") or ""
    page.evaluate("(to) => { location.hash = to; }", to)
    until = time.monotonic() + PATIENCE
    while not HEADING.search(page.inner_text("h1")) or queue.inner_text().endswith("\n0"):
        if time.monotonic() > until:
            raise SystemExit(f"pictures: the page tells of no flood, but: {page.inner_text('h1')}")
        page.wait_for_timeout(200)
    return to


def small(png: bytes) -> bytes:
    """Return a picture in a few colours."""
    out = BytesIO()
    image = Image.open(BytesIO(png)).convert("RGB")
    image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    width, height = SIZE
    with demo() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": height}, timezone_id="UTC")
        look = Look(context, address)
        page = look.go()
        to = wait_for_flood(page)
        for name, screen in SCREENS.items():
            page.evaluate("(to) => { location.hash = to; }", screen.format(queue=to))
            page.wait_for_selector("main table[aria-label] tbody tr")
            for theme in THEMES:
                page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                path = PICTURES / f"dashboard-{name}-{theme}.png"
                path.write_bytes(small(page.screenshot()))
                print(f"pictures: {path.name}, {path.stat().st_size // 1000} kB")
        look.check()
        browser.close()


if __name__ == "__main__":
    main()

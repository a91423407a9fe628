"""Redis goes away, starts again, fails over, and so does the page: the browser says so, and goes on by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardq import Client, Queue
from shardq.client import AsyncClient
from shardq.dashboard import app
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard import counter
from tests.dashboard.browser import Look, Open
from tests.selection import SOAK
from tests.servers import Replicated, Sentinels, Server, ServerKind, free_ports
from tests.waiting import answered, eventually

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
SCREENS = ("#/", "#/q/mails")
AWAY = 60 if SOAK else 6
"""Seconds for which Redis stands still."""
UNREACHED = "ERR_"
"""What the browser itself complains of where a server does not answer."""


class Eyes:
    """Somebody who looks at the Overview and at a queue, and loads neither again."""

    def __init__(self, open_look: Open, address: str) -> None:
        self.looks = [open_look(address) for _ in SCREENS]
        for look, screen in zip(self.looks, SCREENS, strict=True):
            look.go(screen).evaluate("window.isFirst = true")

    def see(self, what: Callable[[Look], object]) -> None:
        """Wait until something is so on both screens."""
        for look in self.looks:
            eventually(lambda look=look: what(look), 60 + AWAY, every=0.05, what="a screen")  # type: ignore[misc]

    def see_waiting(self, count: int) -> None:
        """Wait until both screens show how many messages wait, as of now."""
        self.see(lambda look: f"{count:,} messages wait" in heading(look))
        self.see(lambda look: not alarm(look) and foot(look).startswith("live"))

    def see_trouble(self, text: str, state: str) -> None:
        """Wait until both screens say what is wrong, and that what they show is of before."""
        self.see(lambda look: text in alarm(look))
        for look in self.looks:
            assert foot(look).startswith(state)
            assert "What you see is of" in alarm(look)
            assert "messages wait" in heading(look), "what was known stays"

    def check(self, *expected: str) -> None:
        """Nothing was loaded again, nothing else was complained of."""
        for look in self.looks:
            assert look.page.evaluate("window.isFirst"), "the page was loaded again"
            look.check(*expected)


def heading(look: Look) -> str:
    return look.page.inner_text("h1")


def foot(look: Look) -> str:
    return look.page.inner_text("#foot .live")


def alarm(look: Look) -> str:
    found: str = look.page.evaluate("document.getElementById('alarm')?.innerText ?? ''")
    return found


def old(look: Look) -> float:
    """How many seconds old the page says that it is; from a minute on 60."""
    words = foot(look).split("·")[1].split()
    return float(words[0]) if words[1] == "s" else 60


@contextmanager
def served(url: str) -> Iterator[str]:
    """The page with actions, in a thread. Gives its address."""
    page = PageServer(
        PageSettings("127.0.0.1:0"),
        lambda: AsyncClient.from_url(url),
        lambda client: app(client, auth=counter.who, actions=True),
    )
    page.open()
    try:
        yield page.address
    finally:
        page.close()


@pytest.fixture
def own(kind: ServerKind | None, tmp_path: Path) -> Iterator[Server]:
    """A server of this test, which has its data again after a restart."""
    with Server(kind, directory=tmp_path) as server:
        yield server


@contextmanager
def mails_of(url: str) -> Iterator[Queue]:
    with Client.from_url(url, timeout=5) as client:
        queue = counter.open_queue(client, "mails")
        counter.fill(queue, "acme", 3)
        yield queue


@pytest.mark.runs_in("test-all", "soak")
def test_redis_stands_still(own: Server, open_look: Open) -> None:
    with served(own.url) as address, mails_of(own.url) as mails:
        eyes = Eyes(open_look, address)
        eyes.see_waiting(3)
        own.pause()
        eyes.see_trouble("Redis does not answer. Since", "Redis is away")
        eyes.see(lambda look: old(look) >= AWAY)  # it does not get younger while Redis is away
        late = open_look(address)
        late.page.goto(address + "#/q/mails")
        late.page.wait_for_selector("#alarm >> text=Redis does not answer.")
        assert "What you see" not in alarm(late), "it shows nothing"
        assert heading(late) == "There is nothing to show yet."
        own.resume()
        counter.fill(mails, "acme", 4)
        eyes.see_waiting(7)
        eventually(lambda: "7 messages wait" in heading(late) and not alarm(late), every=0.05)
        eyes.check()


def test_what_is_done_while_redis_stands_still_is_refused(own: Server, open_look: Open) -> None:
    with served(own.url) as address, mails_of(own.url) as mails:
        look = open_look(address)
        page = look.go("#/q/mails")
        page.click("text=Pause for…")
        page.wait_for_selector("#act .says")
        own.pause()
        page.wait_for_selector("#alarm >> text=Redis does not answer.")
        page.click("#act button[type=submit]")
        said = page.wait_for_selector("#act [role=alert]:not(:empty)")
        assert said is not None
        text = said.inner_text()
        assert "nothing was done" in text or "it may have been done, or not" in text
        page.click("#act [data-close]")
        page.click("text=Pause for…")
        page.wait_for_selector("#act [role=alert] >> text=Redis did not answer in time, and nothing was done.")
        assert not page.is_visible("#act button[type=submit]")
        page.click("#act [data-close]")
        own.resume()
        page.wait_for_selector("#alarm", state="detached")
        if None in mails.controls().paused:
            assert "may have been" in text
            mails.resume()
        page.click("text=Pause for…")
        page.click("#act button[type=submit]:enabled")
        page.wait_for_selector("#act [role=status] >> text=is paused")
        look.check("503")


def test_redis_is_started_again(own: Server, open_look: Open) -> None:
    with served(own.url) as address, mails_of(own.url) as mails:
        eyes = Eyes(open_look, address)
        eyes.see_waiting(3)
        own.kill9()
        eyes.see_trouble("Redis does not answer. Since", "Redis is away")
        own.start()
        answered(lambda: counter.fill(mails, "acme", 4))
        eyes.see_waiting(7)
        eyes.check()


def test_redis_fails_over(kind: ServerKind | None, open_look: Open) -> None:
    with Replicated(kind) as pair, Sentinels(pair, kind) as sentinels:
        hosts = ",".join(f"127.0.0.1:{port}" for _, port in sentinels.addresses)
        url = f"redis+sentinel://{hosts}/{sentinels.service}"
        with served(url) as address, mails_of(url) as mails:
            pair.wait_in_sync()
            eyes = Eyes(open_look, address)
            eyes.see_waiting(3)
            pair.primary.kill9()
            eyes.see_trouble("Redis does not answer. Since", "Redis is away")
            answered(lambda: counter.fill(mails, "acme", 4), 60)
            eyes.see_waiting(7)
            eyes.check()


class Process:
    """`shardq serve dashboard` on a port that stays."""

    def __init__(self, url: str) -> None:
        [port] = free_ports(1)
        self.address = f"http://127.0.0.1:{port}/"
        self._command = [sys.executable, "-m", "shardq.cli", "serve", "dashboard", "--listen", f"127.0.0.1:{port}"]
        self._command += ["--url", url]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin, and wait until it listens."""
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        assert self.address in self._process.stdout.readline()

    def end(self, *, kill: bool = False) -> None:
        """End, in order or not."""
        if self._process is None:
            return
        with self._process as process:
            process.kill() if kill else process.terminate()
        self._process = None


@pytest.fixture
def process(own: Server) -> Iterator[Process]:
    process = Process(own.url)
    process.start()
    yield process
    process.end(kill=True)


@pytest.mark.parametrize("kill", [False, True], ids=["in order", "killed"])
def test_the_page_is_started_again(own: Server, process: Process, open_look: Open, kill: bool) -> None:
    with mails_of(own.url) as mails:
        eyes = Eyes(open_look, process.address)
        eyes.see_waiting(3)
        process.end(kill=kill)
        eyes.see_trouble("No connection to the server of this page since", "no connection")
        counter.fill(mails, "acme", 4)
        process.start()
        eyes.see_waiting(7)
        eyes.check(UNREACHED)

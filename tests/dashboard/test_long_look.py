"""A page that is open for long: rows stay under the pointer, a hidden page costs nothing, and nothing piles up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any, Final

import pytest

from shardq import AsyncClient, Client, Queue
from shardq.dashboard import app
from shardq.dashboard.live import Live
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard import counter
from tests.dashboard.browser import Look, Open, served
from tests.dashboard.stage import Stage
from tests.dashboard.test_frame import row, scene, side
from tests.servers import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(300)]
TEN_MINUTES: Final = 300
"""Scenes that a stream brings in ten minutes: one each 2 s."""
HIDE: Final = """
(isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


class Site:
    """The page of a server, in a thread."""

    def __init__(self, server: Server) -> None:
        self.lives: list[Live] = []
        self._url = server.url
        self._page = PageServer(PageSettings("127.0.0.1:0"), self._connect, self._make)
        self._page.open()
        self.address, self.close = self._page.address, self._page.close

    def _connect(self) -> AsyncClient:
        return AsyncClient.from_url(self._url)

    def _make(self, client: AsyncClient) -> Any:
        page = app(client)
        self.lives.append(page.state.live)
        return page

    def asks_nothing(self) -> bool:
        """Whether the page asks nothing of Redis, and no stream is open."""
        (live,) = self.lives
        return live.asks_nothing() and live.streams == 0


@pytest.fixture
def site(server: Server) -> Iterator[Site]:
    site = Site(server)
    yield site
    site.close()


def fill(client: Client, **counts: int) -> dict[str, Queue]:
    """Queues of which so many messages wait, which nobody reads."""
    queues = {name: counter.open_queue(client, name) for name in counts}
    for name, waiting in counts.items():
        counter.fill(queues[name], "acme", waiting)
    return queues


def order(look: Look) -> list[str]:
    found: list[str] = look.page.evaluate("[...document.querySelectorAll('main tbody tr')].map((tr) => tr.dataset.key)")
    return found


def test_rows_stay_under_the_pointer_while_the_order_changes(site: Site, client: Client, open_look: Open) -> None:
    queues = fill(client, first=30, second=20, third=10)
    look = open_look(site.address)
    page = look.go()
    eventually(lambda: order(look) == ["first", "second", "third"], every=0.05)
    page.hover("tr[data-key=second]")
    place = "document.querySelector('tr[data-key=second]').getBoundingClientRect().top"
    top = page.evaluate(place)
    counter.fill(queues["third"], "acme", 990)
    page.wait_for_selector("tr[data-key=third] >> text='1,000'")
    assert order(look) == ["first", "second", "third"]
    assert abs(page.evaluate(place) - top) < 1
    page.mouse.move(1, 1)
    eventually(lambda: order(look) == ["third", "first", "second"], every=0.05)
    look.check()


def test_a_hidden_page_costs_redis_nothing_and_catches_up(
    server: Server, site: Site, client: Client, open_look: Open
) -> None:
    queues = fill(client, first=30)
    look = open_look(site.address)
    page = look.go("#/q/first")
    page.wait_for_selector("h1 >> text=30 messages wait")
    page.evaluate(HIDE, True)
    eventually(site.asks_nothing, every=0.02)
    with server.client() as raw:
        before = raw.info("stats")["total_commands_processed"]
        page.wait_for_timeout(5_000)  # longer than two questions are apart
        assert raw.info("stats")["total_commands_processed"] - before == 1, "but for the INFO itself"
    counter.fill(queues["first"], "acme", 70)
    page.evaluate(HIDE, False)
    page.wait_for_selector("h1 >> text=100 messages wait")
    look.check()


def numbers(look: Look) -> dict[str, float]:
    """What the browser holds for the page, after it has thrown away what it can."""
    session = look.context.new_cdp_session(look.page)
    session.send("Performance.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    return {each["name"]: each["value"] for each in metrics}


def test_what_changes_for_ten_minutes_leaves_nothing_in_the_browser(open_look: Open) -> None:
    stage, numbered = Stage(), count(1)
    with ExitStack() as stack:
        stage.tell("side", side("a", "b"))
        stage.tell("scene", scene(row("a", 0)))
        look = open_look(stack.enter_context(served(stage.app)))
        page = look.go()

        def change(times: int) -> None:
            """Rows come, go and change their order; the queues at the side, too."""
            for _ in range(times):
                at = next(numbered)
                names = [f"q{(at + each) % 40}" for each in range(20)]
                stage.tell("side", side(*names))
                stage.tell("scene", scene(*(row(each, at) for each in names), line=[[f"It is {at}.", True]]))
                page.wait_for_selector(f"h1 >> text='It is {at}.'")

        change(TEN_MINUTES // 3)
        before = numbers(look)
        change(TEN_MINUTES)
        after = numbers(look)
    assert after["Nodes"] <= before["Nodes"] + 200
    assert after["JSEventListeners"] <= before["JSEventListeners"] + 20
    assert after["JSHeapUsedSize"] <= before["JSHeapUsedSize"] + 500_000
    look.check()

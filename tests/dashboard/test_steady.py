"""A lively queue in a browser: numbers change in place, and nothing below the heading moves for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from shardq import Client
from shardq.dashboard.people import Person, Role
from tests.dashboard.browser import Look, Open, page_of, served
from tests.dashboard.lively import LARGE, QUEUE, lively
from tests.servers import Server

SCENES: Final = 12
"""Scenes that are watched."""
GROWS: Final = 2
"""Scenes, of those, in which a part may need more room than it ever had."""
ROUNDED: Final = 2
"""Px by which lengths differ that are rounded."""
SCREENS: Final = {
    "overview": "#/",
    "queue": f"#/q/{QUEUE}",
    "tenants": f"#/q/{QUEUE}/tenants",
    "tenant": f"#/q/{QUEUE}/tenant/{LARGE}",
    "failures": f"#/q/{QUEUE}/failures",
    "workers": "#/workers",
}
_COUNT: Final = """
(() => {
  const own = EventSource.prototype.addEventListener;
  window.scenes = 0;
  EventSource.prototype.addEventListener = function (name, then) {
    const drawn = () => { window.scenes += 1; };
    const counted = (event) => { then(event); requestAnimationFrame(() => requestAnimationFrame(drawn)); };
    return own.call(this, name, name === "scene" ? counted : then);
  };
})()
"""
_PLACES: Final = """
() => {
  const found = {}, rows = {}, kinds = ["tbody tr", "li[data-key]", "dt"];
  for (const each of document.querySelectorAll("main section[data-room]")) {
    for (const kind of kinds) rows[`${each.dataset.room}: ${kind}`] = each.querySelectorAll(kind).length;
  }
  const what = "main .figures > div, main section > h2, main .card, main th, main .tools, main .filter";
  for (const each of document.querySelectorAll(what)) {
    const box = each.getBoundingClientRect(), where = each.closest("section")?.dataset.room ?? "";
    if (!box.width) continue;
    const name = each.querySelector("dt")?.textContent ?? (each.matches("th") ? each.textContent : each.className);
    let key = `${where}: ${each.tagName} ${name}`;
    while (key in found) key += "'";
    found[key] = [box.x, box.y + scrollY];
  }
  return { found, rows };
}
"""


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    with Client.from_url(server.url) as client, lively(client):
        page = page_of(server.url, auth=lambda _: Person("mira", Role.ADMIN), actions=True)
        with served(page) as address:
            yield address


def places(look: Look, after: int) -> dict[str, Any]:
    """Where what stands below the heading is, once so many scenes came."""
    look.until("(count) => window.scenes >= count", after)
    found: dict[str, Any] = look.page.evaluate(_PLACES)
    return found


def moved(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What is elsewhere than before."""
    return {
        name: (place, now[name])
        for name, place in before.items()
        if name in now and max(abs(a - b) for a, b in zip(place, now[name], strict=True)) > ROUNDED
    }


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_moves_unless_a_row_comes(address: str, open_look: Open, screen: str, width: int) -> None:
    """Where rows go their room is kept; only more of them than there were before take more."""
    look = open_look(address, width)
    look.page.add_init_script(_COUNT)
    look.go(SCREENS[screen])
    look.page.wait_for_selector("main section")
    before, most, grew = places(look, 2), dict[str, int](), 0
    for scene in range(3, 3 + SCENES):
        now = places(look, scene)
        most = {place: max(count, most.get(place, 0)) for place, count in before["rows"].items()}
        if all(count <= most.get(place, -1) for place, count in now["rows"].items()):
            found = moved(before["found"], now["found"])
            assert [name for name, ((_, was), (_, y)) in found.items() if y < was - ROUNDED] == [], "nothing moves back"
            grew += bool(found)
        before = now
    assert grew <= GROWS, "what needs more room than ever has it from then on"
    look.check()


@pytest.mark.once
def test_what_is_wrong_with_the_page_covers_and_moves_nothing(server: Server, open_look: Open) -> None:
    with Client.from_url(server.url) as client, served(page_of(server.url)) as address:
        client.queue("jobs", streams=2).declare()
        look = open_look(address)
        page = look.go()
        page.wait_for_selector("tr[data-key=jobs]")
        before = page.evaluate(_PLACES)
        server.pause()
        try:
            page.wait_for_selector("#alarm")
            assert moved(before["found"], page.evaluate(_PLACES)["found"]) == {}
            look.check_width()
        finally:
            server.resume()
        page.wait_for_selector("#alarm", state="detached")

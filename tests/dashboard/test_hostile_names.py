"""A thousand hostile names, at each place where others' text can stand: shown as text, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import pytest

from shardq import Client
from shardq.dashboard.names import address_of, shown
from shardq.dashboard.people import Person, Role
from tests.dashboard.browser import Look, Open, page_of, served
from tests.dashboard.hostile import QUEUES, beset, names
from tests.dashboard.layout import check_layout
from tests.selection import SOAK
from tests.servers import Server

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all", "soak")]
AT_ONCE: Final = 40
"""Names of one queue: as many as each screen shows."""
ROUNDS: Final = 1000 // AT_ONCE
IN_FULL: Final = ROUNDS if SOAK else 2
"""Rounds in which each name has its screens looked at."""
ALL: Final = names(ROUNDS * AT_ONCE)

_DONE: Final = """
() => {
  const done = [], made = "img, iframe, object, embed, base, style, meta[http-equiv], body script, main form";
  const own = /^(#|js\\/|css\\/|icon\\.svg$)/;
  const unseen = /[\\x00-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff]/;
  for (const each of document.querySelectorAll(made)) done.push(each.outerHTML);
  for (const each of document.querySelectorAll("*")) {
    for (const { name, value } of each.attributes) {
      const leads = ["href", "src", "action"].includes(name) && !own.test(value);
      if (leads || name.startsWith("on") || name === "style") done.push(`${name}=${value}`);
    }
  }
  for (const place of document.querySelectorAll("#main, #nav, dialog")) {
    const all = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (all.nextNode()) {
      const { data, parentElement } = all.currentNode;
      if (unseen.test(data) && !parentElement.closest("pre")) done.push(`not escaped: ${JSON.stringify(data)}`);
    }
  }
  return done.map((each) => each.slice(0, 200));
}
"""
"""What a hostile name did: elements and attributes that the page does not make, letters that turn or hide others."""


def check(look: Look) -> None:
    """Assert that names did nothing, and that the layout holds."""
    done = look.page.evaluate(_DONE)
    assert not done, "\n".join([look.page.url, *done])
    check_layout(look)


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    page = page_of(server.url, auth=lambda _: Person("mira", Role.ADMIN), actions=True, payloads=True)
    with served(page) as address:
        yield address


def here(queue: str, *rest: str) -> str:
    return "/".join(["#/q", quote(queue, safe=""), *(quote(each, safe="") for each in rest)])


def round_of(number: int) -> tuple[str, list[str | bytes], int]:
    """The queue of a round, its names, and how wide the window is."""
    return QUEUES[number % len(QUEUES)], ALL[number * AT_ONCE :][:AT_ONCE], 360 if number % 2 else 1440


def turner(look: Look, sort: str) -> Callable[[str], None]:
    """Return what goes to another screen in the same document, as a link does."""

    def turn(to: str) -> None:
        look.page.evaluate("(to) => { document.querySelector('#main').replaceChildren(); location.hash = to; }", to)
        look.page.wait_for_selector(sort)

    return turn


def test_there_are_a_thousand() -> None:
    assert len({*ALL}) == 1000


@pytest.mark.parametrize("number", range(ROUNDS))
def test_all_on_each_screen(server: Server, client: Client, address: str, open_look: Open, number: int) -> None:
    queue, hostile, width = round_of(number)
    beset(server, client, queue, hostile)
    look = open_look(address, width)
    page = look.go(here(queue, "tenants"))
    page.wait_for_selector("main tbody tr")
    assert sorted(page.locator("main tbody tr td:first-child").all_text_contents()) == sorted(map(shown, hostile))
    check(look)
    for screen in (
        "#/", here(queue), here(queue, "failures"), here(queue, "settings"), "#/settings", "#/workers", "#/schedules",
    ):  # fmt: skip
        turner(look, "h1")(screen)
        for fold in page.query_selector_all("main summary"):
            fold.click()
        check(look)
    look.check()


@pytest.mark.parametrize("number", range(IN_FULL))
def test_each_has_its_screens(server: Server, client: Client, address: str, open_look: Open, number: int) -> None:
    queue, hostile, width = round_of(number)
    messages = beset(server, client, queue, hostile)
    look = open_look(address, width)
    look.go(here(queue))
    for at, name in enumerate(hostile):
        turner(look, ".acts button")(here(queue, "tenant", address_of(name)))
        assert shown(name) in (look.page.text_content(".crumbs") or "")
        check(look)
        if at % 5 == 0:
            look.page.click("main [data-act=resume], main [data-act=pause]")  # not all of them may be paused
            look.page.wait_for_selector("#act[open] .says li")
            check(look)
            look.page.click("#act [data-close]")
        turner(look, ".story li")(here(queue, "message", messages[name]))
        check(look)
    look.check()


@pytest.mark.parametrize("number", range(IN_FULL))
def test_each_may_stand_in_an_address(
    server: Server, client: Client, address: str, open_look: Open, number: int
) -> None:
    """As a queue, a tenant, a message, and in each place where an address says how a screen is asked for."""
    queue, hostile, width = round_of(number)
    beset(server, client, queue, hostile[:4])
    look = open_look(address, width)
    look.go("#/")
    turn = turner(look, "h1")
    for name in hostile if SOAK else hostile[::2]:
        said = quote(name, safe="") if isinstance(name, str) else quote(name)
        for to in (
            f"#/q/{said}", f"#/q/{said}/tenants", f"{here(queue)}/message/{said}", f"{here(queue)}/tenant/{said}",
            f"{here(queue)}/tenants?search={said}&order={said}&{said}={said}", f"#/?search={said}",
            f"{here(queue)}/failures?group={said}", f"#/{said}",
        ):  # fmt: skip
            turn(to)
            check(look)
    look.check("404")

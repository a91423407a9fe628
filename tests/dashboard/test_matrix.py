"""Each screen and the dialog of each action, in both colours and each width; and all of it by mouse and by keyboard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from shardq.dashboard.actions.table import ACTIONS_OF_ONE, TABLE
from tests.dashboard.browser import SIZES, THEMES, Look, Theme, Windows
from tests.dashboard.layout import check_layout
from tests.dashboard.tour import SCREENS, Tour, toured

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.runs_in("test-all")
HANDS = pytest.mark.parametrize("hand", ["mouse", "keyboard"])
EACH = pytest.mark.parametrize("screen", SCREENS)
TRIES: Final = 5
PRESSED: Final = 5.0
"""Seconds after which a key is pressed again that had no effect."""
ELSEWHERE: Final = {
    "go_on": "an action that nobody works on is taken over by itself; tests/dashboard/test_actions_go_on.py",
}
"""What no screen of the tour offers, and where they are tested."""


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    with toured(tmp_path_factory.mktemp("tour")) as tour:
        yield tour


@pytest.fixture(scope="module")
def window(chromium: Windows, tour: Tour) -> Iterator[Look]:
    """One window, which goes from screen to screen, as people's do."""
    with chromium.open(tour.address) as look:
        yield look


@pytest.fixture
def look(window: Look) -> Iterator[Look]:
    """That window, large and light. It has complained of nothing when the test ends."""
    window.complaints.clear()
    window.wear(1440, "light")
    yield window
    window.check()


def see(look: Look, address: str) -> Page:
    """Open a screen, and wait until it and the side are there."""
    look.page.goto("about:blank")  # within one document, the heading of the screen before would stand there for a while
    page = look.go(address)
    page.wait_for_selector("#nav a[href='#/q/reports']", state="attached")
    return page


def stay(look: Look, address: str) -> Page:
    """Open a screen, if it is not the one that is open."""
    is_there = look.page.url == look.address + address and look.page.query_selector("dialog[open]") is None
    return look.page if is_there else see(look, address)


def enter(look: Look, target: str, done: str, argument: object = None) -> None:
    """Press Enter on the first *target* until *done* holds: a scene that comes in between may draw it as a new one."""
    for _ in range(TRIES):
        look.page.locator(target).first.press("Enter")
        ends = time.monotonic() + PRESSED
        while time.monotonic() < ends:
            if look.page.evaluate(done, argument):
                return
    look.until(done, argument)


def says(look: Look) -> None:
    """Wait until a dialog says what it would do."""
    look.page.wait_for_selector("#act[open] .says li")
    look.until("getComputedStyle(document.querySelector('#act .says')).opacity === '1'")


def name_of(action: str, screen: str) -> str:
    return f"{action} one" if screen.startswith("message") else action


FIRST: Final = {name_of(action, screen): screen for screen in reversed([*SCREENS]) for action in SCREENS[screen]}
"""The screen on which the dialog of each action is looked at."""


def test_each_action_is_offered_somewhere() -> None:
    assert {*FIRST, *ELSEWHERE} == {*TABLE, *(f"{each} one" for each in ACTIONS_OF_ONE)}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", SIZES)
@EACH
def test_it_fits_and_can_be_used_by_all(tour: Tour, look: Look, screen: str, width: int, theme: Theme) -> None:
    page = stay(look, tour.screens[screen])
    look.wear(width, theme)
    page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
    check_layout(look)
    look.check_axe()
    offered = page.eval_on_selector_all(
        "main [data-act]:not(.filter *)", "(all) => all.map((each) => each.dataset.act)"
    )
    assert sorted({*offered}) == [*SCREENS[screen]]
    for action in SCREENS[screen]:
        if FIRST[name_of(action, screen)] != screen:
            continue
        page.click(f"main [data-act={action}]:not(.filter *) >> nth=0")
        says(look)
        check_layout(look)
        look.check_axe()
        page.click("#act [data-close]")
        page.wait_for_selector("#act", state="hidden")


_REACHABLE: Final = """
() => {
  const all = [...document.querySelectorAll("a[href], button, input, select, summary, pre[tabindex], tr[tabindex]")];
  window.wanted = new Set(all.filter((each) => each.checkVisibility()));
}
"""
_REACHED: Final = """
() => {
  const at = document.activeElement, edge = at.getBoundingClientRect();
  window.wanted.delete(at);
  const shown = at.matches("tr") ? getComputedStyle(at.cells[0]).boxShadow : getComputedStyle(at).outlineStyle;
  const isSeen = shown !== "none" && edge.bottom > 0 && edge.top < innerHeight;
  return { isSeen, what: at.outerHTML.slice(0, 120), isEnd: at === document.body };
}
"""
_LEFT: Final = "[...window.wanted].filter((each) => each.isConnected).map((each) => each.outerHTML.slice(0, 120))"


@EACH
def test_the_tab_key_leads_to_all_that_can_be_used(tour: Tour, look: Look, screen: str) -> None:
    page = see(look, tour.screens[screen])
    page.evaluate(_REACHABLE)
    for _ in range(500):
        page.keyboard.press("Tab")
        at = page.evaluate(_REACHED)
        if at["isEnd"]:
            break
        assert at["isSeen"], f"nobody sees that this has the focus: {at['what']}"
    assert page.evaluate(_LEFT) == []


@EACH
def test_rows_are_reached_one_by_one(tour: Tour, look: Look, screen: str) -> None:
    page = see(look, tour.screens[screen])
    count = page.locator("main tbody tr[tabindex]").count()
    place = "[...document.querySelectorAll('main tbody tr[tabindex]')].indexOf(document.activeElement)"
    for at in range(count):
        page.keyboard.press("j")
        assert page.evaluate(place) == at
    for at in reversed(range(count - 1)):
        page.keyboard.press("k")
        assert page.evaluate(place) == at


_LINKS: Final = """
async () => {
  const { route } = await import(new URL("js/routes.js", document.baseURI));
  const found = {};
  for (const each of document.querySelectorAll("main a[href], main tr[data-open]")) {
    const to = each.getAttribute("href") ?? each.dataset.open;
    if (each.checkVisibility() && to !== location.hash) found[`${each.tagName} ${route(to)?.scene ?? to}`] ??= to;
  }
  return Object.entries(found);
}
"""


@HANDS
@EACH
def test_links_and_rows_lead_to_a_screen(tour: Tour, look: Look, screen: str, hand: str) -> None:
    """One of each kind: to each sort of screen, by a link and by a row."""
    page = see(look, tour.screens[screen])
    for kind, to in page.evaluate(_LINKS):
        tag = kind.split()[0].lower()
        name = "href" if tag == "a" else "data-open"
        target = f'main {tag}[{name}="{to}"]'
        if hand == "keyboard":
            enter(look, target, "(to) => location.hash === to", to)
        elif tag == "a":
            page.locator(target).first.click()
        else:
            page.locator(target).first.locator("td").last.click()
        look.until("(to) => location.hash === to", to)
        look.until("document.querySelector('#main h1') !== null")
        assert page.inner_text("h1") != "There is no such screen."
        see(look, tour.screens[screen])


@EACH
def test_buttons_by_keyboard(tour: Tour, look: Look, screen: str) -> None:
    """A dialog has the focus as long as it is open, and the button from which it came has it then."""
    page = see(look, tour.screens[screen])
    for action in SCREENS[screen]:
        enter(look, f"main [data-act={action}]:not(.filter *)", "document.querySelector('#act[open]') !== null")
        says(look)
        for _ in range(12):
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('#act')")
        page.keyboard.press("Escape")
        page.wait_for_selector("#act", state="hidden")
        assert page.evaluate("document.activeElement.dataset.act") == action
    for at in range(page.locator("main summary").count()):
        fold = page.locator("main details").nth(at)
        fold.locator("summary").focus()
        page.keyboard.press("Enter")
        assert fold.get_attribute("open") == ""


def test_single_keys(tour: Tour, look: Look) -> None:
    page = see(look, "#/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    names = page.eval_on_selector_all("#nav a[href^='#/q/']", "(all) => all.map((each) => each.getAttribute('href'))")
    for place, to in enumerate(names[:9], 1):
        page.keyboard.press(str(place))
        look.until("(to) => location.hash === to", to)
        look.until("document.activeElement.id === 'main'")
    page.keyboard.press("/")
    look.until("document.activeElement.id === 'search'")
    page.keyboard.type("zz")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    look.until("(to) => location.hash === to", names[-1])
    for key, to in (("w", "#/workers"), ("s", "#/schedules"), ("o", "#/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        look.until("(to) => location.hash === to", to)
    page.wait_for_selector("tr[data-key=exports]")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")
    look.check_axe()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    look.until("(to) => location.hash === to", "#/q/exports")

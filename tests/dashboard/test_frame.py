"""The page's frame in a browser: addresses, a stream that breaks, drawing in place, keys, colours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Page

from shardq.dashboard.channel import UNREADABLE
from tests.dashboard.browser import Look, Open, served
from tests.dashboard.layout import check_all_sizes
from tests.dashboard.stage import Stage

pytestmark = pytest.mark.runs_in("test-all")
NOW = 1_796_000_000.0
HOSTILE = ("<img src=x onerror=alert(1)>", "a/b?c#d&e", "100%", "%E0%A4%A", "\u202eevil", "x" * 200)


def row(name: str, waiting: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "tone": "good", "line": [["Flows.", False]], "lately": None, "written": 1.0, "done": 1.0,
        "waiting": waiting, "reasons": {"turn": waiting}, "oldest": 1.0, "busy": 1, "slots": 2, "dead": 0,
        "drains": {"seconds": 3.0, "text": ""}, "tag": None,
    } | more  # fmt: skip


def scene(*rows: dict[str, Any], line: Any = "All is well.", **more: Any) -> dict[str, Any]:
    figures = {
        "written": 1, "done": 1, "waiting": 1, "in_flight": 1, "busy": 1, "slots": 1, "dead": 0, "memory": None,
    }  # fmt: skip
    return {
        "said": {"line": line, "more": [], "tone": "good"}, "now": NOW, "figures": figures, "queues": [*rows],
        "more": 0, "all": len(rows), "search": "", "did": [], "server": [],
    } | more  # fmt: skip


def side(*names: str) -> dict[str, Any]:
    queues = [{"name": each, "tone": "good", "waiting": 1} for each in names]
    return {"queues": queues, "workers": 2, "schedules": 3, "you": {"name": "mira", "role": "view"}, "actions": False,
            "version": "1"}  # fmt: skip


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.tell("scene", scene(row("a", 1), row("b", 2), row("c", 3)))
    stage.tell("side", side("a", "b", "c"))
    return stage


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def look(stage: Stage, opened: ExitStack, open_look: Open) -> Look:
    return open_look(opened.enter_context(served(stage.app)))


def rows(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...document.querySelectorAll('main tbody tr')].map((row) => row.dataset.key)")
    return found


def waits_for_rows(look: Look, *names: str) -> None:
    look.until(
        "(names) => [...document.querySelectorAll('main tbody tr')].map((row) => row.dataset.key).join() === names",
        ",".join(names),
    )


def test_it_works_under_any_prefix(opened: ExitStack, open_look: Open) -> None:
    stage = Stage("/any/where")
    stage.tell("scene", scene(row("a", 1)))
    stage.tell("side", side("a"))
    look = open_look(opened.enter_context(served(stage.app)) + "any/where/")
    page = look.go()
    assert page.inner_text("h1") == "All is well."
    page.wait_for_selector("#nav a[href='#/q/a']")
    assert page.title() == "Overview · shardq"
    look.check()


def test_numbers_change_in_place(look: Look, stage: Stage) -> None:
    page = look.go()
    page.evaluate("window.before = document.querySelector('tr[data-key=b]')")
    stage.tell("scene", scene(row("a", 1), row("b", 77), row("c", 3)))
    page.wait_for_selector("tr[data-key=b] >> text='77'")
    assert page.evaluate("window.before === document.querySelector('tr[data-key=b]')")
    stage.tell("scene", scene(row("c", 3), row("b", 77), row("d", 5)))
    waits_for_rows(look, "c", "b", "d")
    assert page.evaluate("window.before === document.querySelector('tr[data-key=b]')")
    look.check()


@pytest.mark.parametrize("first", ["short", "long"])
@pytest.mark.parametrize("how", ["pointer", "focus"])
def test_rows_in_hand_do_not_move(look: Look, stage: Stage, how: str, first: str) -> None:
    long = "A heading that is so long that it needs two lines or more, which moves all that is below it. " * 3
    lines = ["All is well.", long]
    if first == "long":
        lines.reverse()
    stage.tell("scene", scene(row("a", 1), row("b", 2), row("c", 3), line=lines[0]))
    page = look.go()
    if how == "pointer":
        page.hover("tr[data-key=b]")
    else:
        page.focus("tr[data-key=b]")
    top = page.evaluate("document.querySelector('tr[data-key=b]').getBoundingClientRect().top")
    stage.tell("scene", scene(row("c", 3), row("b", 78), row("new", 5), line=lines[1]))
    page.wait_for_selector("tr[data-key=b] >> text='78'")
    assert rows(page) == ["a", "b", "c", "new"], "what is gone stays, and what is new comes last"
    assert page.get_attribute("tr[data-key=a]", "data-gone") == ""
    assert abs(page.evaluate("document.querySelector('tr[data-key=b]').getBoundingClientRect().top") - top) < 1
    if how == "pointer":
        page.mouse.move(1, 1)
    else:
        assert page.evaluate("document.activeElement.dataset.key") == "b"
        page.evaluate("document.activeElement.blur()")
    waits_for_rows(look, "c", "b", "new")
    look.until("scrollY === 0 && document.querySelector('.crumbs').getBoundingClientRect().top < 40")
    look.check()


def test_what_a_person_opened_and_typed_is_kept(look: Look, stage: Stage) -> None:
    page = look.go()
    stage.tell("scene", scene(row("a", 1), more=3))
    page.fill("#find-queue", "some")
    look.until("location.hash.includes('search=some')")
    page.evaluate("document.getElementById('find-queue').setSelectionRange(1, 2)")
    stage.tell("scene", scene(row("a", 2), more=3, search="so"))
    page.wait_for_selector("tr[data-key=a] >> text='2'")
    assert page.input_value("#find-queue") == "some"
    assert page.evaluate("document.activeElement.id") == "find-queue"
    assert page.evaluate("document.activeElement.selectionStart") == 1
    assert_soon(lambda: stage.asked[-1] == "scene=overview&search=some")
    look.check()


def test_a_search_that_is_typed_is_asked_once(look: Look, stage: Stage) -> None:
    stage.tell("scene", scene(row("a", 1), more=3))
    page = look.go()
    page.locator("#find-queue").press_sequentially("abcdef", delay=1)
    look.until("location.hash.includes('search=abcdef')")
    assert_soon(lambda: stage.asked[-1] == "scene=overview&search=abcdef")
    assert len(stage.asked) < 6
    look.check()


def assert_soon(is_so: Any) -> None:
    from tests.waiting import eventually

    eventually(is_so, 15, every=0.02, what="the page")


def test_a_break_is_shown_and_caught_up(look: Look, stage: Stage) -> None:
    page = look.go()
    stage.refuses = (503, "not now")
    stage.end_streams()
    page.wait_for_selector("#alarm >> text=No connection")
    assert "What you see is of" in page.inner_text("#alarm")
    assert page.inner_text("#foot .live span:last-child").startswith("no connection")
    stage.tell("scene", scene(row("a", 4321)))
    stage.refuses = None
    page.wait_for_selector("text='4,321'")
    page.wait_for_selector("#alarm", state="detached")
    assert page.inner_text("#foot .live").startswith("live")
    look.check("503")


def test_a_stream_that_ends_once_in_a_while_is_no_break(look: Look, stage: Stage) -> None:
    page = look.go()
    page.evaluate("""
      window.alarms = 0;
      const look = () => { if (document.getElementById("alarm")) window.alarms++; };
      new MutationObserver(look).observe(document, { subtree: true, childList: true });
    """)
    stage.tell("scene", scene(row("a", 4321)))
    stage.end_streams()
    assert_soon(lambda: len(stage.asked) == 2 and stage.open == 1)
    page.wait_for_selector("text='4,321'")
    assert page.evaluate("window.alarms") == 0
    look.check()


def test_what_is_shown_is_as_old_as_it_is(look: Look, stage: Stage) -> None:
    """A stream that is there says nothing of what is shown; what is shown is new while it is told to be as it was."""
    page = look.go()
    age = "parseInt(document.querySelector('#foot .live').innerText.split(' · ')[1])"
    look.until(f"{age} < 10")
    page.evaluate("{ const now = Date.now; Date.now = () => now() + 10_000; }")
    look.until(f"{age} >= 10")
    stage.tell("here", {})
    stage.tell("side", side("z"))
    page.wait_for_selector("#nav a[href='#/q/z']")
    assert page.evaluate(f"{age} >= 10")
    stage.tell("beat", {})
    look.until(f"{age} < 10")
    look.check()


def test_a_stream_that_is_refused_says_why(look: Look, stage: Stage) -> None:
    stage.refuses = (429, "10 pages are open, as many as one may have: close one.")
    page = look.go()
    page.wait_for_selector("text=close one")
    stage.refuses = None
    page.wait_for_selector("text='All is well.'")
    look.check("429")


def test_a_hidden_page_asks_nothing(look: Look, stage: Stage) -> None:
    page = look.go()
    assert_soon(lambda: stage.open == 1)
    page.evaluate("""
      Object.defineProperty(document, "hidden", { configurable: true, get: () => window.isHidden ?? false });
      window.isHidden = true;
      document.dispatchEvent(new Event("visibilitychange"));
    """)
    assert_soon(lambda: stage.open == 0)
    stage.tell("scene", scene(row("a", 9876)))
    page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("text='9,876'")
    assert stage.open == 1
    look.check()


def test_an_answer_that_is_awaited_is_told_of(opened: ExitStack, open_look: Open) -> None:
    stage = Stage()
    look = open_look(opened.enter_context(served(stage.app)))
    look.page.goto(look.address)
    look.page.wait_for_selector("main >> text=One moment")
    stage.tell("scene", scene(row("a", 1)))
    look.page.wait_for_selector("h1 >> text='All is well.'")
    look.page.wait_for_selector("main >> text=One moment", state="detached")
    look.check()


def test_redis_away_and_back(look: Look, stage: Stage) -> None:
    page = look.go()
    stage.tell("away", {"text": "Redis does not answer.", "since": NOW})
    page.wait_for_selector("#alarm >> text=Redis does not answer.")
    assert page.inner_text("h1") == "All is well.", "what was known stays"
    stage.tell("scene", scene(row("a", 5)))
    page.wait_for_selector("#alarm", state="detached")
    look.check()


def test_a_screen_that_failed_says_so(look: Look, stage: Stage) -> None:
    page = look.go()
    stage.tell("failed", {"text": "This screen failed."})
    page.wait_for_selector("#alarm >> text=This screen failed.")
    look.check()


TROUBLE: dict[str, tuple[str, dict[str, Any]]] = {
    "away": ("away", {"text": "Redis does not answer.", "since": NOW}),
    "failed": ("failed", {"text": "This screen failed. The log of the page's process says why."}),
    "gone": ("gone", {"text": "There is no queue a."}),
    "unreadable": ("gone", {"text": UNREADABLE}),
}
"""What a stream may bring where the numbers should be."""


@pytest.mark.parametrize("trouble", [*TROUBLE, "refused", "broken"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "after a scene"])
def test_what_is_wrong_fits_and_can_be_used_by_all(
    opened: ExitStack, open_look: Open, trouble: str, is_first: bool
) -> None:
    stage = Stage()
    stage.tell("side", side("a", "b", "c"))
    if not is_first:
        stage.tell("scene", scene(row("a", 1), row("b", 2), row("c", 3)))
    look = open_look(opened.enter_context(served(stage.app)))
    if is_first:
        look.page.goto(look.address)
    else:
        look.go()
    if trouble in TROUBLE:
        stage.tell(*TROUBLE[trouble])
    else:
        stage.refuses = (429, "You have 10 pages open: close one.") if trouble == "refused" else (503, "")
        stage.end_streams()
    text = {"refused": "close one", "broken": "No connection"}.get(trouble) or TROUBLE[trouble][1]["text"]
    look.page.wait_for_selector(f"main >> text={text}")
    check_all_sizes(look)
    look.check("429", "503")


def test_what_is_gone_is_said_in_a_sentence(look: Look, stage: Stage) -> None:
    page = look.go()
    stage.tell("gone", {"text": "There is no queue a."})
    page.wait_for_selector("h1 >> text='There is no queue a.'")
    assert page.get_attribute(".crumbs a", "href") == "#/"
    stage.tell("scene", scene(row("a", 5)))
    page.wait_for_selector("h1 >> text='All is well.'")
    look.check()


@pytest.mark.parametrize(
    "address", ["#/nothing", "#/q/", "#/q/a/b/c/d", "#/q/a/tenant", "#/q/%E0%A4%A", "#/workers/x", "#/q/a/toString/x"]
)
def test_an_address_of_no_screen(look: Look, address: str) -> None:
    page = look.go(address)
    assert page.inner_text("h1") == "There is no such screen."
    page.wait_for_selector("#nav a[href='#/q/a']", state="attached")
    page.wait_for_selector("#foot >> text=live")
    assert page.inner_text("h1") == "There is no such screen."
    look.check()


def test_addresses_of_any_names(look: Look) -> None:
    page = look.go()
    for name in HOSTILE:
        for rest, expected in (
            ("", ["queue", [name]]),
            ("/tenants", ["tenants", [name]]),
            ("/tenant/", ["tenant", [name, name]]),
            ("/message/", ["message", [name, name]]),
        ):
            found = page.evaluate(
                """async ([name, rest]) => {
                  const { route, here, address } = await import(new URL("js/routes.js", document.baseURI));
                  const at = route(here(name, rest + (rest.endsWith("/") ? encodeURIComponent(name) : "")));
                  return [at.scene, at.parts, new URL(address(at), document.baseURI).searchParams.getAll("part")];
                }""",
                [name, rest],
            )
            assert found == [*expected, expected[1]]


def test_hostile_names_are_only_names(look: Look, stage: Stage) -> None:
    stage.tell("scene", scene(*(row(each, 1) for each in HOSTILE), line=[[each, True] for each in HOSTILE]))
    stage.tell("side", side(*HOSTILE))
    page = look.go()
    assert rows(page) == [*HOSTILE]
    assert HOSTILE[0] in page.inner_text("h1")
    assert page.locator("main img").count() == 0
    page.set_viewport_size({"width": 360, "height": 740})
    look.check_width()
    look.check()


def test_keys(look: Look, stage: Stage) -> None:
    page = look.go()
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.key") == "b"
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.dataset.key") == "a"
    page.keyboard.press("?")
    assert page.is_visible("#keys h2")
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    assert not page.is_visible("#keys h2")
    stage.tell("gone", {"text": "Nothing."})  # the other screens have no data here
    page.wait_for_selector("h1 >> text='Nothing.'")
    page.keyboard.press("2")
    look.until("location.hash === '#/q/b'")
    page.wait_for_selector("h1 >> text='Nothing.'")
    page.keyboard.press("u")
    look.until("location.hash === '#/'")
    page.keyboard.press("/")
    look.until("location.hash === '#/q/a/tenants'")
    for key, hash_ in (("w", "#/workers"), ("s", "#/schedules"), ("o", "#/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        look.until("(hash) => location.hash === hash", hash_)
    look.check("404")


def test_a_key_goes_by_the_address_though_its_screen_is_not_drawn_yet(look: Look) -> None:
    """A quick person presses the next key before the page hears that its address is another."""
    look.go().evaluate("""() => {
        location.hash = "#/q/b";
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }));
    }""")
    look.until("location.hash === '#/q/b/tenants'")


def test_enter_opens_a_row(look: Look) -> None:
    page = look.go()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    look.until("location.hash === '#/q/a'")


def test_single_keys_can_be_switched_off(look: Look) -> None:
    page = look.go()
    page.keyboard.press("?")
    page.uncheck("#keys input")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.key ?? null") is None
    page.click("#show-keys")
    page.check("#keys input")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.key") == "a"


def ground(page: Page) -> str:
    found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return found


def test_colours_are_chosen_and_kept(look: Look) -> None:
    page = look.go()
    light = ground(page)
    page.emulate_media(color_scheme="dark")
    dark = ground(page)
    assert dark != light
    seen = []
    for _ in range(3):
        page.click("#theme")
        seen.append((page.inner_text("#theme"), ground(page)))
    assert seen == [("Light", light), ("Dark", dark), ("System", dark)]
    page.click("#theme")
    page.reload()
    page.wait_for_selector("#theme >> text=Light")
    assert ground(page) == light
    look.check()


def test_a_browser_that_stores_nothing(look: Look) -> None:
    look.page.add_init_script("""
      Object.defineProperty(window, "localStorage", { get() { throw new DOMException("denied", "SecurityError"); } });
    """)
    page = look.go()
    page.click("#theme")
    assert page.inner_text("#theme") == "Light"
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.key") == "a"
    look.check()


def test_times_are_those_of_the_browsers_zone(stage: Stage, opened: ExitStack, open_look: Open) -> None:
    since = NOW - 3600
    stage.tell("scene", scene(row("a", 1), line=[["It is so since ", False], ["00:00", False, None, since]]))
    look = open_look(opened.enter_context(served(stage.app)), zone="Asia/Kathmandu")
    page = look.go()
    assert page.inner_text("h1") == "It is so since 05:38", "23:53 in UTC"
    page.wait_for_selector("#foot >> text=times are Asia/")
    look.check()


def test_on_a_phone_one_sees_in_the_side_where_one_is(opened: ExitStack, open_look: Open) -> None:
    stage = Stage()
    stage.tell("gone", {"text": "There is no queue queue-29."})
    stage.tell("side", side(*(f"queue-{at}" for at in range(30))))
    look = open_look(opened.enter_context(served(stage.app)), width=360)
    look.go("#/q/queue-29/failures")
    look.until("""() => {
      const here = document.querySelector("#nav [aria-current]")?.getBoundingClientRect();
      const nav = document.getElementById("nav").getBoundingClientRect();
      return here && here.left >= nav.left && here.right <= nav.right;
    }""")
    assert look.page.evaluate("document.getElementById('nav').clientWidth") > 300


def test_on_a_phone_names_are_shown_to_their_end(stage: Stage, opened: ExitStack, open_look: Open) -> None:
    stage.tell("scene", scene(row("reports-7d9f6b5c4d-hx2lq", 1), row("reports-7d9f6b5c4d-9xx2v", 1)))
    look = open_look(opened.enter_context(served(stage.app)), width=360)
    look.go()
    waits_for_rows(look, "reports-7d9f6b5c4d-hx2lq", "reports-7d9f6b5c4d-9xx2v")
    cut = "[...document.querySelectorAll('td .name')].map((each) => each.scrollWidth > each.clientWidth)"
    assert look.page.evaluate(cut) == [False, False]
    look.check_width()


def test_on_paper_it_is_light(look: Look) -> None:
    page = look.go()
    light = ground(page)
    page.emulate_media(media="print", color_scheme="dark")
    assert ground(page) == light
    page.emulate_media(media="screen", color_scheme="light")
    for _ in range(2):
        page.click("#theme")
    page.emulate_media(media="print")
    assert ground(page) == light


@pytest.mark.parametrize("size", [1440, 900, 360])
def test_the_frame_fits_and_can_be_used_by_all(stage: Stage, opened: ExitStack, open_look: Open, size: int) -> None:
    look = open_look(opened.enter_context(served(stage.app)), width=size)
    look.go()
    look.page.wait_for_selector("#nav a[href='#/q/a']", state="attached")
    look.check_width()
    look.check_axe()
    look.check()

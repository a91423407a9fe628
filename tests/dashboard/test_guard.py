"""What stands before the page: names of the host, who asks, headers, and what is said of what fails."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, cast

import httpx2
import pytest
from starlette.requests import Request
from starlette.websockets import WebSocketDisconnect

from shardq.client import AsyncClient
from shardq.dashboard import Person, Role, app
from shardq.dashboard.app import MAX_LETTERS
from shardq.dashboard.guard import ENDED, HEADERS, OTHER_PROCESS
from shardq.dashboard.pace import MAX_PEOPLE, MAX_SCREENS, PAUSE_SECONDS, ScreenPace
from shardq.errors import BackendError, ClosedError, ConfigError
from shardq.testing import ManualClock, fake_async_client
from tests.dashboard.asking import ADDRESS, DONE, OWN, asking, hello, said, scenes

POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
JONAS, MARA = Person("jonas", Role.VIEW), Person("mara", Role.ACT)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8321", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8321", 200),
        ("ops.example.com", 200),
        ("OPS.example.com.:443", 200),
        ("evil.example.com", 421),
        ("ops.example.com.evil.example.com", 421),
        ("127.0.0.1.evil.example.com", 421),
        ("10.0.0.1", 421),
        ("evil@ops.example.com", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_only_known_names_of_the_host_are_answered(clock: ManualClock, host: str, status: int) -> None:
    page = asking(clock, host_names=["ops.example.com"])
    assert page.browser().get("/who", headers={"host": host}).status_code == status


def test_a_page_behind_a_site_that_checks_may_have_any_name(clock: ManualClock) -> None:
    page = asking(clock, host_names=["*"])
    assert page.browser("http://anything.example.com").get("/who").status_code == 200


def test_each_answer_has_the_headers(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes(monkeypatch, overview=hello)
    with asking(clock).browser() as browser:  # in one event loop, as the page is served
        answers = {
            "page": browser.get("/"),
            "file": browser.get("/css/page.css"),
            "scene": browser.get("/scene/overview"),
            "no screen": browser.get("/scene/nothing"),
            "no file": browser.get("/nothing"),
            "no method": browser.put("/who", headers=OWN),
            "failed": browser.get("/fails"),
            "other host": browser.get("/", headers={"host": "evil.example.com"}),
            "other origin": browser.post("/act/done", headers={**OWN, "origin": "http://evil.example.com"}),
            "stranger": asking(clock, auth=lambda _: None).browser().get("/"),
        }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "page": 200, "file": 200, "scene": 200, "no screen": 404, "no file": 404, "no method": 403, "failed": 500,
        "other host": 421, "other origin": 403, "stranger": 401,
    }  # fmt: skip
    for name, answer in answers.items():
        assert {each: answer.headers.get(each) for each in HEADERS} == HEADERS, name
        assert answer.headers["content-security-policy"] == POLICY
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_asks_for_nothing_of_others(clock: ManualClock) -> None:
    browser = asking(clock).browser()
    for path in ("/", "/login.html"):
        text = browser.get(path).text
        assert "//" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert " style=" not in text
        assert "<style" not in text


@pytest.mark.parametrize("prefix", ["", "/ops/queues"])
def test_the_page_is_the_same_under_any_prefix(
    clock: ManualClock, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes(monkeypatch, queue=hello)
    browser = asking(clock).browser(prefix=prefix)
    assert "js/app.js" in browser.get(f"{prefix}/").text
    found = browser.get(f"{prefix}/scene/queue", params={"part": "jobs", "order": "dead"}).json()
    assert (found["parts"], found["query"]) == (["jobs"], {"order": "dead"})
    assert browser.get(f"{prefix}/js/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "query",
    [
        "part=a&part=b&part=c",
        "part=" + "x" * (MAX_LETTERS + 1),
        "order=" + "x" * (MAX_LETTERS + 1),
        "&".join(f"k{number}=1" for number in range(13)),
        "part=bad%20name",
        "part=",
    ],
)
def test_what_no_browser_of_the_page_asks_is_no_screen(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    scenes(monkeypatch, queue=hello)
    answer = asking(clock).browser().get(f"/scene/queue?{query}")
    assert (answer.status_code, answer.json()) == (404, {"text": "There is no such screen."})


# Who asks


def test_without_auth_anybody_looks_and_nobody_acts(clock: ManualClock) -> None:
    browser = asking(clock).browser()
    assert browser.get("/who").json() == {"name": "anybody", "role": "VIEW"}
    assert browser.post("/act/done", headers=OWN).status_code == 403


def test_auth_may_be_a_function_or_a_coroutine(clock: ManualClock) -> None:
    async def later(request: Request) -> Person | None:
        return MARA if request.headers.get("x-user") == "mara" else None

    def now(request: Request) -> Person | None:
        return MARA if request.headers.get("x-user") == "mara" else None

    for auth in (later, now):
        browser = asking(clock, auth=auth).browser()
        assert browser.get("/who", headers={"x-user": "mara"}).json() == {"name": "mara", "role": "ACT"}
        assert browser.get("/who").status_code == 401
        assert browser.get("/").status_code == 401
        assert browser.get("/js/app.js").status_code == 401


def test_auth_that_fails_refuses(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    def fails(request: Request) -> Person | None:
        raise KeyError("the directory is away")

    answer = asking(clock, auth=fails).browser().get("/who")
    assert (answer.status_code, answer.json()) == (401, {"text": "Refused: nobody who may look."})
    assert "could not be found out" in said(caplog)


def test_auth_that_hangs_refuses(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(request: Request) -> Person | None:
        await asyncio.Event().wait()
        return MARA

    monkeypatch.setattr("shardq.dashboard.guard.PATIENCE", 0.01)
    assert asking(clock, auth=hangs).browser().get("/who").status_code == 401


def test_a_websocket_is_refused_and_a_lifespan_passes(clock: ManualClock) -> None:
    with asking(clock).browser() as browser:
        assert browser.get("/who").status_code == 200
        with pytest.raises(WebSocketDisconnect), browser.websocket_connect("/live"):
            pass


@pytest.mark.parametrize("wrong", ["mara", True, {"name": "mara", "role": 3}, Role.ADMIN])
def test_auth_that_returns_something_else_refuses(clock: ManualClock, wrong: Any, caplog: Any) -> None:
    assert asking(clock, auth=lambda _: wrong).browser().get("/who").status_code == 401
    assert "returned no Person" in said(caplog)


def test_a_viewer_that_acts_is_refused_and_told_in_the_log(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert asking(clock, auth=lambda _: MARA).browser().post("/act/done", headers=OWN).json() == DONE
    answer = asking(clock, auth=lambda _: JONAS).browser().post("/act/done", headers=OWN)
    assert answer.status_code == 403
    assert said(caplog) == "refused 'POST /act/done' of jonas: the role view changes nothing"


def test_actions_need_people_who_are_known() -> None:
    client = fake_async_client()
    with pytest.raises(ConfigError, match="an AsyncClient, not None"):
        app(cast("AsyncClient", None))
    with pytest.raises(ConfigError, match="actions are for people who are known"):
        app(client, actions=True)
    with pytest.raises(ConfigError, match="not both"):
        app(client, auth=lambda _: None, people="people.toml")


# Whose page a POST comes from


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "it lacks the header x-shardq"),
        ({"origin": ADDRESS}, "it lacks the header x-shardq"),
        ({"x-shardq": "page"}, "it comes from another origin"),
        ({**OWN, "origin": "http://evil.example.com"}, "it comes from another origin"),
        ({**OWN, "origin": "null"}, "it comes from another origin"),
        ({**OWN, "origin": "http://127.0.0.1:8322"}, "it comes from another origin"),
        ({**OWN, "origin": "http://127.0.0.1:8321.evil.example.com"}, "it comes from another origin"),
        ({**OWN, "origin": "ftp://127.0.0.1:8321"}, "it comes from another origin"),
        ({**OWN, "origin": "http://[127.0.0.1"}, "it comes from another origin"),
    ],
)
def test_a_post_that_is_not_of_the_page_is_refused(
    clock: ManualClock, headers: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    browser = asking(clock, auth=lambda _: MARA).browser()
    answer = browser.post("/act/done", headers=headers)
    assert (answer.status_code, answer.json()) == (403, {"text": f"Refused: {why}."})
    assert said(caplog) == f"refused 'POST /act/done' of 192.0.2.1: {why}"


def test_a_page_without_tls_says_nothing_to_one_with_it(clock: ManualClock) -> None:
    page = asking(clock, auth=lambda _: MARA, host_names=["ops.example.com"])
    plain, secure = page.browser("http://ops.example.com"), page.browser("https://ops.example.com")
    of_plain, of_secure = ({**OWN, "origin": f"{scheme}://ops.example.com"} for scheme in ("http", "https"))
    assert plain.post("/act/done", headers=of_plain).status_code == 200
    assert plain.post("/act/done", headers=of_secure).status_code == 200  # a proxy has taken TLS off
    assert secure.post("/act/done", headers=of_secure).status_code == 200
    assert secure.post("/act/done", headers=of_plain).status_code == 403


def test_another_site_may_link_to_the_page_but_not_ask_it(clock: ManualClock) -> None:
    browser = asking(clock).browser()
    assert browser.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200
    assert browser.get("/live", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}).status_code == 403
    near = {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}  # of another port of this machine
    assert browser.get("/live", headers=near).status_code == 403
    assert browser.get("/who", headers={"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}).status_code == 200


def test_who_opens_screens_too_fast_waits_and_nobody_else(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each screen of another tenant or message asks Redis something of its own."""
    scenes(monkeypatch, overview=hello)
    page = asking(clock)
    browser, other = page.browser(), page.browser(of="192.0.2.2")
    assert {browser.get("/scene/overview", params={"search": str(n)}).status_code for n in range(MAX_SCREENS)} == {200}
    hasty = browser.get("/scene/overview")
    assert (hasty.status_code, hasty.json()) == (429, {"text": "You open screens too fast: wait a second."})
    assert browser.get("/live?scene=overview").status_code == 429
    assert page.page.state.live.streams == 0
    assert other.get("/scene/overview").status_code == 200
    assert "refused 'GET /scene/overview' of anybody: too many screens at once" in said(caplog)
    clock.advance(PAUSE_SECONDS)
    assert browser.get("/scene/overview").status_code == 200
    assert browser.get("/scene/overview").status_code == 429


def test_people_whose_pace_is_known_are_bounded(clock: ManualClock) -> None:
    pace = ScreenPace(clock)
    for number in range(MAX_PEOPLE + 10):
        pace.count(f"p{number}")
    assert len(pace._free_at) == MAX_PEOPLE


def test_a_scene_that_takes_too_long_is_not_waited_for(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stands(*_: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    scenes(monkeypatch, overview=stands)
    monkeypatch.setattr(sys.modules["shardq.dashboard.app"], "SCENE_SECONDS", 0.01)
    answer = asking(clock).browser().get("/scene/overview")
    assert (answer.status_code, answer.json()) == (503, {"text": "Redis does not answer."})


# What fails


def test_what_fails_says_nothing_but_to_the_log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    answer = asking(clock).browser().get("/fails")
    assert (answer.status_code, answer.json()) == (
        500,
        {"text": "This failed. The log of the page's process says why."},
    )
    assert "secret" not in answer.text
    (record,) = [each for each in caplog.records if each.name == "shardq.dashboard"]
    assert record.exc_info is not None


async def test_a_page_that_goes_on_elsewhere_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """As one that was asked before a fork, or in a loop that has ended: what waits there is of no use here."""
    page = asking(ManualClock())

    def ask() -> httpx2.Response:
        return page.browser().get("/fails")

    assert (await asyncio.to_thread(ask)).status_code == 500
    again = await asyncio.to_thread(ask)
    assert (again.status_code, again.json()) == (503, {"text": OTHER_PROCESS})


def test_a_page_whose_client_is_closed_says_so(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def closed(*_: Any) -> dict[str, Any]:
        raise ClosedError("this client was closed")

    scenes(monkeypatch, overview=closed)
    answer = asking(clock).browser().get("/scene/overview")
    assert (answer.status_code, answer.json()) == (503, {"text": ENDED})


def test_an_error_of_redis_names_no_host(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> dict[str, Any]:
        raise BackendError("10.1.2.3:6379 refused the user ops: shardq server acl viewer")

    scenes(monkeypatch, overview=away)
    answer = asking(clock).browser().get("/scene/overview")
    assert (answer.status_code, answer.json()) == (503, {"text": "Redis does not answer as it should."})


def test_refusals_do_not_fill_the_log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    browser = asking(clock).browser()
    for _ in range(100):
        browser.get("/", headers={"host": "evil.example.com"})
    assert len(said(caplog).splitlines()) == 30
    clock.advance(60)
    browser.get("/", headers={"host": "evil.example.com"})
    assert said(caplog).splitlines()[30] == "refused 70 more requests, without a line each"

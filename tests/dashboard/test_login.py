"""Login by a token: what the browser gets for it, for how long, and what those get who guess."""

from __future__ import annotations

import math
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from shardq.dashboard.guesses import MAX_ADDRESSES, MAX_GUESSES, PAUSE_SECONDS, Guesses
from shardq.dashboard.people import People
from shardq.dashboard.sessions import MAX_AGE, MAX_SESSIONS, MAX_SESSIONS_A_PERSON, Sessions
from shardq.errors import ConfigError
from shardq.testing import ManualClock
from tests.dashboard.asking import ADDRESS, DONE, OWN, Asking, TokenFile, asking, said

NAME = "shardq-8321"
ADA = "[[people]]\nname = 'ada'\nrole = 'view'\n"
WRONG = "shardq_wrong"


@pytest.fixture
def people(tmp_path: Path) -> TokenFile:
    found = TokenFile(tmp_path / "people.toml")
    found.add("jonas", "view")
    found.add("mara", "act")
    return found


@pytest.fixture
def page(people: TokenFile, clock: ManualClock) -> Asking:
    return asking(clock, people=people.path, host_names=["ops.example.com"])


def login(browser: TestClient, token: str, **headers: str) -> Any:
    return browser.post("/login", json={"token": token}, headers={**OWN, **headers})


def cookie(answer: Any) -> Morsel[str]:
    found: SimpleCookie = SimpleCookie(answer.headers["set-cookie"])
    (only,) = found.values()
    return only


def test_who_has_not_logged_in_gets_the_form_and_nothing_else(page: Asking) -> None:
    browser = page.browser()
    answer = browser.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "login")
    assert "<form" in browser.get("/login").text
    for path in ("/css/page.css", "/js/login.js", "/icon.svg"):
        assert browser.get(path).status_code == 200, path
    for path in ("/js/app.js", "/index.html", "/scene/overview", "/live?scene=overview", "/who", "/nothing"):
        answer = browser.get(path)
        assert (answer.status_code, answer.json()) == (401, {"text": "Log in first."}), path
    for path in ("/act/done", "/logout"):
        assert browser.post(path, headers=OWN).status_code == 401, path


def test_a_token_is_shown_once_and_a_cookie_from_then_on(page: Asking, people: TokenFile) -> None:
    browser = page.browser()
    assert login(browser, people.tokens["mara"]).status_code == 204
    assert browser.get("/").status_code == 200
    assert browser.get("/me").json()["you"] == {"name": "mara", "role": "act"}
    assert browser.post("/act/done", headers=OWN).json() == DONE
    other = page.browser()
    assert login(other, f" {people.tokens['jonas']}\n").status_code == 204  # as it is copied
    assert other.get("/me").json()["you"] == {"name": "jonas", "role": "view"}
    assert other.post("/act/done", headers=OWN).status_code == 403


def test_the_cookie_is_for_the_page_alone(page: Asking, people: TokenFile) -> None:
    local = cookie(login(page.browser(), people.tokens["mara"]))
    assert local.key == NAME
    assert (local["httponly"], local["samesite"].lower(), local["path"]) == (True, "strict", "/")
    assert (local["secure"], local["domain"], int(local["max-age"])) == ("", "", int(MAX_AGE))
    browser = page.browser("https://ops.example.com", prefix="/ops")
    own = {**OWN, "origin": "https://ops.example.com"}
    away = cookie(browser.post("/ops/login", json={"token": people.tokens["mara"]}, headers=own))
    assert (away.key, away["secure"], away["path"]) == ("shardq", True, "/ops/")
    assert browser.get("/ops/me").json()["you"]["name"] == "mara"


def test_a_login_of_another_site_or_without_a_token_is_none(page: Asking, people: TokenFile, caplog: Any) -> None:
    browser, token = page.browser(), people.tokens["mara"]
    assert login(browser, token, origin="http://evil.example.com").status_code == 403
    assert browser.post("/login", data={"token": token}).status_code == 403  # a form of another site
    for body in (b"", b"[]", b"{}", b"{", b'{"token": 3}', b'{"token": ""}', b"\xff", b'"' + b"x" * 10_000 + b'"'):
        assert browser.post("/login", content=body, headers=OWN).status_code in (403, 429), body
    assert token not in said(caplog)
    assert "set-cookie" not in browser.get("/login").headers


def test_a_session_that_somebody_fixed_is_worth_nothing(page: Asking, people: TokenFile) -> None:
    fixed = "A" * 43
    browser = page.browser(cookies={NAME: fixed})
    assert browser.get("/me").status_code == 204
    answer = login(browser, people.tokens["mara"])
    assert cookie(answer).value != fixed
    assert page.browser(cookies={NAME: fixed}).get("/me").status_code == 204


def test_each_login_makes_a_new_session_and_ends_the_one_before(page: Asking, people: TokenFile) -> None:
    browser = page.browser()
    first = cookie(login(browser, people.tokens["mara"])).value
    second = cookie(login(browser, people.tokens["mara"])).value
    assert first != second
    assert page.browser(cookies={NAME: first}).get("/me").status_code == 204
    assert page.browser(cookies={NAME: second}).get("/me").status_code == 200


def test_a_session_ends(page: Asking, people: TokenFile, clock: ManualClock) -> None:
    browser = page.browser()
    key = cookie(login(browser, people.tokens["mara"])).value
    clock.advance(MAX_AGE - 1)
    assert page.browser(cookies={NAME: key}).get("/me").status_code == 200
    clock.advance(1)
    assert page.browser(cookies={NAME: key}).get("/me").status_code == 204


def test_logout_ends_the_session(page: Asking, people: TokenFile) -> None:
    browser = page.browser()
    key = cookie(login(browser, people.tokens["jonas"])).value
    answer = browser.post("/logout", headers=OWN)
    assert (answer.status_code, cookie(answer).value) == (204, "")
    assert page.browser(cookies={NAME: key}).get("/me").status_code == 204


def test_who_is_taken_out_of_the_file_is_out_at_once(page: Asking, people: TokenFile) -> None:
    browser = page.browser()
    login(browser, people.tokens["mara"])
    people.change("mara", "admin")
    assert browser.get("/me").json()["you"]["role"] == "admin"
    people.remove("mara")
    assert browser.get("/me").status_code == 204


def test_a_new_token_of_a_person_ends_the_sessions_of_the_old_one(page: Asking, people: TokenFile) -> None:
    browser, old = page.browser(), people.tokens["mara"]
    login(browser, old)
    new = people.add("mara", "act")
    assert browser.get("/me").status_code == 204
    assert login(browser, old).status_code == 403
    assert login(browser, new).status_code == 204


def test_a_token_expires_with_its_sessions(people: TokenFile, clock: ManualClock) -> None:
    token = people.add("ada", "view", "expires = 2023-11-14T22:13:30Z")  # 10 s from now
    browser = asking(clock, people=people.path).browser()
    assert login(browser, token).status_code == 204
    clock.advance(10)
    assert browser.get("/me").status_code == 204
    assert login(browser, token).status_code == 403


def test_a_file_that_is_being_changed_keeps_those_in_it(page: Asking, people: TokenFile, caplog: Any) -> None:
    browser = page.browser()
    login(browser, people.tokens["mara"])
    people.path.write_text("[[people]]\nname = ")
    assert browser.get("/me").status_code == 200
    assert "people.toml" in said(caplog)
    people.path.unlink()
    assert browser.get("/me").status_code == 200
    people.add("ada", "view")
    assert login(page.browser(), people.tokens["ada"]).status_code == 204


# Guesses


def test_who_guesses_is_slowed_and_nobody_else(
    page: Asking, people: TokenFile, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    guesser, honest = page.browser(of="203.0.113.7"), page.browser(of="192.0.2.1")
    assert [login(guesser, f"{WRONG}{number}").status_code for number in range(MAX_GUESSES)] == [403] * MAX_GUESSES
    answer = login(guesser, people.tokens["mara"])  # also a right one: else each answer would say whether it is
    assert (answer.status_code, answer.headers["retry-after"]) == (429, str(math.ceil(PAUSE_SECONDS)))
    assert "Try again in 2 s" in answer.json()["text"]
    assert login(honest, people.tokens["mara"]).status_code == 204
    assert honest.get("/me").status_code == 200
    clock.advance(PAUSE_SECONDS)
    assert login(guesser, people.tokens["mara"]).status_code == 204  # an honest one behind the same address
    assert said(caplog).splitlines()[0] == "refused 'POST /login' of 203.0.113.7: nobody has this token"
    assert "too many wrong tokens" in said(caplog)
    assert WRONG not in said(caplog)
    assert people.tokens["mara"] not in said(caplog)


def test_who_is_logged_in_is_not_slowed_by_who_guesses_at_the_same_address(page: Asking, people: TokenFile) -> None:
    browser, guesser = page.browser(), page.browser()
    login(browser, people.tokens["jonas"])
    for number in range(2 * MAX_GUESSES):
        login(guesser, f"{WRONG}{number}")
    assert browser.get("/me").status_code == 200


def test_guesses_are_forgotten_one_by_one(clock: ManualClock) -> None:
    guesses = Guesses(clock)
    for _ in range(MAX_GUESSES):
        assert guesses.wait("192.0.2.1") == 0
        guesses.note("192.0.2.1")
    assert guesses.wait("192.0.2.1") == PAUSE_SECONDS
    clock.advance(PAUSE_SECONDS)
    assert guesses.wait("192.0.2.1") == 0
    guesses.note("192.0.2.1")
    assert guesses.wait("192.0.2.1") == PAUSE_SECONDS
    clock.advance(PAUSE_SECONDS * MAX_GUESSES)
    for _ in range(MAX_GUESSES - 1):
        guesses.note("192.0.2.1")
    assert guesses.wait("192.0.2.1") == 0


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("testclient", "", False),
    ],
)
def test_addresses_of_one_network_of_ipv6_count_as_one(
    clock: ManualClock, first: str, second: str, is_same: bool
) -> None:
    guesses = Guesses(clock)
    for _ in range(MAX_GUESSES):
        guesses.note(first)
    assert (guesses.wait(second) > 0) is is_same


def test_addresses_that_guess_are_bounded(clock: ManualClock) -> None:
    guesses = Guesses(clock)
    for number in range(MAX_ADDRESSES + 100):
        guesses.note(f"host-{number}")
    assert len(guesses._free_at) == MAX_ADDRESSES


# Sessions and files


def test_sessions_are_bounded(clock: ManualClock) -> None:
    sessions = Sessions(clock)
    first, *rest = [sessions.begin("mara", b"") for _ in range(MAX_SESSIONS_A_PERSON + 1)]
    assert sessions.find(first) is None
    assert all(map(sessions.find, rest))
    for number in range(MAX_SESSIONS):
        sessions.begin(f"p{number}", b"")
    assert not any(map(sessions.find, rest))
    assert len(sessions._by_hash) == MAX_SESSIONS


def test_sessions_are_kept_as_hashes(clock: ManualClock) -> None:
    sessions = Sessions(clock)
    key = sessions.begin("mara", b"")
    assert key.encode() not in b"".join(sessions._by_hash)
    assert len({sessions.begin("mara", b"") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must have tables"),
        ("people = 3", "must have tables"),
        ("tokens = []\npeople = []", "must have tables"),
        ("people = [3]", "person 1 must be a table"),
        ("[[people]]\nnam = 3", "unknown field 'nam'"),
        ("[[people]]\nname = 'a b'", "needs a name"),
        ("[[people]]\nname = 'ada'", "needs a role: view, act or admin"),
        ("[[people]]\nname = 'ada'\nrole = 'root'", "needs a role"),
        ("[[people]]\nname = 'ada'\nrole = 'view'", "needs sha256"),
        ("[[people]]\nname = 'ada'\nrole = 'view'\nsha256 = 'x'", "needs sha256"),
        ("[[people]]\nname = 'ada'\nrole = 'view'\nsha256 = '{0}'\nexpires = 3", "expires must be a time"),
        ("[[people]]\nname = 'ada'\nrole = 'view'\nsha256 = ['{0}', '{0}']", "one sha256 twice"),
        (f"{ADA}sha256 = '{{0}}'\n{ADA}sha256 = '{{1}}'", "two people of one name"),
    ],
)
def test_a_file_that_is_wrong_says_why(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "people.toml"
    path.write_text(text.format("0" * 64, "1" * 64))
    with pytest.raises(ConfigError, match=why):
        People.read(path)


def test_the_form_is_at_home_on_any_address(page: Asking) -> None:
    assert page.browser(ADDRESS, prefix="/a/b").get("/a/b/").headers["location"] == "login"

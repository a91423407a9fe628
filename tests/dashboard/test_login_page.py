"""The form in a real browser: a token by the keyboard alone, a link to a screen, a logout, a restarted page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shardq import AsyncClient, Client
from shardq.dashboard import app
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard.asking import TokenFile
from tests.dashboard.browser import Open
from tests.dashboard.layout import check_all_sizes
from tests.servers import Server

pytestmark = pytest.mark.once
WRONG = "status of 403"
"""What Chromium says of a token that is refused."""


@pytest.fixture
def people(tmp_path: Path) -> TokenFile:
    found = TokenFile(tmp_path / "people.toml")
    found.add("mara", "act")
    return found


@contextmanager
def page(server: Server, people: TokenFile, listen: str = "127.0.0.1:0") -> Iterator[str]:
    made = PageServer(
        PageSettings(listen),
        lambda: AsyncClient.from_url(server.url),
        lambda client: app(client, people=people.path),
    )
    made.open()
    try:
        yield made.address
    finally:
        made.close()


@pytest.fixture
def address(server: Server, people: TokenFile) -> Iterator[str]:
    with Client.from_url(server.url) as client:
        client.queue("jobs", streams=1).write(b"x", shard_key="t")
    with page(server, people) as found:
        yield found


@pytest.mark.parametrize("hand", ["keyboard", "mouse"])
def test_a_link_to_a_screen_leads_there_by_way_of_the_form(
    address: str, people: TokenFile, open_look: Open, hand: str
) -> None:
    look = open_look(address)
    look.go("#/q/jobs")
    assert urlsplit(look.page.url).path == "/login"

    def enter(token: str) -> None:
        """Type a token, in the field that has the focus, and send it."""
        look.page.keyboard.type(token)
        if hand == "keyboard":
            look.page.keyboard.press("Enter")
        else:
            look.page.get_by_role("button").click()

    enter("wrong")
    look.page.get_by_text("Nobody has this token, or it has expired.").wait_for()
    check_all_sizes(look)
    enter(people.tokens["mara"])
    look.page.get_by_role("heading", name="jobs has no worker").wait_for()
    assert look.page.url == f"{address}#/q/jobs"
    out = look.page.get_by_role("button", name="Log out")
    out.click() if hand == "mouse" else out.press("Enter")
    look.page.get_by_label("Token").wait_for()
    look.check(WRONG)


@pytest.mark.runs_in("test-all")
def test_a_browser_that_keeps_no_cookie_is_told_so(address: str, people: TokenFile, open_look: Open) -> None:
    look = open_look(address)
    look.go()
    look.page.route("**/login", lambda route: route.fulfill(status=204))  # as by HTTP, where it is not on this machine
    look.page.get_by_label("Token").fill(people.tokens["mara"])
    look.page.keyboard.press("Enter")
    look.page.get_by_text("The token is right, but this browser keeps no login for this address").wait_for()
    look.check()


@pytest.mark.runs_in("test-all")
def test_a_page_that_was_restarted_asks_for_the_token_again(
    server: Server, people: TokenFile, address: str, open_look: Open
) -> None:
    with page(server, people) as first:
        look = open_look(first)
        look.go()
        look.page.get_by_label("Token").fill(people.tokens["mara"])
        look.page.keyboard.press("Enter")
        look.page.get_by_role("button", name="Log out").wait_for()
        listen = urlsplit(first).netloc
    with page(server, people, listen):
        look.page.get_by_label("Token").wait_for()
        look.page.get_by_label("Token").fill(people.tokens["mara"])
        look.page.keyboard.press("Enter")
        look.page.get_by_role("button", name="Log out").wait_for()


@pytest.mark.runs_in("test-all")
def test_the_form_fits_and_can_be_used_by_all(address: str, open_look: Open) -> None:
    look = open_look(address)
    look.go()
    check_all_sizes(look)
    look.check()

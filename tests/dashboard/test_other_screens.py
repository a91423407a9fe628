"""Failures, workers, schedules and settings in a real browser: what they say, lead to, and offer to whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardq import AsyncClient, Client
from shardq.dashboard import app
from shardq.dashboard.people import Person, Role
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard.browser import Look, Open
from tests.dashboard.evening import evening
from tests.servers import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCREENS = {
    "failures": "#/q/mails/failures",
    "workers": "#/workers",
    "schedules": "#/schedules",
    "settings": "#/settings",
    "settings of a queue": "#/q/mails/settings",
}


@pytest.fixture
def role() -> Role | None:
    """What the person may do who looks; None: the page does not let anybody act."""
    return None


@pytest.fixture
def address(server: Server, tmp_path: Path, role: Role | None) -> Iterator[str]:
    """The page of that evening."""
    acting: dict[str, Any] = {} if role is None else {"actions": True, "auth": lambda _: Person("mira", role)}
    with Client.from_url(server.url) as client:
        path = evening(server, client, tmp_path)
        page = PageServer(
            PageSettings("127.0.0.1:0"),
            lambda: AsyncClient.from_url(server.url),
            lambda client: app(client, declared=path, **acting),
        )
        page.open()
        try:
            yield page.address
        finally:
            page.close()


def see(look: Look, screen: str) -> Page:
    """Open a screen anew: with the same document, the heading of the one before would stand there for a while."""
    look.page.goto("about:blank")
    return look.go(SCREENS[screen])


@pytest.mark.once
def test_each_screen_says_how_things_are(address: str, open_look: Open) -> None:
    look = open_look(address)
    said = {name: see(look, name).text_content("h1") or "" for name in SCREENS}
    # That is far less than a tenth of what is done.
    assert said["failures"] == "98 tries failed in 10 min; 38 messages failed for good and are dead."
    assert said["workers"] == "No worker reads exports. 3 workers read the others, 39 of 48 slots busy."
    assert said["schedules"].endswith(". 1 schedule will be late.")
    assert said["settings"] == "1 of 3 queues differs from the file, and 1 queue of the file is not there."
    assert said["settings of a queue"] == "5 differences from the file."
    look.check()


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_group_is_chosen_and_stays_in_the_address(address: str, open_look: Open, by: str) -> None:
    look = open_look(address)
    page = see(look, "failures")
    assert "in send_receipt" in page.locator("pre").inner_text()
    if by == "mouse":
        page.get_by_role("row", name=re.compile("SMTPRecipientsRefused")).click()
    else:
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("SMTPRecipientsRefused")).wait_for()
    assert "group=" in page.url
    page.reload()
    page.get_by_role("heading", name=re.compile("SMTPRecipientsRefused")).wait_for()
    row = page.get_by_role("row", name=re.compile("SMTPRecipientsRefused"))
    assert row.get_attribute("aria-selected") == "true"
    assert "mira" in page.get_by_role("heading", name="Under way").locator("..").inner_text()
    look.check()


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_one_goes_from_each_screen_to_what_it_names(address: str, open_look: Open) -> None:
    look = open_look(address)
    page = see(look, "workers")
    page.get_by_role("table", name="Queues and slots").get_by_role("link", name="exports").click()
    page.wait_for_url("**/#/q/exports")
    page = see(look, "settings")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/q/mails/settings")
    page.get_by_role("table", name="Differences from the file").wait_for()
    page.keyboard.press("u")
    page.wait_for_url("**/#/q/mails")
    look.check()


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_what_is_folded_stays_open_while_others_change_settings(server: Server, address: str, open_look: Open) -> None:
    look = open_look(address)
    page = see(look, "settings of a queue")
    page.get_by_text("other settings as usual").click()
    row = page.get_by_role("row", name=re.compile("^dedup_window"))
    row.wait_for()
    with Client.from_url(server.url) as client:
        client.queue("mails").configure(max_dead=7, by="mira")
    page.get_by_role("table", name="Settings that are not as usual").get_by_role(
        "row", name=re.compile("max_dead")
    ).wait_for()
    assert row.is_visible()
    look.check()


ACTS = {
    "failures": ["retry_now", "stop"],
    "schedules": ["run_now"],
    "settings of a queue": ["limit", "resume", "weight"],
}
"""What a person with the role act may do on each screen."""


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("role", [Role.VIEW, Role.ACT], ids=["view", "act"])
def test_buttons_are_there_for_those_who_may(address: str, open_look: Open, role: Role) -> None:
    look = open_look(address, 360)
    for screen in SCREENS:
        page = see(look, screen)
        page.get_by_text("times are").first.wait_for(state="attached")
        wanted = ACTS.get(screen, []) if role is Role.ACT else []
        if wanted:
            page.locator("main [data-act]").first.wait_for()
        acts = page.locator("main [data-act]").evaluate_all("all => [...new Set(all.map((b) => b.dataset.act))].sort()")
        assert acts == wanted, screen
        look.check_width()
    look.check()


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("role", [Role.ADMIN], ids=["admin"])
def test_dead_letters_of_a_group_are_redriven_by_its_button(
    server: Server, address: str, open_look: Open, role: Role
) -> None:
    look = open_look(address)
    page = see(look, "failures")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    page.keyboard.press("Escape")
    page.get_by_role("row", name=re.compile("KeyError")).click()
    page.get_by_role("button", name="Redrive 4…").click()
    page.get_by_role("dialog").get_by_role("heading", name=re.compile("Redrive: 4 dead letters of mails")).wait_for()
    look.check()

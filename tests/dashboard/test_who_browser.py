"""The screens of tenants and messages in a real browser, of a real queue: by keyboard, live, with hostile names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest
from starlette.applications import Starlette

from shardq import AsyncClient, Client, Limits, Queue
from shardq.dashboard import app
from shardq.dashboard.people import Person, Role
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard.browser import Look, Open
from tests.dashboard.crowd import HOSTILE, tell
from tests.servers import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.once
LONG = pytest.mark.runs_in("test-all")
SCREENS: Final = ("tenants", "tenant", "message")


@pytest.fixture
def queue(client: Client) -> Queue:
    queue = client.queue("reports", streams=8, streams_per_shard=2, window=1, journal=10_000, max_deliveries=16)
    queue.declare()
    return queue


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    with serving(server, app) as address:
        yield address


@pytest.fixture
def acting(server: Server) -> Iterator[str]:
    def page(client: AsyncClient) -> Starlette:
        return app(client, auth=lambda _: Person("mira", Role.ADMIN), actions=True)

    with serving(server, page) as address:
        yield address


@contextmanager
def serving(server: Server, page: Callable[[AsyncClient], Starlette]) -> Iterator[str]:
    """Serve a page of that server, and end it with its client."""
    made = PageServer(PageSettings("127.0.0.1:0"), lambda: AsyncClient.from_url(server.url), page)
    made.open()
    try:
        yield made.address
    finally:
        made.close()


def fill(server: Server, queue: Queue) -> dict[str, str]:
    """Let one tenant flood, one be limited, one be paused, a message fail; return the addresses of the screens."""
    queue.write_many([(b"x", "lumen-labs")] * 2000 + [(b"x", "cedar-health")] * 188)
    queue.write_many([(b"x", f"tenant-{at:02}") for at in range(70)])
    queue.set_limits({"cedar-health": Limits(rate=2.0)}, seconds=3600, by="mira", note="too fast")
    queue.pause("bluefin-group", seconds=1800, by="jonas")
    failed = queue.write(b"x", shard_key="wren-energy")
    for each in queue.read_many(100):
        if each.message_id == str(failed):
            each.nack(delay=100, error=TimeoutError("no answer"))
    tell(server, queue, {"lumen-labs": (300, 90.0), "cedar-health": (60, 40.0), "tenant-01": (100, 0.2)})
    return {
        "tenants": here("/tenants"),
        "tenant": here("/tenant/lumen-labs"),
        "message": here(f"/message/{quote(str(failed), safe='')}"),
    }


def here(rest: str) -> str:
    return f"#/q/reports{rest}"


def heading(look: Look) -> str:
    return look.page.inner_text("h1")


def says(page: Page, text: str) -> None:
    """Wait until the heading has this text. (The page's policy allows no function of a test.)"""
    page.wait_for_selector(f"h1:has-text({json.dumps(text)})")


def test_all_tenants_then_one_then_a_message(server: Server, queue: Queue, address: str, open_look: Open) -> None:
    """By the keyboard alone: a search, its row, a message of it, and up again."""
    fill(server, queue)
    look = open_look(address)
    page = look.go(here("/tenants"))
    page.wait_for_selector("tbody tr")
    assert " is noisy, lumen-labs; nobody suffers: " in heading(look)
    page.keyboard.press("/")
    page.keyboard.type("cedar")
    page.locator("tbody tr").nth(1).wait_for(state="detached")
    assert "search=cedar" in page.url
    assert page.input_value("#search") == "cedar"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    says(page, "its own limit of 2/s")
    assert "Limited by mira since " in page.inner_text(".why-line")
    page.wait_for_selector("table[aria-label='Messages of this tenant'] tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".story")
    assert heading(look).startswith("It ")
    assert "hidden: start the page with --payloads" in page.inner_text("main")
    page.keyboard.press("u")
    page.wait_for_url("**/#/q/reports")
    look.check()


@LONG
def test_columns_put_all_tenants_in_order(server: Server, queue: Queue, address: str, open_look: Open) -> None:
    fill(server, queue)
    look = open_look(address)
    page = look.go(here("/tenants"))
    page.wait_for_selector("tbody tr")
    page.click("th button:has-text('p99')")
    page.wait_for_selector("th[aria-sort='descending']:has-text('p99')")
    page.wait_for_selector("tbody tr:first-child a:has-text('lumen-labs')")
    page.click("th button:has-text('In flight')")
    page.wait_for_selector("th[aria-sort='descending']:has-text('In flight')")
    assert "order=flight" in page.url
    page.reload()
    page.wait_for_selector("th[aria-sort='descending']:has-text('In flight')")
    look.check()


@LONG
def test_numbers_change_live_and_rows_stay(server: Server, queue: Queue, address: str, open_look: Open) -> None:
    fill(server, queue)
    look = open_look(address)
    page = look.go(here("/tenant/lumen-labs"))
    page.wait_for_selector(".figures")
    queue.pause("lumen-labs", seconds=600, by="jonas")
    says(page, "is paused by jonas")
    page.click("text=Look them up")
    page.wait_for_selector("dl.facts a:has-text('cedar-health'), main :text('Nobody with a backlog')")
    look.check()


@LONG
def test_actions_stand_where_they_are_needed(server: Server, queue: Queue, acting: str, open_look: Open) -> None:
    addresses = fill(server, queue)
    look = open_look(acting)
    page = look.go(addresses["tenant"])
    page.wait_for_selector(".acts button")
    labels = page.locator(".acts button").all_inner_texts()
    assert labels[:3] == ["Pause for…", "Limit until…", "Weight…"]
    assert any(each.startswith("Purge 1,9") for each in labels)
    page.goto(acting + here("/tenant/bluefin-group"))
    page.wait_for_selector(".acts button:has-text('End the pause')")
    page.goto(acting + addresses["message"])
    page.wait_for_selector(".acts button:has-text('Try now')")
    assert page.locator(".acts button").all_inner_texts() == ["Try now…", "Cancel…", "Copy id"]
    page.click("text=Cancel…")
    page.wait_for_selector("dialog[open]")
    look.check_axe()
    look.check()


def test_what_is_not_there_is_a_sentence(server: Server, queue: Queue, address: str, open_look: Open) -> None:
    look = open_look(address)
    look.go(here("/message/1732150000000-42-7"))
    says(look.page, "it was settled, or never was")
    look.page.goto(address + "#/q/missing/tenants")
    says(look.page, "There is no queue missing")
    look.check("404")


@LONG
def test_no_hostile_name_loses_its_way(server: Server, queue: Queue, address: str, open_look: Open) -> None:
    """By the links; what stands in addresses is in test_hostile_names.py."""
    for key in HOSTILE:
        queue.write(b"x", shard_key=key)
        queue.pause(key, seconds=600, by="<i>mira</i>", note="<script>alert(1)</script>")
    look = open_look(address)
    page = look.go(here("/tenants"))
    for row in range(len(HOSTILE)):
        page.locator("table:has(th[aria-sort]) tbody tr td a").nth(row).click()
        says(page, " is paused by <i>mira</i>")
        page.go_back()
    look.check()

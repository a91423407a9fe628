"""Overview and queue in a browser, against a real queue: what they show, live, and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardq import Client
from tests.dashboard import night
from tests.dashboard.browser import Look, Open, page_of, served
from tests.servers import Server

LARGE = 3000
"""Messages of the tenant that floods."""


@pytest.fixture
def address(server: Server, client: Client) -> Iterator[str]:
    with night.fallen(server, client, large=LARGE), served(page_of(server.url)) as address:
        yield address


def check(look: Look) -> None:
    look.page.wait_for_selector("#nav a[href='#/q/reports']", state="attached")
    look.check_width()
    look.check_axe()
    look.check()


@pytest.mark.once
def test_the_overview_says_which_queues_need_somebody(address: str, open_look: Open, client: Client) -> None:
    look = open_look(address)
    page = look.go()
    assert page.inner_text("h1").startswith("2 of 5 queues need you. exports has no worker since ")
    assert page.get_attribute("h1 a", "href") == "#/q/exports"
    assert page.inner_text("tr[data-key=invoices] .tag") == "paused"
    # Live: the queue that was forgotten goes on, and a number changes in its row.
    client.queue("thumbnails").write_many([(b"x", "acme")] * 93)
    page.wait_for_selector("tr[data-key=thumbnails] >> text='100'")
    check(look)


@pytest.mark.once
def test_a_queue_says_who_waits_and_what_helps(address: str, open_look: Open, client: Client) -> None:
    look = open_look(address)
    page = look.go("#/q/reports")
    assert page.inner_text("h1").startswith("lumen-labs holds 9")
    assert page.title() == "reports · shardq"
    assert page.inner_text(".reasons li[data-key=pause] .num") == "48"
    assert page.inner_text("tr[data-key='lumen-labs'] td:nth-child(3)") == f"{LARGE:,}"
    assert page.locator(".turns li").count() > 20
    assert page.inner_text(".turns li:last-child").startswith("lumen-labs \u00d7 2,")
    client.queue("reports").write_many([(b"x", "lumen-labs")] * 500)
    page.wait_for_selector(f"tr[data-key='lumen-labs'] >> text='{LARGE + 500:,}'")
    check(look)
    client.queue("reports").delete(expected=None)
    page.wait_for_selector("h1 >> text='There is no queue reports.'")
    look.check()


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_a_chart_is_read_with_the_pointer_and_as_numbers(address: str, open_look: Open) -> None:
    look = open_look(address)
    page = look.go("#/q/reports")
    figure = page.locator("figure").first
    figure.scroll_into_view_if_needed()
    assert figure.locator(".at").inner_text() == "now"
    box = figure.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    look.until("document.querySelector('figure .at').textContent !== 'now'")
    page.mouse.move(1, 1)
    look.until("document.querySelector('figure .at').textContent === 'now'")
    figure.locator("summary").click()
    assert figure.locator("tbody tr").count() == 5
    check(look)


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_a_search_finds_a_queue_and_stands_in_the_address(address: str, open_look: Open) -> None:
    look = open_look(address)
    page = look.go("#/?search=rep")
    look.until("document.querySelectorAll('main tbody tr').length === 1")
    page.fill("#find-queue", "o")
    look.until("document.querySelectorAll('main tbody tr').length === 3")
    page.fill("#find-queue", "")
    look.until("document.querySelectorAll('main tbody tr').length === 5")
    look.until("location.hash === '#/'")
    look.check()

"""The form by which a person acts on many messages: on Queue, Tenants and Tenant, with what it says as the filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from shardq import Client
from shardq.dashboard.people import Person, Role
from shardq.model.failed import FailedTry
from tests.dashboard.browser import Open, page_of, served
from tests.dashboard.evening import FRAMES, bury, fail
from tests.dashboard.layout import check_layout
from tests.servers import Server
from tests.waiting import eventually

LATE: Final = FailedTry("no answer", "TimeoutError", "", FRAMES)
LOST: Final = FailedTry("'vat_id'", "KeyError", "", FRAMES)
ROLES: Final = {
    Role.ADMIN: ["cancel", "delete", "redrive", "retry_now"],
    Role.ACT: ["redrive", "retry_now"],
    Role.VIEW: [],
}


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url) as client:
        queue = client.queue("mails", streams=2)
        queue.declare()
        fail(queue, 12, "mail.send", LATE)
        bury(queue, 6, "mail.send", LOST)
        bury(queue, 3, "mail.bill", LOST)
        yield client


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("role", ROLES)
def test_it_offers_what_the_role_may(server: Server, client: Client, open_look: Open, role: Role) -> None:
    with served(page_of(server.url, auth=lambda _: Person("mira", role), actions=True)) as address:
        look = open_look(address, 360)
        for screen in ("#/q/mails", "#/q/mails/tenants", "#/q/mails/tenant/tenant-1"):
            page = look.go(screen)
            page.wait_for_selector("main section")
            page.wait_for_selector("#foot >> text=mira", state="attached")
            acts = page.eval_on_selector_all(".filter [data-act]", "(all) => all.map((each) => each.dataset.act)")
            assert sorted(acts) == ROLES[role], screen
            if acts:
                page.click(".filter summary")
                check_layout(look)
                look.check_axe()
        look.check()


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_what_it_says_is_what_is_done(server: Server, client: Client, open_look: Open) -> None:
    queue = client.queue("mails")
    with served(page_of(server.url, auth=lambda _: Person("mira", Role.ADMIN), actions=True)) as address:
        look = open_look(address)
        page = look.go("#/q/mails")
        page.click(".filter summary")
        page.click(".filter [data-act=cancel]")
        page.wait_for_selector("#act [role=alert] >> text=Say which messages")
        page.click("#act [data-close]")
        page.fill(".filter [name=task]", "mail.bill")
        page.fill(".filter [name=error]", "KeyError")
        page.click(".filter [data-act=delete]")
        page.wait_for_selector("#act h2 >> text=Delete: 3 dead letters of mails")
        page.fill("#act [name=typed]", "mails")
        page.click("#act [type=submit]")
        eventually(lambda: queue.stats().dead == 6, 60, what="the other dead letters alone")
        page.click("#act [data-close]")
        page.fill(".filter [name=task]", "")
        page.fill(".filter [name=error]", "")
        page.fill(".filter [name=shard_key]", "tenant-1")
        page.select_option(".filter [name=state]", "retrying")
        page.click(".filter [data-act=cancel]")
        page.wait_for_selector("#act h2 >> text=/Cancel: [12] messages? of mails/")
        look.check("400 (Bad Request)")

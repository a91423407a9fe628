"""Every screen with none, one and three of each thing: one is never spoken of as several, nor several as one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

import pytest

from shardq import Client, Limits, Queue
from shardq.dashboard.people import Person, Role
from shardq.model.call import Call
from shardq.model.failed import FailedTry
from tests.dashboard.browser import Open, page_of, served
from tests.dashboard.scenery import beats
from tests.servers import Server

MANY: Final = 3
NOUNS: Final = (
    "message", "tenant", "queue", "slot", "worker", "dead letter", "group", "schedule", "setting", "call", "part",
    "stream", "byte", "limit", "pause", "weight", "plan", "kind", "version", "lease", "event",
)  # fmt: skip
NOUN: Final = "|".join(NOUNS)
OF_SEVERAL: Final = re.compile(rf"\b1 (?:(?:{NOUN})s|tries|deliveries|wait|are|were|need|have|come|stand|others)\b")
OF_ONE: Final = re.compile(
    rf"(?<![-\d.,=])(?<!stream )\b(?:0|[2-9]|\d\d+) (?:{NOUN}|try|delivery|waits|is|was|needs|has|comes)\b"
)
LATE: Final = FailedTry("no answer", "TimeoutError", "", "shop/smtp.py:88 in send")


def each(queue: Queue, count: int) -> list[str]:
    """Let there be so many of each thing. Return ids of messages: one that waits, is retried, and is dead."""
    ids: list[str] = []
    names = [f"tenant-{letter}" for letter in "abc"[:count]]
    for how in ("dead", "retried", "waits"):
        ids += [str(queue.write(Call("mail.send", {"to": "x"}), shard_key=name)) for name in names][:1]
        for delivery in queue.read_many(100) if how != "waits" else ():
            delivery.reject(LATE) if how == "dead" else delivery.nack(delay=3600, error=LATE)
    for name in names:
        queue.set_limits({f"limited-{name}": Limits(rate=1)}, by="mira")
        queue.set_weights({f"heavy-{name}": 2}, by="mira")
        queue.pause(f"paused-{name}", seconds=3600, by="mira")
        queue.set_plan(f"plan-{name}", rate=9)
        queue.schedules.add(f"daily-{name}", Call("mail.digest", {}), shard_key=name, cron="0 6 * * *")
    return ids


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url) as client:
        yield client


def wrong(text: str) -> list[str]:
    """What a text says of one as of several, or of several as of one."""
    return [
        text[max(0, found.start() - 30) : found.end() + 20]
        for each in (OF_SEVERAL, OF_ONE)
        for found in each.finditer(text)
    ]


def test_what_is_wrong_is_found() -> None:
    for text in ("1 messages wait", "3 message waits", "0 tenant", "1 are dead"):
        assert wrong(text), text
    assert not wrong("1 message waits, 3 messages wait, 0 tenants, 1 of 3 queues needs you")


@pytest.mark.once
@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("count", [0, 1, MANY])
def test_one_is_one_and_several_are_several(server: Server, client: Client, open_look: Open, count: int) -> None:
    queue = client.queue("jobs", streams=2, max_schedules=10, journal=100)
    queue.declare()
    ids = each(queue, count)
    beats(server, queue, count, slots=count, busy=0.0, done=count, failed=0)
    screens = ["#/", "#/workers", "#/schedules", "#/settings", *(f"#/q/jobs{rest}" for rest in _SCREENS)]
    screens += [f"#/q/jobs/message/{quote(each, safe='')}" for each in ids]
    with served(page_of(server.url, auth=lambda _: Person("mira", Role.ADMIN), actions=True)) as address:
        look = open_look(address)
        for screen in screens:
            page = look.go(screen)
            page.wait_for_selector("main .answer")
            page.wait_for_selector("#nav a[href='#/q/jobs']", state="attached")
            texts = (
                page.inner_text("body"),
                *page.eval_on_selector_all("[aria-label]", "(all) => all.map((x) => x.ariaLabel)"),
            )
            assert [found for text in texts for found in wrong(text)] == [], screen
            assert not re.search(r"\b0 messages…|\b0\.0 %", page.inner_text("main")), screen
        look.check()


_SCREENS: Final = ("", "/tenants", "/tenant/tenant-a", "/failures", "/settings")

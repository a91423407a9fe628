"""A tour of the page: every screen of one night, each with the actions that it offers to a person who may do all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from shardq import Client, Delivery, Limits, Queue, Where
from shardq.dashboard.people import Person, Role
from shardq.dashboard.scenes.failures import key_of
from shardq.model.call import Call
from shardq.model.failed import FailedTry
from shardq.outlook.failing import united
from tests.dashboard import night
from tests.dashboard.browser import page_of, served
from tests.dashboard.evening import FRAMES, bury, fail
from tests.servers import Server, available

FILE: Final = """
[queues.mails]
streams = 2
visibility_timeout = 60

[queues.mails.limits]
"cedar-health" = "gold"

[queues.mails.plans.gold]
rate = 20

[queues.later]
streams = 4
"""
SCREENS: Final[Mapping[str, tuple[str, ...]]] = {
    "overview": (),
    "queue": ("pause",),
    "queue without worker": ("pause",),
    "queue paused": ("resume",),
    "tenants": (),
    "tenant": ("limit", "pause", "plan", "purge", "weight"),
    "tenant paused": ("limit", "plan", "purge", "resume", "weight"),
    "failures": ("delete", "redrive", "stop"),
    "failures retried": ("cancel", "retry_now", "stop"),
    "message dead": ("delete", "redrive"),
    "message retried": ("cancel", "retry_now"),
    "workers": (),
    "schedules": ("run_now",),
    "settings": (),
    "settings of a queue": ("limit", "resume", "weight"),
    "not there": (),
}
"""The screens, with the actions that each offers."""


class Tour(NamedTuple):
    """The page of that night, and where its screens are."""

    address: str
    client: Client
    screens: Mapping[str, str]


@contextmanager
def toured(folder: Path) -> Iterator[Tour]:
    """It is night on a server of its own for the time of a `with`."""
    kind = next(iter(available()), None)
    with ExitStack() as stack:
        server = stack.enter_context(Server(kind))
        client = stack.enter_context(Client.from_url(server.url))
        stack.enter_context(night.fallen(server, client, large=3000))
        dead, retried = _furnish(client)
        path = folder / "queues.toml"
        path.write_text(FILE)
        page = page_of(
            server.url, auth=lambda _: Person("mira", Role.ADMIN), actions=True, payloads=True, declared=path
        )
        yield Tour(stack.enter_context(served(page)), client, _addresses(client, dead, retried))


DAY: Final = 86_400.0
"""Seconds for which all lasts that ends by itself: the tour may take more than an hour on a busy machine."""


def _furnish(client: Client) -> tuple[str, str]:
    """Add what that night has not: dead letters, schedules, plans, an action. Return a dead and a retried message."""
    mails, exports = client.queue("mails"), client.queue("exports")
    mails.configure(max_schedules=100, journal=10_000, by="jonas", note="before the sale")
    exports.configure(max_schedules=10)
    late = FailedTry("TimeoutError (send shop/smtp.py:88)", "TimeoutError", "", FRAMES)
    lost = FailedTry("550 mailbox unavailable", "SMTPRecipientsRefused", "", FRAMES)
    bury(mails, 33, "mail.send_digest", lost)
    dead: Any = mails.write(Call("mail.send_digest", {"to": "somebody"}), shard_key="wren-co", headers={"trace": "a1"})
    _each(mails, lambda each: each.reject(lost))
    fail(mails, 12, "mail.send_receipt", late)
    retried: Any = mails.write(Call("mail.send_receipt", {"n": 812}), shard_key="wren-co")
    _each(mails, lambda each: each.nack(delay=DAY, error=late))
    mails.set_plan("gold", rate=50, weight=3)
    mails.set_limits({"cedar-health": Limits(rate=2)}, seconds=DAY, by="mira", note="their import floods us")
    mails.set_limits({"wren-energy": "gold"})
    client.queue("reports").set_plan("standard", rate=500)
    mails.set_weights({"wren-energy": 5}, by="mira")
    for queue in (mails, client.queue("reports")):
        queue.pause("bluefin-group", seconds=DAY, by="mira")
    for name, cron in (("digest", "0 6 * * 1-5"), ("year-end-dry-run", "0 3 1 12 *")):
        mails.schedules.add(name, Call(f"mail.{name}", {}), shard_key="cron", cron=cron, paused=name != "digest")
    exports.schedules.add("sync-crm", Call("exports.sync", {}), shard_key="cron", every=900, catch_up="once")
    mails.redrive(Where(error="SMTPRecipientsRefused"), rate=0.01, by="mira", note="the mail server is back")
    return str(dead), str(retried)


def _each(queue: Queue, does: Callable[[Delivery], object]) -> None:
    while deliveries := queue.read_many(100):
        for each in deliveries:
            does(each)


def _addresses(client: Client, dead: str, retried: str) -> dict[str, str]:
    groups = {each.error_type: key_of(each) for each in united(client.queue("mails").failures())}
    return {
        "overview": "#/",
        "queue": "#/q/reports",
        "queue without worker": "#/q/exports",
        "queue paused": "#/q/invoices",
        "tenants": "#/q/reports/tenants",
        "tenant": "#/q/reports/tenant/lumen-labs",
        "tenant paused": "#/q/reports/tenant/bluefin-group",
        "failures": f"#/q/mails/failures?group={groups['SMTPRecipientsRefused']}",
        "failures retried": f"#/q/mails/failures?group={groups['TimeoutError']}",
        "message dead": f"#/q/mails/message/{quote(dead, safe='')}",
        "message retried": f"#/q/mails/message/{quote(retried, safe='')}",
        "workers": "#/workers",
        "schedules": "#/schedules",
        "settings": "#/settings",
        "settings of a queue": "#/q/mails/settings",
        "not there": "#/q/nobody",
    }

"""One evening: queues of which one fails, one is paused, one has no worker; with schedules, limits and a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from shardq import Client, Limits, Queue, Where
from shardq.model.call import Call
from shardq.model.failed import FailedTry
from tests.dashboard.scenery import beats, write_slots_of
from tests.servers import Server

FRAMES: Final = "shop/mail.py:41 in send_receipt\nshop/smtp.py:88 in send"
FILE: Final = """
[queues.mails]
streams = 4
visibility_timeout = 60
max_schedules = 100

[queues.mails.limits]
"cedar-health" = "gold"

[queues.mails.plans.gold]
rate = 20

[queues.later]
streams = 4
"""


def evening(server: Server, client: Client, folder: Path) -> Path:
    """Make what there is that evening. Return the file that declares it otherwise."""
    mails = client.queue("mails", streams=4, max_schedules=100, journal=1000)
    exports, invoices = client.queue("exports", streams=2, max_schedules=10), client.queue("invoices", streams=2)
    for queue in (mails, exports, invoices):
        queue.declare()
    fail(mails, 60, "mail.send_receipt", FailedTry("TimeoutError (send shop/smtp.py:88)", "TimeoutError", "", FRAMES))
    bury(mails, 33, "mail.send_digest", FailedTry("550 mailbox unavailable", "SMTPRecipientsRefused", "", FRAMES))
    bury(mails, 4, "mail.send_receipt", FailedTry("'vat_id'", "KeyError", "", FRAMES))
    exports.write_many([(Call("exports.sync", {}), f"tenant-{number % 5}") for number in range(42)])
    invoices.write_many([(Call("invoices.collect", {}), f"tenant-{number % 9}") for number in range(26)])
    invoices.pause(by="jonas", note="until the VAT fix is out")
    mails.set_plan("gold", rate=50, weight=3)
    mails.set_limits({"cedar-health": Limits(rate=2)}, seconds=5400, by="mira", note="their import floods us")
    mails.set_limits({"wren-energy": "gold", "a" * 400: Limits(max_in_flight=3)})
    mails.set_weights({"wren-energy": 5}, by="mira")
    mails.pause("bluefin-group", seconds=3600, by="mira")
    mails.configure(max_len=50_000, by="jonas", note="before the sale")
    for name, cron in (("digest", "0 6 * * 1-5"), ("year-end-dry-run", "0 3 1 12 *")):
        mails.schedules.add(name, Call(f"mail.{name}", {}), shard_key="cron", cron=cron, paused=name != "digest")
    mails.schedules.add("usage-rollup", Call("mail.rollup", {}), shard_key="acct-7", every=300, catch_up="once")
    write_slots_of(mails, "usage-rollup", *range(2100, 0, -300))
    for number in range(6):
        delivery = mails.read(block=60)
        delivery.reject("no such table") if number == 3 else delivery.ack()
    exports.schedules.add("sync-crm", Call("exports.sync", {}), shard_key="cron", cron="*/15 * * * *")
    _workers(server, mails, invoices)
    mails.redrive(Where(error="SMTPRecipientsRefused"), rate=1, by="mira", note="the mail server is back")
    path = folder / "queues.toml"
    path.write_text(FILE)
    return path


def _workers(server: Server, mails: Queue, invoices: Queue) -> None:
    now = int(mails.stats().time * 1000)
    known: dict[str, Any] = {
        "slots": 16, "host": "mails-5b7c4-2hkfz", "task": "mail.send_receipt", "message": "1-1-o", "failed": 104,
        "done": 1849, "since": lambda number: now - (431_000 if number == 1 else 2_000),
        "busy": lambda number: 16.0 - 3 * number, "heard": lambda number: now - (75_000 if number == 3 else 2_000),
    }  # fmt: skip
    beats(server, mails, 4, **known)
    beats(server, invoices, 1, host="invoices-84d-kk2bn", busy=0, done=0, failed=0)


def fail(queue: Queue, count: int, task: str, error: FailedTry) -> None:
    """Let so many tries of a task fail, which are tried again later."""
    queue.write_many([(Call(task, {"n": number}), f"tenant-{number % 9}") for number in range(count)])
    while deliveries := queue.read_many(100):
        queue.nack_many(deliveries, delay=3600, error=error)


def bury(queue: Queue, count: int, task: str, error: FailedTry) -> None:
    """Let so many messages of a task die."""
    queue.write_many([(Call(task, {"n": number}), f"tenant-{number % 3}") for number in range(count)])
    while deliveries := queue.read_many(100):
        queue.reject_many(deliveries, error)

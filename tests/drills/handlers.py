"""What the workers of the drills run: `shardq worker tests.drills.handlers:NAME`."""

from __future__ import annotations

import time

from shardq import Delivery, Reject
from shardq.tasks import Tasks

WORKS = 0.02
"""Seconds of a job."""

mails: Tasks[None] = Tasks("mails")


def export(delivery: Delivery) -> None:
    """Export something."""
    time.sleep(WORKS)


@mails.task(name="mail.send_receipt")
def send_receipt(number: int) -> None:
    """Send a receipt, by a server that does not answer."""
    raise TimeoutError("smtp.example took longer than 10 s")


@mails.task(name="mail.send_digest")
def send_digest(number: int) -> None:
    """Send a digest, which goes well."""


def crawl(delivery: Delivery) -> None:
    """Take a second."""
    time.sleep(1)


def dig(delivery: Delivery) -> None:
    """Take longer than it takes others to notice that a worker stands still."""
    time.sleep(5)


def refuse(delivery: Delivery) -> None:
    """Want none of it."""
    raise Reject("not in this shop")

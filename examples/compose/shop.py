"""A small shop for the Compose file: `shardq worker shop:tasks` works, and `python shop.py` writes until it is ended.

Eight tenants send receipts and make reports. One in 75 receipts fails at first, and goes well when it is tried again.
Now and then one tenant floods.
"""

from __future__ import annotations

import os
import random
import time

from shardq import Client, Message
from shardq.tasks import Tasks

TENANTS = [f"tenant-{number}" for number in range(8)]
ROUNDS = 400
"""Rounds from one flood to the next."""

tasks: Tasks[None] = Tasks("shop")


@tasks.task(name="mail.receipt", retries=3)
def receipt(number: int) -> None:
    """Send a receipt."""
    time.sleep(0.01)
    if number % 50 == 0 and tasks.delivery.count == 1:
        raise TimeoutError("the mail server did not answer")


@tasks.task(name="report.make")
def report(number: int) -> None:
    """Make a report."""
    time.sleep(random.uniform(0.05, 0.2))


def main() -> None:
    with Client.from_url(os.environ.get("SHARDQ_URL", "redis://localhost:6379")) as client:
        queue = client.queue(tasks)
        number = 0
        while True:
            for tenant in TENANTS:
                number += 1
                task = report if number % 4 == 0 else receipt
                queue.write(task.call(number), shard_key=tenant)
            if number % (ROUNDS * len(TENANTS)) == 0:
                queue.write_many([Message(report.call(each), "lumen-labs") for each in range(600)])
            time.sleep(random.expovariate(5))


if __name__ == "__main__":
    main()

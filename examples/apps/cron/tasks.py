"""Schedules: no process but the workers, and each time is one call, however many of them there are."""

import os
from pathlib import Path

from shardq.tasks import Tasks

URL = os.environ.get("SHARDQ_URL", "redis://localhost:6379")
BEATS = Path("beats")
tasks: Tasks[None] = Tasks("beats")


@tasks.every(seconds=1)
def beat() -> None:
    with BEATS.open("a") as file:
        file.write(tasks.delivery.headers["slot"] + "\n")


@tasks.cron("0 3 * * *", tz="Europe/Berlin", catch_up="once")
def cleanup() -> None:
    BEATS.unlink(missing_ok=True)

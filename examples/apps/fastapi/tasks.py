"""The tasks, which web server and worker both import."""

import os
from dataclasses import dataclass
from datetime import date, timedelta

from shardq.tasks import Tasks

URL = os.environ.get("SHARDQ_URL", "redis://localhost:6379")
tasks: Tasks[None] = Tasks("reports", result_ttl=600)


@dataclass
class Report:
    account: str
    last_day: date


@tasks.task(retries=3, time_limit=60)
async def report(account: str, first_day: date, days: int) -> Report:
    return Report(account, first_day + timedelta(days=days - 1))

"""Two queues with the same tasks: what somebody waits for, and what may take its time."""

import os

from shardq.tasks import Tasks

URL = os.environ.get("SHARDQ_URL", "redis://localhost:6379")
tasks: Tasks[None] = Tasks("reports", result_ttl=600)
urgent: Tasks[None] = Tasks("urgent", result_ttl=600)


@tasks.task
async def report(account: str) -> str:
    return f"a report for {account}, from {tasks.delivery.queue.name}"

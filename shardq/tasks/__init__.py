"""Tasks: functions that workers run by their names, with arguments and results that type checkers know.

    tasks = Tasks("reports", result_ttl=600)

    @tasks.task(retries=3)
    async def report(first: date, last: date) -> Totals: ...

    job = await client.queue(tasks).write(report.call(first, last), shard_key=tenant)
    totals = await job.result(timeout=30)

A call is a payload, and `Tasks` is a handler: `AsyncWorker(client.queue(tasks), tasks)`, or `shardq worker
app.tasks:tasks`. docs/tasks.md tells the story.
"""

from __future__ import annotations

from shardq.model.call import Call
from shardq.tasks.errors import PartlyFailed
from shardq.tasks.several import Several
from shardq.tasks.task import BatchTask, Task
from shardq.tasks.tasks import Tasks

__all__ = ["BatchTask", "Call", "PartlyFailed", "Several", "Task", "Tasks"]

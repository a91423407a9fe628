"""Celery: `celery -A benchmarks.workers.celery_jobs worker`."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.workers.counting import URL, work

app = Celery("jobs", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=os.environ.get("BENCH_ACKS") == "late",
    worker_prefetch_multiplier=32,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
job = app.task(work, name="work")


def enqueue(payloads: list[str]) -> None:
    """One call each."""
    for payload in payloads:
        job.delay(payload)

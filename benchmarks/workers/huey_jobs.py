"""huey: `huey_consumer benchmarks.workers.huey_jobs.app`."""

from __future__ import annotations

from huey import RedisHuey

from benchmarks.workers.counting import URL, work

app = RedisHuey("jobs", url=URL, results=False)
job = app.task()(work)


def enqueue(payloads: list[str]) -> None:
    """One call each."""
    for payload in payloads:
        job(payload)

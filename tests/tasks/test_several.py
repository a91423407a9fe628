"""One worker of several queues, each with Tasks of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardq import Client, ConfigError, Worker
from shardq.backoff import Constant
from shardq.tasks import Several, Tasks
from tests.tasks.conftest import Work


def test_each_queue_has_its_own_tasks_lifespan_and_retries(client: Client, work: Work) -> None:
    """Both declare a task of the same name: that of its queue is meant."""
    opened: list[str] = []

    def lifespan(name: str) -> Any:
        @contextmanager
        def resources() -> Iterator[str]:
            opened.append(name)
            yield name
            opened.append(f"{name} is closed")

        return resources

    reports: Tasks[str] = Tasks("reports", result_ttl=60, lifespan=lifespan("reports"))
    mails: Tasks[str] = Tasks("mails", result_ttl=60, lifespan=lifespan("mails"))

    @reports.task(name="send", retries=0)
    def report(number: int) -> str:
        if number < 0:
            raise ValueError
        return f"{reports.resources} {number}"

    @mails.task(name="send", retries=2, backoff=Constant(0), time_limit=60)
    def mail(number: int) -> str:
        if number < 0:
            raise ValueError
        return f"{mails.resources} {number}"

    pairs = [(client.queue(reports), report, "reports"), (client.queue(mails), mail, "mails")]
    jobs = [(queue.write(task.call(1), shard_key="t"), f"{name} 1") for queue, task, name in pairs]
    for queue, task, _ in pairs:
        queue.write(task.call(-1), shard_key="t")
    work(Several(reports, mails), {reports: 3, mails: 1}, concurrency=4)
    assert [(job.result(timeout=0), text) for job, text in jobs] == [(text, text) for _, text in jobs]
    assert [[letter.count for letter in queue.dead()] for queue, _, _ in pairs] == [[1], [3]]
    assert opened == ["reports", "mails", "mails is closed", "reports is closed"]


def test_a_call_that_its_own_queue_does_not_know_is_looked_for_in_the_others(client: Client, work: Work) -> None:
    reports: Tasks[None] = Tasks("reports", result_ttl=60)
    mails: Tasks[None] = Tasks("mails", result_ttl=60)
    mails.task(name="mail")(lambda: "sent")
    queues = [client.queue(reports), client.queue("third", result_ttl=60)]
    jobs = [queue.write(["mail", {}], shard_key="t") for queue in queues]
    nobody = queues[0].write(["nobody", {}], shard_key="t")
    work(Several(reports, mails), {reports: 1, mails: 1, "third": 1}, concurrency=3)
    assert [queue.result(job, timeout=0) for queue, job in zip(queues, jobs, strict=True)] == ["sent", "sent"]
    assert queues[0].status(nobody).state == "delayed", "it is given back, to another release"


def test_what_cannot_be_several(client: Client) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    other: Tasks[None] = Tasks("others")
    with pytest.raises(ConfigError, match="two Tasks are of queue 'jobs'"):
        Several(tasks, Tasks("jobs"))
    with pytest.raises(ConfigError, match="needs Tasks"):
        Several()
    with pytest.raises(ConfigError, match="Tasks"):
        Several("jobs")  # type: ignore[arg-type]
    queues = {client.queue(tasks): 1, client.queue(other): 1}
    with pytest.raises(ConfigError, match="start a worker for each"):
        Worker(queues, Several(tasks, other), run_in="processes")


def test_each_queue_has_its_own_schedules() -> None:
    reports: Tasks[None] = Tasks("reports")
    mails: Tasks[None] = Tasks("mails")

    @reports.every(minutes=5)
    @reports.task(name="refresh")
    def refresh() -> None: ...

    @mails.every(minutes=5)
    @mails.task(name="remind")
    def remind() -> None: ...

    several = Several(reports, mails)
    found = {queue: [each.name for each in schedules] for queue, schedules in several.schedules().items()}
    assert found == {"reports": ["refresh"], "mails": ["remind"]}

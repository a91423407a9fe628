"""The screen of workers as the page gets it: who works, who reads what, who is gone; bounded whatever there is."""

from __future__ import annotations

import threading

import pytest

from shardq import Client, Delivery, Queue
from tests.dashboard.scenery import beats, line_of, look_at, more_of, told, working
from tests.servers import Server


def test_an_empty_redis_is_no_bad_news(server: Server) -> None:
    found = look_at(server.url, "workers")
    assert (found["said"]["tone"], found["said"]["line"][0]) == ("good", ["No worker", True])


def test_nobody_works_and_nothing_waits(server: Server, queue: Queue) -> None:
    found = look_at(server.url, "workers")
    assert (line_of(found), found["workers"], found["gone"]) == ("No worker was heard in the last 30 s.", [], [])
    assert found["said"]["tone"] == "warn"
    (row,) = found["queues"]
    assert (row["queue"], row["workers"], row["waiting"], row["unread"]) == ("jobs", 0, 0, False)


def test_a_worker_is_shown_with_what_it_works_on(server: Server, client: Client, queue: Queue) -> None:
    leave = threading.Event()

    def handle(_: Delivery) -> None:
        assert leave.wait(120)

    queue.write_many([(b"x", "acme")] * 3)
    other = client.queue("other", create=True)
    other.write(b"x", shard_key="acme")
    try:
        with working(client, handle, concurrency=2):
            found = told(
                lambda: look_at(server.url, "workers"), lambda scene: scene["workers"] and scene["workers"][0]["busy"]
            )
            leave.set()
    finally:
        leave.set()
    assert line_of(found).startswith("No worker reads other. 1 worker reads the others, ")
    assert found["said"]["tone"] == "bad"
    assert found["said"]["line"][0] == ["No worker", "bad"]
    (row,) = found["workers"]
    assert (row["queues"], row["slots"], row["message"]["queue"]) == (["jobs"], 2, "jobs")
    assert row["longest"] is not None
    assert [(each["queue"], each["workers"], each["unread"]) for each in found["queues"]] == [
        ("other", 0, True), ("jobs", 1, False),
    ]  # fmt: skip
    after = told(lambda: look_at(server.url, "workers"), lambda scene: scene["gone"])
    assert (after["gone"][0]["how"], after["gone"][0]["ended"], after["workers"]) == ("ended in order", True, [])


def test_a_job_that_takes_unusually_long_is_told_first(server: Server, queue: Queue) -> None:
    now = int(queue.stats().time * 1000)
    beats(
        server, queue, 3, busy=lambda number: 8.0 - number, task="reports.year_end", message="1-1-o",
        since=lambda number: now - (430_000 if number == 2 else 5_000),
    )  # fmt: skip
    found = look_at(server.url, "workers")
    assert [each["id"] for each in found["workers"]] == ["worker-2", "worker-0", "worker-1"]
    assert more_of(found) == "worker-2 works on one reports.year_end for 7 min. "
    assert found["workers"][0]["unusual"] >= 430
    assert found["workers"][1]["unusual"] == 0


def test_one_that_is_silent_is_gone_with_the_memory_that_it_had(server: Server, queue: Queue) -> None:
    now = int(queue.stats().time * 1000)
    beats(server, queue, 1, heard=now - 60_000)
    found = look_at(server.url, "workers")
    assert found["workers"] == []
    assert found["gone"][0]["how"] == "gone, memory 1 MB"


@pytest.mark.runs_in("test-all")
def test_ten_thousand_workers_are_a_bounded_answer(server: Server, queue: Queue) -> None:
    now = int(queue.stats().time * 1000)
    beats(server, queue, 10_000, host="%22" * 21, heard=lambda number: now - (60_000 if number % 10 == 0 else 0))
    found = look_at(server.url, "workers")
    assert line_of(found) == "9,000 workers work, 18,000 of 72,000 slots busy."
    assert len(found["workers"]) + found["more"] == 9_000
    assert len(found["gone"]) + found["more_gone"] == 1_000


@pytest.mark.runs_in("test-all")
def test_many_queues_with_long_names_are_a_bounded_answer(server: Server, client: Client) -> None:
    names = [f"{number:03}-{'q' * 196}" for number in range(300)]
    for name in names:
        client.queue(name, streams=1, create=True).declare()
    for name in names[:5]:
        beats(server, client.queue(name, create=False), 100, busy=1.0)
    found = look_at(server.url, "workers")
    assert len(found["queues"]) + found["more_queues"] == 300
    assert len(found["workers"]) + found["more"] == 100
    assert found["workers"][0]["more"] == 0

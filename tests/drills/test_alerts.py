"""Each alert of examples/monitoring fires when what it is for happens to real processes, with a real Prometheus.

Prometheus scrapes each second. All bounds are those of the file, but times are seconds instead of minutes and hours:
`prometheus.HURRY` lists them. That the times are right is shown by promtool's tests
(tests/examples/test_monitoring.py), that none fires while all is well by test_on_one_machine.py.
"""

from __future__ import annotations

import re
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shardq import Message, OutOfMemory
from tests.drills.conftest import Watch
from tests.drills.handlers import send_digest, send_receipt
from tests.drills.prometheus import Prometheus, hurried
from tests.parts import PROMETHEUS
from tests.servers import free_ports
from tests.waiting import eventually

pytestmark = [
    pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(300), PROMETHEUS.needed,
]  # fmt: skip


def watched(it: Watch, folder: Path, **jobs: str) -> Prometheus:
    """Measure the queues, and scrape that and what else there is."""
    _, address = it.metrics()
    return Prometheus(it.stack, folder, {"metrics": [address]} | {job: [them] for job, them in jobs.items()}, hurried())


def working(it: Watch, handler: str, *words: str) -> str:
    """Start a worker that tells what it measures, and where it does."""
    [port] = free_ports(1)
    it.work(handler, "--metrics", f"127.0.0.1:{port}", *words)
    return f"127.0.0.1:{port}"


def test_no_worker(watch: Watch, tmp_path: Path) -> None:
    exports = watch.client.queue("exports", create=True)
    exports.declare()
    watch.work("export", "-q", "exports", "-c", "4")
    watch.heard(1)
    seen = watched(watch, tmp_path)
    watch.kill_all_workers()
    exports.write_many([Message(number, f"t{number % 7}") for number in range(420)])
    seen.fires("NoWorker", r"^exports has no worker: 420 wait\.$")
    watch.work("export", "-q", "exports", "-c", "64")
    seen.calms("NoWorker")


def test_oldest_age(watch: Watch, tmp_path: Path) -> None:
    queue = watch.client.queue("reports", create=True)
    queue.write_many([Message(number, "t") for number in range(10)])
    seen = watched(watch, tmp_path)
    seen.fires("OldestAge", r"^In reports a message has waited for \d+\.?\d*s\.$")
    watch.work("export", "-q", "reports", "-c", "16")
    seen.calms("OldestAge")


def test_never_drains(watch: Watch, tmp_path: Path) -> None:
    queue = watch.client.queue("reports", create=True)
    queue.write_many([Message(number, f"t{number % 3}") for number in range(6_000)])
    watch.work("crawl", "-q", "reports", "-c", "1")  # a job a second
    seen = watched(watch, tmp_path)
    seen.fires("NeverDrains", r"^reports does not drain: ", within=150)
    hours = 'shardq_queue_drain_time_seconds{queue="reports"} > 3600 < Inf'
    eventually(lambda: seen.ask(hours), 90, every=0.2, what="that it takes hours")
    queue.purge()
    seen.calms("NeverDrains")


def test_more_comes_than_goes(watch: Watch, tmp_path: Path) -> None:
    queue = watch.client.queue("reports", create=True)
    queue.declare()
    watch.work("crawl", "-q", "reports", "-c", "2")
    watch.heard(1)
    seen = watched(watch, tmp_path)
    rule = next(each for each in hurried()["groups"][0]["rules"] if each["alert"] == "ShardqNeverDrains")
    grows = rule["expr"].replace("> 3600", "> Inf")  # not by the drain time, which somebody may have no right to know
    numbers = count()

    def is_said() -> list[Any]:
        queue.write_many([Message(next(numbers), "t") for _ in range(3)])
        return seen.ask(grows)

    assert eventually(is_said, 90, every=0.5, what="that more comes than goes")[0]["metric"] == {"queue": "reports"}


def test_failing(watch: Watch, tmp_path: Path) -> None:
    queue = watch.client.queue("mails", create=True)
    address = working(watch, "mails", "-c", "8")
    seen = watched(watch, tmp_path, worker=address)
    numbers = count()

    def fails() -> str:
        calls = (send_receipt, send_digest)
        queue.write_many([Message(task.call(next(numbers)), "t") for task in calls for _ in range(5)])
        return seen.firing().get("ShardqFailing", "")

    told = eventually(fails, 90, every=0.5, what="that ShardqFailing fires")
    assert told == "mail.send_receipt fails: 100% of the tries in mails."


def test_dead_grows(watch: Watch, tmp_path: Path) -> None:
    queue = watch.client.queue("mails", create=True)
    queue.declare()
    address = working(watch, "refuse", "-q", "mails")
    seen = watched(watch, tmp_path, worker=address)
    eventually(lambda: seen.ask('shardq_queue_dead{queue="mails"} == 0'), every=0.2, what="that none is dead")
    queue.write_many([Message(number, "t") for number in range(12)])
    seen.fires("DeadGrows", r"^12 messages of mails became dead letters in 10 minutes\.$")
    counted = 'sum by (queue) (shardq_message_dead_lettered_total{queue="mails"}) == 12'
    eventually(lambda: seen.ask(counted), every=0.2, what="that the worker counts them, too")


def test_leases_lost(watch: Watch, tmp_path: Path) -> None:
    """A worker stands still for longer than its leases last, again and again, and others do what it had."""
    queue = watch.client.queue("reports", visibility_timeout=2)
    queue.declare()
    address = working(watch, "dig", "-q", "reports", "-c", "8")
    seen = watched(watch, tmp_path, worker=address)
    [stands] = watch.workers
    numbers = count()

    def is_taken() -> bool:
        """Take what it had, once its leases end, and say whether all is done."""
        queue.ack_many(queue.read_many(8, block=1, visibility_timeout=60))
        return queue.len() == 0

    def told() -> str:
        queue.write_many([Message(next(numbers), f"t{number}") for number in range(8)])
        # Nobody else reads as long as it goes. If it was done with some before it stood, it loses the others.
        eventually(lambda: queue.stats().backlog == 0, what="that it has all of them")
        stands.send_signal(signal.SIGSTOP)
        try:
            eventually(is_taken, 60, every=0.1, what="that others have done it")
        finally:
            stands.send_signal(signal.SIGCONT)
        # It fires for as long as the counters of the last 20 seconds differ, and a series begins with the first loss.
        return eventually(lambda: seen.firing().get("ShardqLeasesLost", ""), 10, every=0.2, what="what it says")

    summary = eventually(told, 120, every=0.1, what="that ShardqLeasesLost fires")
    assert re.match(r"Workers of reports lose the leases of [\d.]+% of what they read: it is done twice\.$", summary)


def test_paused_and_forgotten(watch: Watch, tmp_path: Path) -> None:
    invoices = watch.client.queue("invoices", create=True)
    invoices.write_many([Message(number, "t") for number in range(5)])
    seen = watched(watch, tmp_path)
    watch.shardq("pause", "invoices", "--by", "jonas", "--yes")
    seen.fires("PausedForgotten", r"^5 wait in invoices, which has been paused for a day, without an end\.$")
    assert not {"ShardqNoWorker", "ShardqNeverDrains"} & set(seen.firing())
    watch.shardq("pause", "invoices", "--for", "2h", "--yes")
    seen.calms("PausedForgotten")


def test_redis_full(small: Watch, tmp_path: Path) -> None:
    reports = small.client.queue("reports", create=True)
    reports.declare()
    seen = watched(small, tmp_path)

    numbers = count()

    def fill() -> None:
        while True:
            reports.write(b"x" * 20_000, shard_key=f"t{next(numbers) % 5}")

    with pytest.raises(OutOfMemory):
        fill()
    seen.fires("RedisFull", r"^Redis is nearly full \(\d\d\.?\d*%\): soon writes fail\.$")
    with pytest.raises(OutOfMemory):
        fill()
    seen.fires("RedisFull", r"^Redis is full: writes fail\. Reads and acks go on\.$")
    reports.purge()
    seen.calms("RedisFull")


def test_blind(watch: Watch, tmp_path: Path) -> None:
    watch.client.queue("reports", create=True).write(b"x", shard_key="t")
    measures, address = watch.metrics()
    seen = Prometheus(watch.stack, tmp_path, {"metrics": [address]}, hurried())
    eventually(lambda: not seen.firing(), every=0.2, what="that all is seen")
    watch.server.pause()  # Redis does not answer
    try:
        seen.fires("Blind", r"^Nobody sees reports: Redis or what measures is away, so all other alerts are silent\.$")
        eventually(
            lambda: seen.ask('shardq_poll_age_seconds{queue="reports"} > 4'), 60, every=0.2, what="that it is old"
        )
        assert not seen.ask('shardq_queue_backlog{queue="reports"}'), "an old number"
    finally:
        watch.server.resume()
    seen.calms("Blind")
    measures.kill()  # what measures is gone
    measures.wait()
    seen.fires("Blind", r"^Nobody sees the queues: Redis or what measures is away")

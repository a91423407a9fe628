"""Schedules that a program declares: what is refused where it is declared, and real workers that write their calls."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from shardq import Client, ConfigError, Queue
from shardq.ops.schedules.attend import Attendant
from shardq.tasks import Tasks
from shardq.worker import schedules as attending
from tests.clients import ClientKind
from tests.servers import Server
from tests.tasks.conftest import Work
from tests.tasks.processes import ticks
from tests.waiting import eventually
from tests.worker.running import RunningWorker


def declared(**settings: Any) -> Tasks[None]:
    return Tasks("jobs", streams=2, streams_per_shard=1, **settings)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda tasks: tasks.cron("0 3 * *"), "the cron line '0 3 * *' is none"),
        (lambda tasks: tasks.cron("0 3 * * *", tz="Europe/Berln"), "no time zone 'Europe/Berln'"),
        (lambda tasks: tasks.cron("0 3 * * *", catch_up="never"), "catch_up must be one of skip, once, all"),
        (lambda tasks: tasks.cron("0 3 * * *", shard_key=""), "shard key"),
        (lambda tasks: tasks.cron("0 3 * * *", name="a b"), "its name must have"),
        (lambda tasks: tasks.every(), "every must be a whole number"),
        (lambda tasks: tasks.every(days=400), "every must be a whole number"),
    ],
)
def test_a_bad_schedule_is_an_error_at_import_that_names_the_function(
    declare: Callable[[Tasks[None]], Any], said: str
) -> None:
    def cleanup() -> None: ...

    with pytest.raises(ConfigError) as raised:
        declare(declared())(cleanup)
    assert said in str(raised.value)
    assert re.search(r"cleanup' \(.*test_scheduling\.py:\d+\)", str(raised.value))


def test_a_task_needs_no_arguments_and_several_schedules_need_names() -> None:
    tasks = declared()
    with pytest.raises(ConfigError, match=r"each parameter needs a default.*lacks the argument 'days'"):

        @tasks.every(minutes=5)
        def prune(days: int) -> None: ...

    with pytest.raises(ConfigError, match="takes a batch"):

        @tasks.every(minutes=5)
        @tasks.batch()
        def index(documents: list[int]) -> None: ...

    @tasks.cron("0 3 * * *", tz="Europe/Berlin")
    @tasks.cron("0 15 * * *", name="afternoon")
    @tasks.task(retries=3, name="report")
    def report(days: int = 7) -> int:
        return days

    assert report() == 7, "it is called as a function, too"
    with pytest.raises(ConfigError, match="another one called 'report'"):
        tasks.every(hours=1)(report)
    with pytest.raises(ConfigError, match="no task of"):
        Tasks("jobs").every(hours=1)(report)
    found = {each.name: str(each.timetable) for each in tasks.schedules()["jobs"]}
    assert found == {"report": "cron '0 3 * * *' in Europe/Berlin", "afternoon": "cron '0 15 * * *' in UTC"}
    assert [*tasks.schedules()] == ["jobs"]
    assert tasks.find("report") is report


def slots_in(queue: Queue) -> Counter[float]:
    """For which times calls were written: the results of those that are done, and the headers of the others."""
    events = queue.journal(10_000).events
    found = {each.message_id: queue.result(each.message_id, timeout=0) for each in events if each.kind == "acked"}
    for state in ("waiting", "held_back", "delayed", "in_flight"):
        found |= {each.message_id: each.headers["slot"] for each in queue.peek(1000, state=state).messages}
    assert {each.message_id for each in events if each.kind == "written"} == found.keys()
    return Counter(datetime.fromisoformat(slot).timestamp() for slot in found.values())


def is_past(queue: Queue, done: int) -> bool:
    return queue.stats().acked > done


@pytest.mark.parametrize(
    ("client_kind", "run_in"),
    [
        ("sync", "threads"),
        pytest.param("sync", "processes", marks=pytest.mark.runs_in("test-all")),
        ("async", "threads"),
    ],
    indirect=["client_kind"],
)
def test_several_workers_write_each_slot_once_and_run_it(
    url: str, client: Client, client_kind: ClientKind, run_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending, "PERIOD", 0.2)
    forks: dict[str, Any] = {"run_in": "processes"} if run_in == "processes" else {}
    queue = client.queue(ticks)
    queue.declare()
    with (
        RunningWorker(client_kind, url, ticks, ticks, **forks),
        RunningWorker(client_kind, url, ticks, ticks, concurrency=2, **forks),
        RunningWorker("async", url, ticks, ticks),
    ):
        eventually(lambda: queue.stats().acked >= 3, what="three slots are done")
    slots = slots_in(queue)
    assert max(slots.values()) == 1
    times = sorted(slots)
    assert times == [times[0] + number for number in range(len(times))], "one a second, and none is missing"


def test_who_works_until_the_queue_is_empty_writes_no_schedules(url: str, client: Client, work: Work) -> None:
    work(ticks)
    assert client.queue(ticks).stats().written == 0


def test_a_stored_schedule_whose_task_nobody_knows_is_told(
    client: Client, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    queue = client.queue(declared(max_schedules=10))
    queue.schedules.add("gone", ["app.gone", {}], shard_key="t", every=60)
    queue.schedules.run("gone")
    work(declared(max_schedules=10))
    assert "there is no task 'app.gone' here: calls of it are given back" in caplog.text
    [waits] = queue.peek(state="delayed").messages
    assert waits.task == "app.gone"
    assert "there is no task 'app.gone'" in waits.last_error


def test_a_queue_of_another_name_gets_none_and_that_is_told(
    url: str, client: Client, client_kind: ClientKind, caplog: pytest.LogCaptureFixture
) -> None:
    """A Tasks names its queue: a worker that serves others with the same functions writes nothing there."""
    mails = client.queue("mails", create=True)
    mails.declare()
    with RunningWorker(client_kind, url, "mails", ticks):
        eventually(lambda: "the schedules of queue 'ticks' write nothing here" in caplog.text)
    assert mails.stats().written == 0
    caplog.clear()
    with RunningWorker(client_kind, url, ticks, ticks):
        eventually(lambda: client.queue(ticks).stats().written)
    assert "write nothing" not in caplog.text


def test_workers_without_schedules_ask_nothing(
    url: str, client: Client, default_server: Server, client_kind: ClientKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the verb called, nor is anything else than before; one with schedules asks once a period."""
    monkeypatch.setattr(attending, "PERIOD", 0.05)
    monkeypatch.setattr(attending, "UNKNOWN", 0.05)
    without: Tasks[None] = Tasks("jobs")
    calls = Counter[str]()
    perform = Attendant.attend

    def attend(self: Attendant, timeout: float) -> Any:
        calls[self._state.keys.name] += 1
        return perform(self, timeout)

    monkeypatch.setattr(Attendant, "attend", attend)
    client.queue(without).declare()
    client.queue(ticks).declare()
    with RunningWorker(client_kind, url, ticks, ticks), RunningWorker(client_kind, url, without, without):
        eventually(lambda: calls["ticks"] >= 5)
        assert calls["jobs"] == 0
        client.queue("jobs").configure(max_schedules=5)
        eventually(lambda: calls["jobs"] >= 2, what="the queue stores schedules from now on")


@pytest.mark.runs_in("test-all")
def test_three_workers_that_are_killed_at_random_write_each_second_once(
    default_server: Server, url: str, client: Client, rng: random.Random
) -> None:
    """Real processes, killed by SIGKILL at any moment; the next one looks at once."""
    queue = client.queue(ticks)
    queue.declare()
    program = [sys.executable, "-m", "tests.tasks.ticking", url]
    workers = [subprocess.Popen(program) for _ in range(3)]
    try:
        eventually(lambda: queue.stats().acked >= 1)
        for _ in range(15):
            victim = rng.randrange(3)
            done = queue.stats().acked
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = subprocess.Popen(program)
            eventually(partial(is_past, queue, done))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    slots = slots_in(queue)
    times = sorted(slots)
    assert max(slots.values()) == 1
    assert times == [times[0] + number for number in range(len(times))]

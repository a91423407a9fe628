"""Handlers in child processes: what ends one, ends only its message."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from shardq import Client, ConfigError, Queue, Worker
from shardq.backoff import Constant
from shardq.codec import Codecs
from shardq.model import Received
from shardq.worker.children import Child, ChildAnswer, Children
from tests.waiting import eventually
from tests.worker import handlers
from tests.worker.conftest import PassTime
from tests.worker.forward import Forward
from tests.worker.running import RunningWorker


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("SHARDQ_TEST_LOG", str(path))
    return path


def lines(log: Path, what: str) -> list[tuple[str, int, int]]:
    """(payload, delivery count, pid) of each line."""
    return [(row[1], int(row[2]), int(row[3])) for row in handlers.noted(log) if row[0] == what]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def begun(url: str, **settings: Any) -> RunningWorker:
    chosen: dict[str, Any] = {"concurrency": 2, "backoff": Constant(0), "run_in": "processes"}
    handle: Any = settings.pop("handle", handlers.varied)
    return RunningWorker("sync", url, "jobs", handle, **(chosen | settings))


@pytest.mark.runs_in("test-all")
def test_what_a_handler_says_crosses_the_pipe(jobs: Queue, url: str, log: Path) -> None:
    jobs.write_many([(each, each) for each in ("fine", "fail", "nack", "reject", "big")])
    with begun(url) as running:
        eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (3, 2), 30)
        running.stop()
    pids = {pid for _, _, pid in lines(log, "began")}
    assert len(pids) <= 2
    assert ("nack", 2) in {row[:2] for row in lines(log, "done")}
    reasons = {letter.shard_key: (letter.reason, letter.last_error) for letter in jobs.dead()}
    assert reasons == {"fail": ("max deliveries", "ValueError: boom"), "reject": ("never", "never")}


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("poison", "error"),
    [
        ("kill", "ProcessDied: the handler's process was killed by SIGKILL"),
        ("exit", "ProcessDied: the handler's process ended with exit code 7"),
    ],
)
def test_a_poison_message_ends_as_a_dead_letter_and_the_others_are_done(
    jobs: Queue, url: str, log: Path, poison: str, error: str
) -> None:
    jobs.write_many([(poison, "bad"), *((f"m{n}", f"t{n}") for n in range(10))])
    with begun(url):
        eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (10, 1), 30)
    (letter,) = jobs.dead()
    assert (letter.count, letter.reason, letter.last_error) == (3, "max deliveries", error)
    assert [row[:2] for row in lines(log, "began") if row[0] == poison] == [(poison, n) for n in (1, 2, 3)]
    assert {row[1] for row in lines(log, "done")} == {1}


@pytest.mark.runs_in("test-all")
def test_an_overdue_and_a_cancelled_handler_are_killed(
    jobs: Queue, url: str, log: Path, clock: Forward, pass_time: PassTime
) -> None:
    jobs.write("hang", shard_key="t")
    with begun(url, time_limit=0.3, concurrency=1):
        (letter,) = eventually(jobs.dead, 30)
        assert letter.last_error == "TimeLimit: it ran for more than 0.3 s"
    unwanted = jobs.write("unwanted", shard_key="t")
    with begun(url, concurrency=1, client={"clock": clock}):
        eventually(lambda: "unwanted" in {row[0] for row in lines(log, "began")}, 30)
        jobs.cancel(unwanted)
        pass_time(12)  # to when the lease is extended
        jobs.write("next", shard_key="t")
        eventually(lambda: jobs.stats().acked == 1, 30)  # the only slot is free again
    assert jobs.stats().cancelled == 1


def test_a_handler_that_no_process_can_import_is_refused(jobs: Queue) -> None:
    with pytest.raises(ConfigError, match="top of a module"):
        Worker(jobs, lambda _: None, run_in="processes").run()


@pytest.mark.runs_in("test-all")
def test_a_shard_key_that_is_no_text_crosses_the_pipe_with_a_window(
    client: Client, url: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = client.queue("jobs", streams=8, window=1, max_deliveries=3)
    jobs.write_many([(f"m{n}", b"\xff\xfe%d" % (n % 2)) for n in range(20)])
    with begun(url) as running:
        eventually(lambda: jobs.stats().acked == 20, 30)
        running.stop()
    assert running.failure is None
    assert len({pid for _, _, pid in lines(log, "began")}) <= 2
    assert {row[1] for row in lines(log, "done")} == {1}


@pytest.mark.runs_in("test-all")
def test_a_child_that_was_ended_can_be_joined_and_leaves_no_file_open() -> None:
    """The program's end joins all children while the worker's threads still end them."""
    open_before = open_files()
    child = Child(handlers.varied, Codecs())
    child.close()
    child.process.join(0)
    assert child.process.exitcode is not None
    del child
    gc.collect()
    assert open_files() <= open_before + 1  # multiprocessing's own tracker


@pytest.mark.runs_in("test-all")
def test_a_child_that_cannot_be_told_is_not_left(
    jobs: Queue, url: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong between, no process is forgotten."""
    started: list[Child] = []
    handle, start = Child.handle, Children._start

    def failing(child: Child, received: Received, keeps: int | None = None) -> ChildAnswer:
        if received.count == 1:
            raise ValueError("not to be encoded")
        return handle(child, received, keeps)

    def counted(children: Children) -> Child:
        started.append(child := start(children))
        return child

    monkeypatch.setattr(Child, "handle", failing)
    monkeypatch.setattr(Children, "_start", counted)
    jobs.write_many([(f"m{n}", "t") for n in range(4)])
    with begun(url) as running:
        eventually(lambda: jobs.stats().acked == 4, 60)
        assert running.worker
        assert isinstance(running.worker, Worker)
        assert running.worker._engine.lanes[0]._children
        assert len(running.worker._engine.lanes[0]._children._all) <= 2
        running.stop()
    assert len(started) >= 5
    assert all(child.pipe.closed for child in started)


@pytest.mark.runs_in("test-all")
def test_what_has_no_bytes_or_no_text_is_said_as_well_as_it_can_be(jobs: Queue, url: str, log: Path) -> None:
    jobs.write_many([(each, each) for each in (*handlers.AWKWARD, "fine")])
    with begun(url, handle=handlers.awkward) as running:
        eventually(lambda: (jobs.stats().acked, jobs.stats().dead) == (1, len(handlers.AWKWARD)), 60)
        running.stop()
    assert running.failure is None
    assert {letter.shard_key: (letter.reason, letter.last_error) for letter in jobs.dead()} == handlers.ENDS
    assert len({pid for _, _, pid in lines(log, "began")}) <= 2

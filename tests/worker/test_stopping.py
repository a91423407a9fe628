"""How a worker ends, and what it says of itself while it works."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardq import AsyncClient, AsyncWorker, ClosedError, ConfigError, Queue, Worker
from shardq.backoff import Constant
from shardq.model import DeliveryView
from shardq.ops.read.waiting import waiting_of
from shardq.tasks import Tasks
from shardq.worker import keeper, lane, traffic
from tests.clients import ClientKind
from tests.hostile.values import Silent
from tests.waiting import eventually
from tests.worker.conftest import Begin
from tests.worker.running import Gate, RunningWorker, run_worker


def test_stop_finishes_what_runs_and_starts_nothing_new(begin: Begin, jobs: Queue) -> None:
    gate = Gate()
    gate.open.set()
    jobs.write("short", shard_key="t")
    begun = begin(gate, concurrency=3, read_ahead=2)
    eventually(lambda: jobs.stats().acked == 1)
    gate.open.clear()
    gate.inside.clear()
    jobs.write_many([(n, f"t{n}") for n in range(9)])
    eventually(lambda: len(gate.inside) == 3 and jobs.stats().in_flight == 5)
    begun.stop(wait=False)
    eventually(lambda: jobs.stats().in_flight == 3)  # those that only waited go back at once
    gate.open.set()
    begun.join()
    now = jobs.stats()
    assert (now.acked, now.in_flight, now.backlog, len(gate.inside)) == (4, 0, 6, 3)
    assert begun.failure is None


def test_after_the_grace_the_rest_is_given_back_and_handlers_are_told(begin: Begin, jobs: Queue) -> None:
    gate = Gate()
    jobs.write("stubborn", shard_key="t")
    begun = begin(gate, grace=0.2)
    eventually(lambda: gate.inside)
    begun.stop()
    again = jobs.read(block=20)
    assert (again.count, again.last_error) == (1, "")
    eventually(lambda: gate.told)
    again.ack()


def test_stop_on_an_idle_queue(begin: Begin, jobs: Queue) -> None:
    begun = begin(lambda _: None)
    begun.stop()
    assert (begun.failure, jobs.stats().in_flight) == (None, 0)


def test_a_worker_that_is_stopped_before_its_start_ends_at_once_and_none_runs_twice(
    client_kind: ClientKind, url: str, jobs: Queue
) -> None:
    jobs.write("m", shard_key="t")
    worker = run_worker(client_kind, url, {"jobs": 1}, plain, ready=lambda worker, _: worker.stop())
    with pytest.raises(ConfigError, match="runs once"):
        worker.run() if isinstance(worker, Worker) else asyncio.run(worker.run())
    assert (jobs.stats().backlog, jobs.stats().in_flight) == (1, 0)


def test_stop_does_not_wait_for_a_read_to_end(begin: Begin, jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "BLOCK", 30.0)
    begun = begin(lambda _: None)
    eventually(lambda: begun.worker and waiting_of(begun.worker._engine._queues[0].state).waiters())
    asked = time.monotonic()
    begun.stop()
    assert time.monotonic() - asked < 10


def test_stop_ends_a_read_that_is_about_to_begin(begin: Begin, jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, read = threading.Event(), traffic.Traffic.read

    def reader_of(of: traffic.Traffic) -> int | None:
        looked.set()
        found: int | None = vars(of)["reader"]
        return found

    def read_late(of: traffic.Traffic, action: Any) -> Any:
        assert looked.wait(60), "whoever ends the read looks for it"
        return read(of, action)

    monkeypatch.setattr(traffic, "BLOCK", 3600.0)
    told = property(reader_of, lambda of, thread: vars(of).update(reader=thread))
    monkeypatch.setattr(traffic.Traffic, "_reader", told, raising=False)
    monkeypatch.setattr(traffic.Traffic, "read", read_late)
    begun = begin(lambda _: None)
    eventually(lambda: begun.worker and begun.worker._engine.lanes[0].state.is_reading)
    begun.stop()


def test_stop_may_be_called_by_a_handler(begin: Begin, jobs: Queue) -> None:
    workers: list[RunningWorker] = []
    jobs.write_many([(n, "t") for n in range(5)])
    begun = threading.Event()

    def handle(_: DeliveryView) -> None:
        begun.wait(30)
        assert workers[0].worker
        workers[0].worker.stop()

    workers.append(begin(handle, concurrency=1))
    begun.set()
    workers[0].join()
    now = jobs.stats()
    assert now.acked >= 1
    assert (now.acked + now.backlog, now.in_flight) == (5, 0)


async def test_a_cancelled_run_gives_everything_back(url: str, jobs: Queue) -> None:
    inside = asyncio.Event()

    async def handle(_: Any) -> None:
        inside.set()
        await asyncio.sleep(60)

    jobs.write_many([(n, f"t{n}") for n in range(3)])
    async with AsyncClient.from_url(url) as client:
        task = asyncio.create_task(AsyncWorker(client.queue("jobs", create=True), handle).run())
        await asyncio.wait_for(inside.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [each.count for each in jobs.read_many(9)] == [1, 1, 1]


@pytest.mark.once
@pytest.mark.parametrize("kind", ["handler", "batch", "async task in plain middleware"])
def test_the_end_of_the_loop_gives_everything_back(
    url: str, jobs: Queue, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It cancels the handlers together with `run`, as after a second Ctrl-C in uvicorn: nothing has failed."""
    inside: list[Any] = []
    tasks: Tasks[None] = Tasks("jobs", middleware=[lambda call_next, delivery: call_next(delivery)] * (kind != "batch"))

    async def handle(_: Any) -> None:
        inside.append(1)
        await asyncio.sleep(60)

    @tasks.task
    async def alone(number: int) -> None:
        await handle(number)

    @tasks.batch(size=3, wait=60)
    async def collected(numbers: list[int]) -> None:
        inside.extend(numbers)
        await asyncio.sleep(60)

    async def main() -> None:
        client = AsyncClient.from_url(url)
        worker = AsyncWorker(client.queue("jobs", create=True), handle if kind == "handler" else tasks, signals=False)
        running.append(asyncio.create_task(worker.run()))
        async with asyncio.timeout(30):
            while len(inside) < 3:  # noqa: ASYNC110 (the test's own)
                await asyncio.sleep(0.01)

    running: list[asyncio.Task[None]] = []
    task: Any = collected if kind == "batch" else alone
    jobs.write_many([(task.call(n), f"t{n}") for n in range(3)])
    asyncio.run(main())
    assert running[0].cancelled()
    assert "failed" not in caplog.text
    assert [each.count for each in jobs.read_many(9)] == [1, 1, 1]


def test_a_worker_that_works_touches_its_file(begin: Begin, jobs: Queue, tmp_path: Path) -> None:
    file = tmp_path / "alive"
    begin(lambda _: None, alive=file)
    first = eventually(lambda: file.exists() and file.stat().st_mtime_ns)
    eventually(lambda: file.stat().st_mtime_ns > first)


def test_the_file_is_there_as_soon_as_the_worker_runs(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not there is a queue."""
    monkeypatch.setattr(keeper, "PULSE", 3600)
    begin(lambda _: None, alive=str(tmp_path / "alive"))
    eventually((tmp_path / "alive").exists)


def test_a_sign_of_life_that_fails_is_logged_and_ends_nothing(
    begin: Begin, jobs: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin(lambda _: None, alive=tmp_path / "nowhere" / "alive")
    eventually(lambda: "the worker's sign of life raised an error: FileNotFoundError" in caplog.text)
    jobs.write("m", shard_key="t")
    eventually(lambda: jobs.stats().acked == 1)


def test_a_sign_of_life_follows_no_link(begin: Begin, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may have put it there: the worker of root would make a file wherever that points."""
    (tmp_path / "alive").symlink_to(tmp_path / "theirs")
    begin(lambda _: None, alive=tmp_path / "alive")
    eventually(lambda: "the worker's sign of life raised an error" in caplog.text)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("stuck", [True, False])
def test_a_worker_whose_handlers_all_hang_shows_no_life(begin: Begin, jobs: Queue, stuck: bool) -> None:
    release, signs = threading.Event(), list[float]()
    jobs.write("hangs", shard_key="t")
    settings = {"time_limit": 0.1, "backoff": Constant(60), "grace": 0.1} if stuck else {}
    begin(
        lambda _: release.wait(30), functions="plain", concurrency=1, alive=lambda: signs.append(time.monotonic()),
        **settings,
    )  # fmt: skip
    eventually(lambda: jobs.stats().delayed == stuck and (jobs.stats().in_flight == 1 or stuck))
    begun = len(signs)
    if stuck:
        threading.Event().wait(0.7)
        assert len(signs) - begun <= 2
    else:
        eventually(lambda: len(signs) - begun > 2)
    release.set()


@pytest.mark.runs_in("test-all")
def test_a_blocked_event_loop_shows_no_life(begin: Begin, jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    is_responsive, looks, signs = lane._KeeperEvents.is_responsive, list[bool](), list[float]()
    release, blocked = threading.Event(), threading.Event()

    def looked(events: lane._KeeperEvents) -> bool:
        looks.append(is_responsive(events))
        return looks[-1]

    async def handle(_: DeliveryView) -> None:
        blocked.set()
        release.wait(40)  # what this is about

    monkeypatch.setattr(lane._KeeperEvents, "is_responsive", looked)
    begin(handle, alive=lambda: signs.append(time.monotonic()))
    eventually(lambda: signs)
    jobs.write("blocks", shard_key="t")
    try:
        assert blocked.wait(30)
        eventually(lambda: not looks[-1])
        begun, before = len(looks), len(signs)
        eventually(lambda: len(looks) > begun + 5)
        assert not any(looks[begun:])
        assert len(signs) == before
    finally:
        release.set()
    eventually(lambda: len(signs) > before)


def test_a_closed_client_ends_the_worker_with_its_error(begin: Begin, jobs: Queue) -> None:
    begun = begin(lambda _: None)
    jobs.write("m", shard_key="t")
    eventually(lambda: jobs.stats().acked == 1)
    begun.close_client()
    begun.join()
    assert isinstance(begun.failure, ClosedError)


@pytest.mark.parametrize("signals", [None, True, False])
def test_signal_handlers_are_the_worker_s_while_it_runs_and_only_if_wanted(jobs: Queue, signals: bool | None) -> None:
    before = signal.getsignal(signal.SIGTERM)
    within: list[object] = []

    def handle(_: DeliveryView) -> None:
        within.append(signal.getsignal(signal.SIGTERM))
        worker.stop()

    jobs.write("m", shard_key="t")
    worker = Worker(jobs, handle, signals=signals)
    worker.run()
    assert (within[0] is not before) is (signals is not False)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("signals", [None, True, False])
async def test_a_loop_with_signal_handlers_of_its_own_keeps_them_unless_the_worker_shall_be_stopped(
    url: str, jobs: Queue, monkeypatch: pytest.MonkeyPatch, signals: bool | None
) -> None:
    gate, called, loop = Gate(), asyncio.Event(), asyncio.get_running_loop()
    stops: list[AsyncWorker] = []
    stop = AsyncWorker.stop

    def stopped(worker: AsyncWorker) -> None:
        stops.append(worker)
        stop(worker)

    monkeypatch.setattr(AsyncWorker, "stop", stopped)
    before = signal.getsignal(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, called.set)
    jobs.write("m", shard_key="t")
    async with AsyncClient.from_url(url) as client:
        worker = AsyncWorker(client.queue("jobs", create=True), gate.asynchronous, signals=signals)
        task = asyncio.create_task(worker.run())
        while not gate.inside:  # noqa: ASYNC110 (bounded by the test's timeout)
            await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(called.wait(), 30)
        assert stops == ([worker] if signals else [])
        gate.open.set()
        worker.stop()
        await asyncio.wait_for(task, 30)
    loop.remove_signal_handler(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)
    assert jobs.stats().acked == 1


def plain(_: Any) -> None:
    """A plain handler."""


async def asynchronous(_: Any) -> None:
    """An async handler."""


class AsyncCallable:
    async def __call__(self, _: Any) -> None:
        """An async handler, too."""


async def test_what_does_not_fit_is_refused(url: str, jobs: Queue) -> None:
    async with AsyncClient.from_url(url) as client:
        queue = client.queue("jobs", create=True)
        for handle in (plain, asynchronous, AsyncCallable(), functools.partial(asynchronous)):
            Worker(jobs, handle)
            AsyncWorker(queue, handle)
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: Worker(jobs, asynchronous, run_in="processes"), "event loop"),
            (lambda: Worker(jobs, AsyncCallable(), run_in="processes"), "event loop"),
            (lambda: Worker(queue, plain), "AsyncWorker"),  # type: ignore[arg-type]
            (lambda: AsyncWorker(jobs, asynchronous), "use Worker"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, "tasks:handle"), "function"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, plain, run_in="fibres"), "run_in"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, plain, concurrency=0), "concurrency"),
            (lambda: Worker(jobs, plain, read_ahead=-1), "read_ahead"),
            (lambda: Worker(jobs, plain, time_limit=0), "time_limit"),
            (lambda: Worker(jobs, plain, grace=-1), "grace"),
            (lambda: Worker(jobs, plain, until=Silent()), "until"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, plain, alive="x" * 5_000), "alive"),
            (lambda: Worker(jobs, plain, visibility_timeout=0), "visibility_timeout"),
            (lambda: Worker(jobs, plain, backoff=3), "backoff"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, plain, backoff=lambda count: 1), "backoff"),  # type: ignore[arg-type]
            (lambda: AsyncWorker(queue, asynchronous, backoff=lambda count: 1), "backoff"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, plain, alive=3), "alive"),  # type: ignore[arg-type]
            (lambda: Worker(jobs, plain, signals="no"), "signals"),  # type: ignore[arg-type]
        ]
        for make, complaint in refused:
            with pytest.raises(ConfigError, match=complaint):
                make()

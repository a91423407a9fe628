"""tasks: what a task costs over a bare handler, in a worker's process.

Worker and handler are the same on both sides, and so are the bytes of the messages: a bare handler gets a call and
ignores it, as does a task that does nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import Contender, Run, half, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import AsyncClient, AsyncWorker, Client, Queue, Worker
from shardq.model import DeliveryView
from shardq.model.schedule import FixedSchedule
from shardq.tasks import Tasks
from shardq.worker.application import Application, Lifespan
from shardq.worker.call import CallOf, Environment, HandlerCall, MessageCall
from shardq.worker.state import WorkerJob

TENANTS: Final = 100
CONCURRENCIES: Final = (1, 64)
RATE, CPU = 0.95, 5.0
"""At least such a share of a bare handler's jobs/s, and at most so many µs of CPU more."""
NAME: Final = "benchmarks.tasks.count"
MANY: Final = 4
"""So many times the messages of the settings are worked off."""


@dataclass(slots=True)
class Finish:
    """Counts jobs, and calls `stop` at the last one."""

    last: int
    stop: Callable[[], None] = lambda: None
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))  # `next` is atomic

    def count(self) -> None:
        if next(self.numbers) == self.last:
            self.stop()


def run(place: Place) -> list[Table]:
    """Both tables."""
    with Client.from_url(place.url) as client, connect(place.url) as server:
        return [_in_turns(place, client), _workers(place, client, server)]


# --- the handler


def _in_turns(place: Place, client: Client) -> Table:
    """Each worker runs a bare handler for one job and a task for the next, so other load meets both alike."""
    number = MANY * place.settings.messages
    rows: list[tuple[str, ...]] = []
    targets, data = [], {}
    for kind, execute in KINDS.items():
        for concurrency in CONCURRENCIES:
            head, queue = f"{kind}, {concurrency} at once", _filled(place, client, number)
            finish = Finish(number)
            spent: tuple[list[int], list[int]] = ([], [])
            execute(place, queue.name, _Turns(finish, spent, is_async=kind == "AsyncWorker"), concurrency, finish)
            queue.delete(expected=None)
            bare, task = (median(each) / 1000 for each in spent)
            rows.append((head, us(bare), _half(spent[0]), us(task), _half(spent[1]), us(task - bare)))
            targets.append(Target(f"{head}, CPU of a job, more than a bare handler", task - bare, CPU, True, " µs"))
            data[head] = {"bare": bare, "task": task}
    return Table(
        "tasks_in_turns",
        f"CPU of the thread while it handles a job, the median of {number // 2:,} each",
        place.described("a bare handler and a task in turns, within one worker"),
        ("", "a bare handler", "half of the jobs", "a task", "half of its jobs", "more"),
        rows,
        targets,
        data,
    )


def _half(spent: Sequence[int]) -> str:
    """Between which values the middle half of the jobs lies."""
    return "{} to {}".format(*(us(each / 1000) for each in half(spent)))


class _Turns(Application):
    """Handles every other job as a task, and the others bare. *spent* gets the ns of CPU of both."""

    def __init__(self, finish: Finish, spent: tuple[list[int], list[int]], *, is_async: bool) -> None:
        self._tasks, self._bare = _tasks(finish, is_async=is_async), _handler(finish, is_async=is_async)
        self._spent, self._numbers = spent, itertools.count()

    def calls(self, environment: Environment) -> CallOf:
        task = self._tasks.calls(environment)
        bare: MessageCall = HandlerCall(environment, self._bare)

        def call_of(delivery: DeliveryView) -> MessageCall:
            turn = next(self._numbers) % 2
            call = task(delivery) if turn else bare
            return (_AsyncTurn if call.is_async else _Turn)(environment, call, self._spent[turn])

        return call_of

    @property
    def is_async(self) -> bool:
        return self._tasks.is_async

    def lifespans(self) -> Sequence[Lifespan]:
        return ()

    def check_forks(self) -> None: ...

    def schedules(self) -> Mapping[str, Sequence[FixedSchedule]]:
        return {}


class _Turn(MessageCall):
    """A call whose cost is noted in *spent*."""

    def __init__(self, environment: Environment, call: MessageCall, spent: list[int]) -> None:
        super().__init__(environment)
        self._call, self._spent, self.is_async = call, spent, call.is_async

    def run(self, job: WorkerJob) -> Any:
        began = time.thread_time_ns()
        value = self._call.run(job)
        self._spent.append(time.thread_time_ns() - began)
        return value


class _AsyncTurn(_Turn):
    """The same, of an async call."""

    async def run(self, job: WorkerJob) -> Any:
        began = time.thread_time_ns()
        value = await self._call.run(job)
        self._spent.append(time.thread_time_ns() - began)
        return value


# --- the worker's process


def _workers(place: Place, client: Client, server: Any) -> Table:
    cases = [(kind, each, what) for kind in KINDS for each in CONCURRENCIES for what in ("a bare handler", "a task")]
    contenders = [
        _contender(place, client, KINDS[kind], concurrency, f"{kind}, {concurrency} at once, {what}")
        for kind, concurrency, what in cases
    ]
    runs = take_runs(server, contenders, place.settings.rounds, place.settings.seed)
    rows: list[tuple[str, ...]] = []
    targets = []
    for kind, concurrency, what in cases:
        head = f"{kind}, {concurrency} at once"
        own, bare = runs[f"{head}, {what}"], runs[f"{head}, a bare handler"]
        rate, more = 1 / ratio(own, bare, "wall"), _more(own, bare)
        both = median(_cpu(one) / _cpu(other) for one, other in zip(own, bare, strict=True))
        rows.append(
            (f"{head}, {what}", f"{1e6 / middle(own, 'wall'):,.0f}", times(rate), us(middle(own, "client")), us(more),
             us(middle(own, "server")), times(both))
        )  # fmt: skip
        if what == "a task":
            targets.append(Target(f"{head}, jobs/s of a bare handler", rate, RATE))
    return Table(
        "tasks",
        f"{MANY * place.settings.messages:,} jobs that do nothing, by one process (one at a time: a quarter of them)",
        place.described(f"{place.settings.rounds} interleaved rounds, each on a new queue"),
        ("", "jobs/s", "of a bare handler", "worker CPU", "more than bare", "server CPU", "CPU of both, of bare"),
        rows,
        targets,
        {name: [each._asdict() for each in own] for name, own in runs.items()},
    )


def _cpu(run: Run) -> float:
    return run.client + run.server


def _more(own: list[Run], bare: list[Run]) -> float:
    """By how many µs of CPU a job is dearer: the median of the rounds' own differences."""
    return float(median(one.client - other.client for one, other in zip(own, bare, strict=True)))


Execute = Callable[[Place, str, Any, int, Finish], None]


def _contender(place: Place, client: Client, execute: Execute, concurrency: int, name: str) -> Contender:
    ready: list[tuple[Queue, Finish, Any]] = []
    is_task, is_async = name.endswith("task"), name.startswith("Async")
    number = place.settings.messages * (1 if concurrency == 1 else MANY)

    def prepare() -> None:
        queue = _filled(place, client, number)
        finish = Finish(number)
        make = _tasks if is_task else _handler  # once in the life of a program, so it does not count
        ready.append((queue, finish, make(finish, is_async=is_async)))

    def work() -> None:
        queue, finish, handle = ready[-1]
        execute(place, queue.name, handle, concurrency, finish)

    def finish(_: Any) -> None:
        done, *_ = ready.pop()
        assert done.stats().acked == number
        done.delete(expected=None)

    return Contender(name, number, work, prepare=prepare, finish=finish)


def _filled(place: Place, client: Client, number: int) -> Queue:
    """A new queue with so many calls."""
    chosen = place.settings
    name = f"tasks-{uuid.uuid4().hex[:8]}"
    queue = client.queue(name, streams=chosen.streams, streams_per_shard=chosen.per_shard, visibility_timeout=600.0)
    for start in range(0, number, 500):
        some = range(start, min(number, start + 500))
        queue.write_many([([NAME, {"number": each}], f"tenant-{each % TENANTS}") for each in some])
    return queue


def _handler(finish: Finish, *, is_async: bool) -> Any:
    def plain(_: Any) -> None:
        finish.count()

    async def coroutine(_: Any) -> None:
        finish.count()

    return coroutine if is_async else plain


def _tasks(finish: Finish, *, is_async: bool) -> Tasks[None]:
    tasks: Tasks[None] = Tasks("tasks")

    def plain(number: int) -> None:
        finish.count()

    async def coroutine(number: int) -> None:
        finish.count()

    tasks.task(name=NAME)(coroutine if is_async else plain)
    return tasks


def _run_threads(place: Place, queue: str, handle: Any, concurrency: int, finish: Finish) -> None:
    with Client.from_url(place.url) as client:
        worker = Worker(client.queue(queue), handle, concurrency=concurrency, signals=False)
        finish.stop = worker.stop
        worker.run()


def _run_loop(place: Place, queue: str, handle: Any, concurrency: int, finish: Finish) -> None:
    async def run() -> None:
        async with AsyncClient.from_url(place.url) as client:
            worker = AsyncWorker(client.queue(queue), handle, concurrency=concurrency, signals=False)
            finish.stop = worker.stop
            await worker.run()

    asyncio.run(run())


KINDS: Final[Mapping[str, Execute]] = {"Worker": _run_threads, "AsyncWorker": _run_loop}

"""service: how long does a quiet tenant's job wait beside tenants whose jobs are slow, for a free handler and its turn?

Sixteen handlers work through the public API in real seconds, in each of several ways. Floods have jobs of S seconds and
never run out; quiet jobs of S / 400, each of another tenant, come at random. The wait is from the write to the moment
when the handler starts. At the same time one tenant sends two short jobs a S without end.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Table, Target, percentile
from benchmarks.rounds import middle, take_turns
from benchmarks.settings import Place
from shardq import AsyncClient, AsyncWorker, Client, Empty, Queue, Worker

S: Final = 0.4
"""Seconds of a slow job."""
HANDLERS: Final = 16
QUICK: Final = 400
"""A quiet job takes so much less."""
GAP: Final = 0.1
"""Seconds between two quiet jobs, on average."""
GOALS: Final = {20: (0.15, 0.7), 100: (0.3, 1.0)}
"""By the number of floods, the median and the 99th percentile of quiet waits, in S."""
WARM: Final = 4.0
"""Seconds until all handlers have had some jobs."""
STARTING: Final = 12.0
"""Seconds until all processes have, which import first."""


ORDERS: Final[dict[str, dict[str, Any]]] = {
    "one Redis stream": {"window": 0, "streams": 1, "streams_per_shard": 1},
    "shardq, turns in messages": {"fair": "messages"},
    "shardq, turns in time": {},
}
"""The queue's settings, by the order in which it delivers."""
NUMBERS: Final = (2, 8, 16, 32, 64)
"""Of tenants with slow jobs."""
ROUNDS: Final = 3
LONG: Final = 4
"""Who has waited for so many S at the end, and is not served, is said to wait for ever."""


@dataclass
class Seen:
    """What handlers saw: for each kind the waits in S, and for how long they worked for whom.

    `left` is how many steady messages were written long before the end, and not served.
    """

    began: float
    ended: float
    left: int = 0
    waits: dict[str, list[float]] = field(default_factory=lambda: {"quiet": [], "steady": []})
    served: Counter[str] = field(default_factory=Counter)

    def handle(self, delivery: Any) -> float:
        """Note that the work on it begins; return how long it takes."""
        kind, written, seconds = delivery.payload
        self.note(kind, str(delivery.shard_key), written, time.time(), seconds)
        return float(seconds)

    def note(self, kind: str, key: str, written: float, now: float, seconds: float) -> None:
        """Note that the work on a message of *key* begins *now*, and takes so many seconds."""
        if kind in self.waits and written > self.began:
            self.waits[kind].append((now - written) / S)
            self.left -= kind == "steady" and written < self.ended - LONG * S
        if self.began < now < self.ended:
            self.served[key] += seconds  # type: ignore[assignment]


Way = Callable[[Queue, str, Seen], Any]


@contextmanager
def worker(queue: Queue, url: str, seen: Seen, **settings: Any) -> Iterator[None]:
    """A Worker with threads."""
    runner = Worker(queue, lambda delivery: time.sleep(seen.handle(delivery)), concurrency=HANDLERS, signals=False,
                    grace=0, **settings)  # fmt: skip
    thread = threading.Thread(target=runner.run)
    thread.start()
    yield
    runner.stop()
    thread.join()


@contextmanager
def reading_ahead(queue: Queue, url: str, seen: Seen) -> Iterator[None]:
    """A Worker that may read 16 messages ahead."""
    with worker(queue, url, seen, read_ahead=HANDLERS):
        yield


NOTES: Final = "SHARDQ_BENCHMARK_NOTES"
"""The environment variable with the file to which processes append what they begin with."""


def handle_in_process(delivery: Any) -> None:
    """What a process does with a message."""
    kind, written, seconds = delivery.payload
    line = json.dumps([kind, str(delivery.shard_key), written, time.time(), seconds])
    with Path(os.environ[NOTES]).open("a") as file:
        file.write(f"{line}\n")
    time.sleep(seconds)


@contextmanager
def processes(queue: Queue, url: str, seen: Seen) -> Iterator[None]:
    """A Worker whose handlers run in processes."""
    with tempfile.NamedTemporaryFile("r") as file:
        os.environ[NOTES] = file.name
        runner = Worker(queue, handle_in_process, concurrency=HANDLERS, run_in="processes", signals=False, grace=0)
        thread = threading.Thread(target=runner.run)
        thread.start()
        yield
        runner.stop()
        thread.join()
        for line in file:
            seen.note(*json.loads(line))


@contextmanager
def async_worker(queue: Queue, url: str, seen: Seen) -> Iterator[None]:
    """An AsyncWorker in a loop of its own."""

    async def handle(delivery: Any) -> None:
        await asyncio.sleep(seen.handle(delivery))

    async def work() -> None:
        async with AsyncClient.from_url(url) as client:
            runners.append(runner := AsyncWorker(client.queue(queue.name), handle, concurrency=HANDLERS, signals=False,
                                                 grace=0))  # fmt: skip
            loops.append(asyncio.get_running_loop())
            await runner.run()

    runners: list[AsyncWorker] = []
    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    yield
    loops[0].call_soon_threadsafe(runners[0].stop)
    thread.join()


@contextmanager
def readers(queue: Queue, url: str, seen: Seen) -> Iterator[None]:
    """Sixteen threads that read one message each, and ack it with the next read."""
    over = threading.Event()

    def work() -> None:
        done = None
        while not over.is_set():
            try:
                delivery = queue.read(block=0.5, ack=done)
            except Empty:
                done = None
                continue
            time.sleep(seen.handle(delivery))
            done = delivery

    with _threads(work, HANDLERS, over):
        yield


@contextmanager
def batches(queue: Queue, url: str, seen: Seen) -> Iterator[None]:
    """Four readers of four messages each, which they work on side by side. Each job is acked when it ends."""
    over = threading.Event()

    def handle(delivery: Any) -> None:
        began = time.monotonic()
        time.sleep(seen.handle(delivery))
        delivery.ack(cost=time.monotonic() - began)  # a batch is charged as if its jobs had come one after the other

    def work() -> None:
        with ThreadPoolExecutor(4) as pool:
            while not over.is_set():
                list(pool.map(handle, queue.read_many(4, block=0.5)))

    with _threads(work, HANDLERS // 4, over):
        yield


@contextmanager
def _threads(work: Callable[[], None], number: int, over: threading.Event) -> Iterator[None]:
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


WAYS: Final[dict[str, Any]] = {
    "Worker": worker, "Worker, read_ahead 16": reading_ahead, "Worker, processes": processes,
    "AsyncWorker": async_worker, "16 readers of one": readers, "4 readers of four": batches,
}  # fmt: skip
JOBS: Final[dict[str, Callable[[int, random.Random], float]]] = {
    "alike": lambda number, rng: S,
    "half of them a tenth": lambda number, rng: S if number % 2 else S / 10,
    "lognormal": lambda number, rng: min(10 * S, S * rng.lognormvariate(-1.125, 1.5)),
}


def run(place: Place) -> list[Table]:
    chosen = place.settings
    tables = [_waits(place, floods, chosen.seconds) for floods in GOALS]
    return [*tables, _shares(place, chosen.seconds), _numbers(place, chosen.seconds)]


def _waits(place: Place, floods: int, seconds: float) -> Table:
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    data: dict[str, Any] = {}
    median, most = GOALS[floods]
    for name, way in WAYS.items():
        seen, busy = play(place, way, floods, JOBS["alike"], seconds)
        quiet, steady = seen.waits["quiet"], seen.waits["steady"]
        data[name] = seen.waits
        figures = [percentile(each or [math.inf], share) for each in (quiet, steady) for share in (0.5, 0.99)]
        shares = spread(seen, floods)
        rows.append((name, *(f"{each:.2f}" for each in figures), f"{busy:.2f}", f"{shares[0]:.2f} to {shares[1]:.2f}"))
        targets += [
            Target(f"{name}: median of quiet waits", figures[0], median, most=True, unit=" S"),
            Target(f"{name}: p99 of quiet waits", figures[1], most, most=True, unit=" S"),
            Target(f"{name}: handlers busy", busy, 0.97, unit=""),
        ]
    return Table(
        f"service-{floods}", f"Waits beside {floods} floods with jobs of {S:g} s (S)",
        place.described(f"{HANDLERS} handlers, {seconds:g} s each"),
        ("way", "quiet p50, S", "p99", "two a S p50", "p99", "busy", "floods' shares"), rows, targets, data,
    )  # fmt: skip


def _shares(place: Place, seconds: float) -> Table:
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    data: dict[str, Any] = {}
    for name, job in JOBS.items():
        seen, busy = play(place, worker, 20, job, 2 * seconds)
        low, high = spread(seen, 20)
        data[name] = dict(seen.served)
        rows.append((name, f"{low:.2f}", f"{high:.2f}", f"{busy:.2f}"))
        targets += [
            Target(f"{name}: least share", low, 0.9, unit=""),
            Target(f"{name}: largest share", high, 1.1, most=True, unit=""),
        ]
    return Table(
        "service-shares", "Service time of 20 floods, of an equal share each",
        place.described(f"a Worker of {HANDLERS}, {2 * seconds:g} s each"),
        ("jobs", "least", "most", "busy"), rows, targets, data,
    )  # fmt: skip


def _numbers(place: Place, seconds: float) -> Table:
    """The waits of the one who sends two a S, in each order. In a stream they are behind all that the floods wrote."""
    cases = {f"{name}|{floods}": (settings, floods) for name, settings in ORDERS.items() for floods in NUMBERS}

    def measure(case: str) -> dict[str, float]:
        settings, floods = cases[case]
        seen, _ = play(place, worker, floods, JOBS["alike"], seconds, **settings)
        waits = [*seen.waits["steady"], *[math.inf] * max(0, seen.left)] or [math.inf]
        return {"p50": percentile(waits, 0.5), "p99": percentile(waits, 0.99)}

    rounds = min(ROUNDS, place.settings.rounds)
    runs = take_turns(list(cases), rounds, place.settings.seed, measure, warm=0)
    data = {
        name: {str(floods): [middle(runs[f"{name}|{floods}"], what) for what in ("p50", "p99")] for floods in NUMBERS}
        for name in ORDERS
    }
    rows = [(name, *(_ranges(runs[f"{name}|{floods}"]) for floods in NUMBERS)) for name in ORDERS]
    return Table(
        "service-numbers", "How long a small tenant's short jobs wait, by the number of slow tenants (p50 / p99, in S)",
        place.described(f"a Worker of {HANDLERS}, S = {S:g} s, {rounds} rounds of {seconds:g} s: their range"),
        ("order", *map(str, NUMBERS)), rows, data=data,
    )  # fmt: skip


def _ranges(own: Sequence[dict[str, float]]) -> str:
    """Between which values the rounds lie, of p50 and of p99."""
    return " / ".join(_range([run[what] for run in own]) for what in ("p50", "p99"))


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == most else f"{least} to {most}"


def spread(seen: Seen, floods: int) -> tuple[float, float]:
    got = [seen.served[f"flood-{number}"] for number in range(floods)]
    mean = sum(got) / len(got) or 1.0  # on a machine that stood still nobody got anything
    return min(got) / mean, max(got) / mean


def play(
    place: Place, way: Any, floods: int, job: Callable[[int, random.Random], float], seconds: float, **settings: Any
) -> tuple[Seen, float]:
    """Let handlers work in this *way* for so many seconds. Return what they saw, and how busy they were."""
    rng, chosen = random.Random(place.settings.seed), place.settings
    with Client.from_url(place.url) as client:
        settings = {"streams": chosen.streams, "streams_per_shard": 4, **settings}
        queue = client.queue(f"service-{uuid.uuid4().hex[:8]}", create=True, **settings)
        warm = STARTING if way is processes else WARM
        enough = round((seconds + warm) * HANDLERS / S * 10 / floods) + 10
        for number in range(floods):
            first = rng.random() * S  # else all handlers would end at once, again and again
            queue.write_many(
                [(("flood", 0.0, job(number, rng) if at else first), f"flood-{number}") for at in range(enough)]
            )
        seen = Seen(time.time() + warm, time.time() + warm + seconds)
        with way(queue, place.url, seen):
            at, steady = 0, time.time()
            while (now := time.time()) < seen.ended:
                if now >= steady:
                    steady += S / 2
                    queue.write(("steady", now, S / QUICK), shard_key="steady")
                    seen.left += seen.began < now < seen.ended - LONG * S
                queue.write(("quiet", now, S / QUICK), shard_key=f"quiet-{at}")
                at += 1
                time.sleep(rng.expovariate(1 / GAP))
        queue.delete(expected=None, timeout=30)
        busy = sum(seen.served.values()) / HANDLERS / seconds
    return seen, busy

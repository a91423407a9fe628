"""A night as in the design's pictures, on a real server: five queues, each with something else that is wrong, or well.

Messages, pauses, limits and failures are real. What workers tell of themselves, and the half hour before, is written as
workers write it: nobody waits half an hour for a test.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from shardq import Client, Limits, Queue
from shardq.protocol.beats import Beat, TaskCount, TenantCount, bucket_of, spell_row, spell_work
from shardq.tasks import Tasks
from tests.dashboard.scenery import told, working
from tests.servers import Server

HALF_AN_HOUR: Final = 32
"""Minutes that are written."""
LONG_WAIT: Final = 12_600
"""Messages of the tenant that floods."""


Beats = list[Callable[[], None]]
"""What lets each of the workers that live tell of itself once more."""


@contextmanager
def fallen(server: Server, client: Client, *, large: int = LONG_WAIT) -> Iterator[None]:
    """It is night for the time of a `with`, in which the workers tell of themselves again and again."""
    beats, ends = fall(server, client, large=large), threading.Event()

    def beat() -> None:
        while not ends.wait(5):
            for each in beats:
                each()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def fall(server: Server, client: Client, *, large: int = LONG_WAIT) -> Beats:
    """Let it be night. *large* messages wait of the tenant that floods `reports`."""
    beats: Beats = []
    for one in (_flood, _well, _without_worker, _paused, _failing):
        one(_Place(server, client, beats, large))
    for each in beats:  # all of this took a while
        each()
    return beats


class _Place(NamedTuple):
    """Where it is night."""

    server: Server
    client: Client
    beats: Beats
    large: int


def _flood(here: _Place) -> None:
    queue = _queue(here.client, "reports")
    queue.write_many([(b"x", "lumen-labs")] * here.large)
    queue.write_many([(b"x", f"{name}-{kind}") for name in _NAMES for kind in ("retail", "works")])
    queue.write_many([(b"x", "cedar-health")] * 188)
    queue.write_many([(b"x", "bluefin-group")] * 48)
    for _ in range(30):
        queue.write(b"x", shard_key="atlas-works", delay=600)
    queue.set_limits({"cedar-health": Limits(rate=2.0)}, seconds=5400, by="mira")
    queue.pause("bluefin-group", seconds=1800, by="mira", note="until their import is over")
    for number in range(3):
        stuck = 430.0 if number == 2 else 3.0
        rows = {"lumen-labs": (560, 2.0), "cedar-health": (40, 0.4), "fern-retail": (8, 0.3), "vale-retail": (5, 0.5)}
        _worker(
            here, queue, f"reports-7d9f6b-{number}", slots=16, busy=15.7, longest=stuck, task="reports.render",
            tasks={"reports.render": (800, 1, 1.0), "reports.csv": (170, 0, 0.6)}, tenants=rows,
        )  # fmt: skip
    rng = random.Random(1)
    flood = [
        1320 + rng.randrange(120) + (6000 - abs(at - 12) * 900 if 8 <= at < 18 else 0) for at in range(HALF_AN_HOUR)
    ]
    tasks = {"reports.render": (2150, 1.0), "reports.csv": (470, 0.6), "reports.year_end": (130, 44.0)}
    ages = [max(0.4, (at - 9) * 19.0) for at in range(HALF_AN_HOUR)]
    _past(here.server, queue, flood, [2750] * HALF_AN_HOUR, ages=ages, slots=48, tasks=tasks)


def _well(here: _Place) -> None:
    queue = _queue(here.client, "thumbnails")
    queue.write_many([(b"x", f"{name}-co") for name in _NAMES[:7]])
    _worker(here, queue, "thumbs-5c7f-a", slots=32, busy=9.0, tasks={"thumbnails.make": (7700, 0, 0.07)})
    _past(
        here.server,
        queue,
        [7740] * HALF_AN_HOUR,
        [7740] * HALF_AN_HOUR,
        slots=32,
        tasks={"thumbnails.make": (7740, 0.07)},
    )


def _without_worker(here: _Place) -> None:
    queue = _queue(here.client, "exports")
    queue.write_many([(b"x", f"{_NAMES[at % 9]}-co") for at in range(420)])
    _worker(here, queue, "exports-6f5c9-hx2lq", slots=8, busy=8.0, ago=1320.0, tasks={"exports.run": (20, 0, 24.0)})
    _past(here.server, queue, [18] * 9, [18] * 9, slots=8, ago=23, tasks={"exports.run": (18, 24.0)})


def _paused(here: _Place) -> None:
    queue = _queue(here.client, "invoices")
    queue.write_many([(b"x", f"{_NAMES[at % 17]}-co") for at in range(2663)])
    queue.pause(by="jonas", note="until the VAT fix is out")
    _worker(here, queue, "invoices-849-k", slots=16, busy=0.0)
    _past(here.server, queue, [24] * HALF_AN_HOUR, [0] * HALF_AN_HOUR, slots=16)


def _failing(here: _Place) -> None:
    tasks: Tasks[None] = Tasks("mails", streams=2)

    @tasks.task(name="mail.send_receipt", retries=9)
    def send(number: int) -> None:
        raise TimeoutError

    queue = here.client.queue(tasks)
    queue.write_many([(send.call(number), f"{_NAMES[number % 9]}-co") for number in range(60)])
    with working(here.client, tasks, concurrency=8):
        told(lambda: {"failed": queue.stats().failed}, lambda found: found["failed"] >= 60)
    _worker(here, queue, "mails-5b7c4-9xx2v", slots=32, busy=11.0, tasks={"mail.send_digest": (4200, 2, 0.15)})
    _past(here.server, queue, [4300] * HALF_AN_HOUR, [4290] * HALF_AN_HOUR, slots=32, failed=200,
          tasks={"mail.send_digest": (10, 0.15)})  # fmt: skip


_NAMES: Final = (
    "fern", "slate", "flint", "river", "quill", "clover", "wren", "vale", "harbor", "otter", "hazel", "pine", "brook",
    "north", "juniper", "maple", "atlas", "linden",
)  # fmt: skip


def _queue(client: Client, name: str) -> Queue:
    queue = client.queue(name, streams=2)
    queue.declare()
    return queue


def _worker(
    here: _Place,
    queue: Queue,
    name: str,
    *,
    slots: int,
    busy: float,
    ago: float = 0.0,
    longest: float | None = None,
    task: str = "",
    tasks: dict[str, tuple[int, int, float]] | None = None,
    tenants: dict[str, tuple[int, float]] | None = None,
) -> None:
    """Let a worker tell of itself, as of so many seconds *ago*; one that is not long ago does so again."""

    def tell() -> None:
        heard = queue.stats().time - ago
        beat = Beat(
            is_end=False, slots=slots, busy=busy, started=heard - 7200, pid=31, memory=2**28, memory_limit=None,
            version="0.1.0", host=name, longest_since=None if longest is None else heard - longest,
            longest_message="", longest_task=task,
            tasks={each: TaskCount(done, failed, done * mean, ())
                   for each, (done, failed, mean) in (tasks or {}).items()},
            tenants={each: TenantCount(done, done * 0.9, _counts(done, wait))
                     for each, (done, wait) in (tenants or {}).items()},
            others=_counts(100, 0.4),
        )  # fmt: skip
        with here.server.client() as raw:
            raw.hset(queue.state.keys.workers, name, f"{round(heard * 1000)}|{spell_row(beat)}")

    tell()
    if not ago:
        here.beats.append(tell)


def _counts(count: int, seconds: float) -> list[int]:
    found = [0] * 16
    found[bucket_of(seconds)] = count
    return found


def _past(
    server: Server,
    queue: Queue,
    written: list[int],
    done: list[int],
    *,
    slots: int,
    ages: list[float] | None = None,
    failed: int = 0,
    ago: int = 0,
    tasks: dict[str, tuple[int, float]] | None = None,
) -> None:
    """Write down what the queue did in each of the last minutes, of which the last was so many minutes *ago*."""
    minute = math.floor(queue.stats().time / 60) - ago
    sums = [1000, 1000, 0]
    with server.client() as raw:
        for at in range(len(written)):
            number = minute - len(written) + 1 + at
            sums = [sums[0] + written[at], sums[1] + done[at], sums[2] + failed]
            age = ages[at] if ages else 0.1
            row = f"{number}|1|{slots}|{0.9 * slots:.2f}|{sums[0]}|{sums[1]}|{sums[2]}|0|50|50|4|{round(1000 * age)}"
            work = {
                name: TaskCount(count, 0, count * mean, _counts(count, mean))
                for name, (count, mean) in (tasks or {}).items()
            }
            raw.hset(queue.state.keys.minutes, f"m{number % 480}", row)
            if work:
                raw.hset(queue.state.keys.minutes, f"k{number % 60}", spell_work(number, work))

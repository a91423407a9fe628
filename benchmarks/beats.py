"""beats: what do the beats of 1,000 workers cost the server, beside a plain HSET of what they say?

Each worker tells of itself each 5 s, and once a minute what it did of each task. A beat goes out behind a read; so here
50 go out in one pipeline, and the trip costs next to nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import Contender, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Queue
from shardq.ops.inspect.beats import beat_call
from shardq.protocol.beats import BUCKETS, Beat, TaskCount, TenantCount, spell_row, spell_work
from shardq.protocol.packing import pack
from shardq.protocol.script import FUNCTION

WORKERS: Final = 1000
PERIOD: Final = 5
A_MINUTE: Final = 60 // PERIOD
TASKS: Final = (1, 5, 24)
TOGETHER: Final = 50
PART: Final = 0.3
"""Percent of a core that they may cost."""
SPREAD: Final = [0, 0, 0, 60, 30, 10, *[0] * (BUCKETS - 6)]


def run(place: Place) -> list[Table]:
    chosen = place.settings
    beats = WORKERS * max(1, round(A_MINUTE * chosen.messages / 5000))
    with Client.from_url(place.url) as client, connect(place.url) as server:
        contenders = [
            each
            for tasks in TASKS
            for each in _contenders(server, client.queue(f"beats-{uuid.uuid4().hex[:8]}", create=True), tasks, beats)
        ]
        runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
    rows, targets = [], []
    for tasks in TASKS:
        ours, plain = runs[_name(tasks)], runs[f"HSET {tasks}"]
        spent, cpu = middle(ours, "commands"), middle(ours, "server")
        shares = [value * WORKERS / PERIOD / 1e4 for value in (spent, cpu)]
        rows.append((
            str(tasks), us(spent), us(cpu), us(middle(plain, "commands")), times(ratio(ours, plain, "server")),
            *(f"{share:.2f} %" for share in shares),
        ))  # fmt: skip
        targets.append(Target(f"beats of 1,000 workers with {tasks} tasks", shares[0], PART, True, " % of a core"))
    return [
        Table(
            "beats",
            f"The beats of {WORKERS:,} workers, {beats:,} a round",
            place.described(),
            ("tasks", "a beat in the server", "its CPU", "HSET of the row", "CPU / HSET", "of a core", "by its CPU"),
            rows,
            targets,
            {name: [each._asdict() for each in own] for name, own in runs.items()},
        )
    ]


def _name(tasks: int) -> str:
    return f"{tasks} tasks"


def _contenders(server: Any, queue: Queue, tasks: int, beats: int) -> list[Contender]:
    queue.declare()
    rows = [_row(number, tasks) for number in range(WORKERS)]
    work = {f"billing.task_{number}": TaskCount(100, number, 50.0 * number, SPREAD) for number in range(tasks)}

    def beat(number: int) -> bytes:
        worker, minute = number % WORKERS, int(time.time() // 60)
        told = spell_work(minute, work) if number // WORKERS % A_MINUTE == worker % A_MINUTE else ""
        return beat_call(queue.state, f"worker-{worker}", rows[worker], told, "", first=told != "").request(FUNCTION)

    def plain(number: int) -> bytes:
        worker = number % WORKERS
        return pack(("HSET", f"{queue.state.keys.workers}-plain", f"worker-{worker}", rows[worker]))

    return [
        Contender(_name(tasks), beats, lambda: _sent(server, beat, beats)),
        Contender(f"HSET {tasks}", beats, lambda: _sent(server, plain, beats), commands=("hset",)),
    ]


def _sent(server: Any, command: Callable[[int], bytes], count: int) -> None:
    connection = server.connection_pool.get_connection()
    for first in range(0, count, TOGETHER):
        part = range(first, min(first + TOGETHER, count))
        connection.send_packed_command([b"".join(map(command, part))])
        for _ in part:
            connection.read_response()
    server.connection_pool.release(connection)


def _row(worker: int, tasks: int) -> str:
    now = time.time()
    return spell_row(
        Beat(
            is_end=False, slots=64, busy=12.5, started=now, pid=1000 + worker, memory=1 << 26,
            memory_limit=1 << 29, version="0.1.0", host=f"host-{worker}", longest_since=now,
            longest_message="1795993098049-2-3", longest_task="billing.task_0",
            tasks={f"billing.task_{number}": TaskCount(100, number, 5.0, SPREAD) for number in range(tasks)},
            tenants={f"tenant-{number}": TenantCount(40 - number, 3.0, SPREAD) for number in range(20)},
            others=SPREAD,
        )
    )  # fmt: skip

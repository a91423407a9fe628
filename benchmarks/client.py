"""client: where does the CPU time of a call go in the client's process?

A timer interrupts the process as its CPU time passes, and notes which layer it was in. So nothing is slowed down that a
profiler would slow down, and what a layer costs is known to some percent of the whole.
"""

from __future__ import annotations

import asyncio
import linecache
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import shardq
from benchmarks.report import Table, us
from benchmarks.settings import Place
from shardq import AsyncClient, AsyncQueue, Client, Message, Queue

TICK: Final = 0.001
BATCH: Final = 100
TENANTS: Final = 100
LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    "client": ("client/", "telemetry.py", "codec.py", "arguments.py", "model/"),
    "dealing": ("sharding.py",),
    "reply": ("protocol/bodies.py", "protocol/replies.py"),
    "template": ("protocol/", "ops/queue/steps.py", "command.py"),
    "sharing": ("ops/sharing/", "drivers/sharing.py", "drivers/async_sharing.py", "drivers/leading.py"),
    "operation": ("ops/",),
    "driver": ("drivers/",),
}
"""By layer, where its files lie in shardq/; the first that fits counts. A request's `template` is one of bytes."""
SOCKET: Final = (".send(", ".recv_into(", "select(")
PARSER: Final = (".gets()", "= gets()", ".feed(")
COLUMNS: Final = (*LAYERS, "socket", "event loop", "rest")
PACKAGE: Final = f"{Path(shardq.__file__).parent}/"


def layer_of(frame: FrameType | None) -> str:
    """The layer of the innermost frame that has one."""
    while frame is not None:
        path, code = frame.f_code.co_filename, linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0)
        if path.startswith(PACKAGE) or "/asyncio/" in path or path.endswith("/selectors.py"):
            if any(each in code for each in SOCKET):
                return "socket"
            if any(each in code for each in PARSER):
                return "reply"
            if not path.startswith(PACKAGE):
                return "event loop"
            inner = path.removeprefix(PACKAGE)
            return next((name for name, places in LAYERS.items() if any(each in inner for each in places)), "rest")
        frame = frame.f_back
    return "rest"


@contextmanager
def sampled() -> Iterator[Counter[str]]:
    """Count how often the process was in which layer, as its CPU time passes."""
    seen: Counter[str] = Counter()

    def note(_: int, frame: FrameType | None) -> None:
        seen[layer_of(frame)] += 1

    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
    try:
        yield seen
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(place: Place) -> list[Table]:
    rows, data = [], {}
    for name, (cost, seen) in measured(place).items():
        ticks = max(1, seen.total())
        rows.append((name, us(cost * 1e6), *(f"{cost * seen[each] / ticks * 1e6:.1f}" for each in COLUMNS)))
        data[name] = {"cost": cost, "samples": dict(seen)}
    return [
        Table(
            "client",
            "CPU time of the client's process, a message, and its layers in µs",
            place.described(f"{TENANTS} tenants, batches of {BATCH}"),
            ("call", "all", *COLUMNS),
            rows,
            data=data,
        )
    ]


Costs = dict[str, tuple[float, Counter[str]]]


def measured(place: Place) -> Costs:
    """By call, seconds of CPU a message and how often each layer was seen."""
    number, name = max(BATCH, 4 * place.settings.messages), f"client-{uuid.uuid4().hex[:8]}"
    with Client.from_url(place.url) as client, asyncio.Runner() as runner:
        queue = client.queue(name, streams=64, streams_per_shard=6)
        costs = {f"sync {verb}": cost(call, number, size) for verb, call, size in sync_calls(queue)}
        other = AsyncClient.from_url(place.url)
        costs |= runner.run(async_costs(other.queue(name, streams=64, streams_per_shard=6), number))
        runner.run(other.aclose())
        queue.delete(expected=None)
    return costs


def cost(call: Callable[[], Any], number: int, size: int = 1) -> tuple[float, Counter[str]]:
    """What a message costs where one call is of *size* messages."""
    for _ in range(max(1, number // size // 10)):
        call()
    with sampled() as seen:
        began = time.process_time()
        for _ in range(number // size):
            call()
        spent = time.process_time() - began
    return spent / number, seen


def sync_calls(queue: Queue) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """The calls in an order in which those that read find something."""
    tenants = (f"tenant-{at % TENANTS}" for at in count())
    payload = b"x" * 100
    yield "write", lambda: queue.write(payload, shard_key=next(tenants)), 1
    yield (
        "write(headers=, deadline=)",
        lambda: queue.write(payload, shard_key=next(tenants), headers={"kind": "bench"}, deadline=600),
        1,
    )
    yield "write_many", lambda: queue.write_many([(payload, next(tenants)) for _ in range(BATCH)]), BATCH
    yield "read, ack", lambda: queue.read().ack(), 1
    last = [queue.read()]
    yield "read(ack=)", lambda: last.append(queue.read(ack=last.pop())), 1
    yield "read_many, ack_many", lambda: queue.ack_many(queue.read_many(BATCH)), BATCH


async def async_costs(queue: AsyncQueue, number: int) -> Costs:
    """The same for asyncio: one call after the other, and many at once."""
    payload = b"x" * 100
    tenants = (f"tenant-{at % TENANTS}" for at in count())

    async def write() -> None:
        await queue.write(payload, shard_key=next(tenants))

    async def write_together() -> None:
        await asyncio.gather(*(write() for _ in range(BATCH)))

    async def write_many() -> None:
        await queue.write_many([Message(payload, shard_key=next(tenants)) for _ in range(BATCH)])

    async def read() -> None:
        await (await queue.read()).ack()

    costs: Costs = {}
    calls = (("write", write, 1), ("write, 100 at once", write_together, BATCH), ("write_many", write_many, BATCH))
    for verb, call, size in (*calls, ("read, ack", read, 1)):
        with sampled() as seen:
            began = time.process_time()
            for _ in range(number // size):
                await call()
            spent = time.process_time() - began
        costs[f"async {verb}"] = spent / number, seen
    return costs

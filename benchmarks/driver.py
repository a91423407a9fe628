"""driver: what shardq's client (operations and driver) costs on top of redis-py, one call after the other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import Contender, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import AsyncClient, Client
from shardq.ops.queue.steps import Call, Op


def run(place: Place) -> list[Table]:
    calls = max(20, place.settings.messages // 2)
    with Client.from_url(place.url) as client, connect(place.url) as server, asyncio.Runner() as runner:
        queue = client.queue(f"driver-{uuid.uuid4().hex[:8]}", create=True)
        queue.write(b"x", shard_key="a")
        call = Call.on(queue.state.keys, "len")
        script, keys = call.script, call.keys
        server.function_load(script.library.text, replace=True)
        other = AsyncClient.from_url(place.url)

        def op() -> Op[Any]:
            return (yield Call(script, keys))

        async def repeated() -> None:
            for _ in range(calls):
                await other.run(op())

        def contender(name: str, call: Callable[[], Any]) -> Contender:
            return Contender(name, calls, lambda: [call() for _ in range(calls)])

        contenders = [
            contender("redis-py fcall(len)", lambda: server.fcall_ro(script.function, len(keys), *keys)),
            contender("the driver, the same call", lambda: client.run(op())),
            Contender("the asyncio driver, the same call", calls, lambda: runner.run(repeated())),
            contender("Queue.len()", queue.len),
        ]
        runs = take_runs(server, contenders, place.settings.rounds, place.settings.seed)
        runner.run(other.aclose())
    reference = runs["redis-py fcall(len)"]
    rows = []
    for name, own in runs.items():
        cells = [name, us(middle(own, "wall")), times(ratio(own, reference, "wall"))]
        rows.append((*cells, us(middle(own, "client")), times(ratio(own, reference, "client"))))
    same = ratio(runs["the driver, the same call"], reference, "wall")
    return [
        Table(
            "driver",
            "One call after the other",
            place.described(),
            ("", "clock", "/ redis-py", "client CPU", "/ redis-py"),
            rows,
            [Target("the driver against redis-py, by the clock", same, 1.08, True)],
            {name: [run._asdict() for run in own] for name, own in runs.items()},
        )
    ]

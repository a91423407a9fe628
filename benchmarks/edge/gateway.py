"""What a gateway takes, on loopback, beside writing to Redis directly."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import redis

from benchmarks.edge.contest import ROOT, line_of, process
from benchmarks.edge.kinds import messages as rows
from benchmarks.edge.producer import BEFORE, QUEUE, write_file
from benchmarks.processes import cpu_of
from benchmarks.report import Table, Target, times, us
from benchmarks.rounds import server_cpu
from benchmarks.settings import Place, machine
from shardq import Client, Queue

PRODUCERS: Final = 4
BYTES: Final = 200
"""Of a message, about."""
GATEWAY: Final = "a gateway, {} producer{} with a spool"


def beside_redis(where: Place) -> Table:
    """Small messages: written directly, one after the other, by a writer, in batches; and through a gateway."""
    messages = rows("CSV rows", where.settings.seed, 16 * BYTES * where.settings.messages)
    rounds = [_round(where.url, messages) for _ in range(5 if where.settings.rounds > 5 else 1)]
    names = list(rounds[0])
    costs = {name: Costs(*map(median, zip(*(each[name] for each in rounds), strict=True))) for name in names}
    writer = costs["writer()"].rate
    context = f"{where.server.name}, no AOF, loopback; {machine()}; "
    one = costs[GATEWAY.format(1, "")]
    return Table(
        "edge_gateway",
        "Messages of 200 B through a gateway, and directly",
        f"{context}{len(rounds)} rounds, {len(messages):,} rows of CSV; CPU for each message, after "
        f"{BEFORE // 10**6} MB for a dictionary",
        ("", "messages/s", "of writer()", "CPU", "gateway's", "server's", "messages/s, a core each"),
        [
            (name, f"{each.rate:,.0f}", times(each.rate / writer), *each.shown(), f"{each.with_cores:,.0f}")
            for name, each in costs.items()
        ],
        data={name: [list(each[name]) for each in rounds] for name in names},
        targets=[
            Target("1 producer, messages/s with a core each", one.with_cores, 15_000, unit=""),
            Target("1 producer, CPU", one.edge, 60, most=True, unit=" µs"),
        ],
    )


class Costs(NamedTuple):
    """Messages per second, and µs of CPU for each: of each producer or writer, of the gateway, of the server."""

    rate: float
    edge: float
    gateway: float
    server: float
    producers: float = 1

    @property
    def with_cores(self) -> float:
        """Messages per second if each process has a core of its own: what the busiest of them can do."""
        return 1e6 / max(self.edge / self.producers, self.gateway, self.server)

    def shown(self) -> tuple[str, str, str]:
        """The costs as text."""
        return us(self.edge), us(self.gateway) if self.gateway else "", us(self.server)


def _round(url: str, messages: list[tuple[str, bytes]]) -> dict[str, Costs]:
    """What each of the contenders costs."""
    found: dict[str, Costs] = {}
    with redis.from_url(url) as plain:

        def directly(work: Callable[[Queue], object], share: int = 1) -> Costs:
            plain.flushall()
            with Client.from_url(url) as client:
                queue = client.queue(QUEUE, streams=16)
                queue.read_many(1)
                begun, used, server = time.perf_counter(), time.process_time(), server_cpu(plain)
                work(queue)
                seconds, count = time.perf_counter() - begun, len(messages) / share
                used, server = time.process_time() - used, server_cpu(plain) - server
            return Costs(count / seconds, 1e6 * used / count, 0.0, 1e6 * server / count)

        found["write(), one after the other"] = directly(lambda queue: _write(queue, messages[::10]), 10)
        found["writer()"] = directly(lambda queue: _write_all(queue, messages))
        found["write_many(100)"] = directly(lambda queue: _write_many(queue, messages))
        for producers in (1, PRODUCERS):
            plain.flushall()
            with Client.from_url(url) as client:
                client.queue(QUEUE, streams=16).read_many(1)
                costs = _through_gateway(url, plain, messages, producers)
            found[GATEWAY.format(producers, "s" if producers > 1 else "")] = costs
    return found


def _write(queue: Queue, messages: list[tuple[str, bytes]]) -> None:
    for key, payload in messages:
        queue.write(payload, shard_key=key)


def _write_all(queue: Queue, messages: list[tuple[str, bytes]]) -> None:
    with queue.client.writer() as writer:
        for key, payload in messages:
            writer.write(queue, payload, shard_key=key)


def _write_many(queue: Queue, messages: list[tuple[str, bytes]]) -> None:
    for at in range(0, len(messages), 100):
        queue.write_many([(payload, key) for key, payload in messages[at : at + 100]])


def _through_gateway(url: str, plain: redis.Redis, messages: list[tuple[str, bytes]], producers: int) -> Costs:
    """Send all by producers that have a dictionary, from the first message to the last ack."""
    words = ("serve", "gateway", "--insecure", "--listen", "127.0.0.1:0", "--redis", url, "--json")
    with tempfile.TemporaryDirectory() as folder, process("shardq.cli", *words) as gateway:
        address = json.loads(line_of(gateway))["address"]
        before, server = cpu_of(gateway.pid), server_cpu(plain)
        running = []
        for at in range(producers):
            file = Path(folder) / str(at)
            learnt = [*islice(cycle(messages), BEFORE // BYTES)]
            write_file(file, [*learnt, *messages[at::producers]])
            command = [sys.executable, "-m", "benchmarks.edge.producer", "steady", address, str(file), address]
            running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        told = [json.loads(each.communicate()[0]) for each in running]  # which closes their pipes
        server, used = server_cpu(plain) - server, cpu_of(gateway.pid) - before
        with Client.from_url(url) as client:
            stored = client.queue(QUEUE, create=True).len()
    all_sent = len(messages) + producers * len(learnt)
    if stored != all_sent:
        raise SystemExit(f"{stored:,} of {all_sent:,} messages are in the queue")
    edge = sum(each["cpu"] for each in told) / len(messages)
    rate = len(messages) / max(each["seconds"] for each in told)
    return Costs(rate, 1e6 * edge, 1e6 * used / all_sent, 1e6 * server / all_sent, producers)

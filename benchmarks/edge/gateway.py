"""What a gateway takes, on loopback, beside writing to Redis directly."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import redis

from benchmarks.edge.contest import ROOT, line_of, process
from benchmarks.edge.producer import QUEUE, write_file
from benchmarks.processes import cpu_of
from benchmarks.report import Table, times, us
from benchmarks.settings import Place
from benchmarks.traffic import traffic
from shardq import Client, Queue

PRODUCERS: Final = 4


def beside_redis(where: Place) -> Table:
    """Small messages: written directly, one after the other, by a writer, in batches; and through a gateway."""
    count = 2 * where.settings.messages
    messages = [(key, payload) for payload, key in traffic(count, 200, 1000, where.settings.seed)]
    rounds = [_round(where.url, messages) for _ in range(5 if where.settings.rounds > 5 else 1)]
    names = list(rounds[0])
    rates = {name: median(each[name][0] for each in rounds) for name in names}
    rows: list[tuple[str, ...]] = []
    for name in names:
        gateway = median(each[name][1] for each in rounds)
        rows.append(
            (name, f"{rates[name]:,.0f}", times(rates[name] / rates["writer()"]), us(gateway) if gateway else "")
        )
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    context = f"{where.server.name}, no AOF, loopback; {machine}, Python {platform.python_version()}; "
    return Table(
        "edge_gateway",
        "Messages of 200 B through a gateway, and directly",
        f"{context}{len(rounds)} rounds, {count:,} messages, 1,000 tenants",
        ("", "messages/s", "of writer()", "gateway's CPU per message"),
        rows,
        data={name: [list(each[name]) for each in rounds] for name in names},
    )


def _round(url: str, messages: list[tuple[str, bytes]]) -> dict[str, tuple[float, float]]:
    """Messages per second, and µs of the gateway's CPU for each."""
    found: dict[str, tuple[float, float]] = {}
    with redis.from_url(url) as plain:

        def directly(work: Callable[[Queue], object], share: int = 1) -> tuple[float, float]:
            plain.flushall()
            with Client.from_url(url) as client:
                queue = client.queue(QUEUE, streams=16)
                queue.read_many(1)
                begun = time.perf_counter()
                work(queue)
                return len(messages) / share / (time.perf_counter() - begun), 0.0

        found["write(), one after the other"] = directly(lambda queue: _write(queue, messages[::10]), 10)
        found["writer()"] = directly(lambda queue: _write_all(queue, messages))
        found["write_many(100)"] = directly(lambda queue: _write_many(queue, messages))
        for producers in (1, PRODUCERS):
            plain.flushall()
            name = f"a gateway, {producers} producer{'s' if producers > 1 else ''} with a spool"
            with Client.from_url(url) as client:
                client.queue(QUEUE, streams=16).read_many(1)
                found[name] = _through_gateway(url, messages, producers)
                if (stored := client.queue(QUEUE, create=True).len()) != len(messages):
                    raise SystemExit(f"{stored:,} of {len(messages):,} messages are in the queue")
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


def _through_gateway(url: str, messages: list[tuple[str, bytes]], producers: int) -> tuple[float, float]:
    """Time all producers from the first message to the last ack; that of starting them does not count."""
    words = ("gateway", "--insecure", "--listen", "127.0.0.1:0", "--redis", url, "--json")
    with tempfile.TemporaryDirectory() as folder, process("shardq.cli", *words) as gateway:
        address = json.loads(line_of(gateway))["address"]
        before = cpu_of(gateway.pid)
        running = []
        for at in range(producers):
            file = Path(folder) / str(at)
            write_file(file, messages[at::producers])
            command = [sys.executable, "-m", "benchmarks.edge.producer", "trained", address, str(file), address]
            running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        told = [json.loads(each.communicate()[0]) for each in running]  # which closes their pipes
        seconds = max(each["seconds"] for each in told)
        return len(messages) / seconds, 1e6 * (cpu_of(gateway.pid) - before) / len(messages)

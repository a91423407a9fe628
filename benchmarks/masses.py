"""Leases of one shard key that all end at once: how long until all came again, how long the calls take meanwhile."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Any, Final

import redis

from benchmarks.report import Table, Target, us
from benchmarks.settings import Place
from shardq import Client, Queue

TIMES: Final = 20
"""So many leases for each message that other benchmarks take."""

BATCH: Final = 1000
LASTS: Final = 600.0
SLOW: Final = 500
"""µs: calls that take longer are counted by the server, far more of them than there can be."""


def table(place: Place) -> Table:
    """Without a window and with one; the first delivery of the same messages beside it."""
    count = place.settings.messages * TIMES
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    data: dict[str, Any] = {}
    with contextlib.closing(redis.Redis.from_url(place.url, protocol=2)) as raw:
        raw.config_set("slowlog-max-len", count)
        for window in (0, 1):
            first, again, calls, spent, before = measured(place, raw, count, window)
            data[f"window {window}"] = {
                "first": first,
                "again": again,
                "calls": calls,
                "cpu": spent,
                "before": before,
            }
            slow = (f"{p99(calls):.1f} ms", f"{calls[-1]:.1f} ms")
            rows.append((f"window {window}", f"{first:.2f} s", f"{again:.2f} s", *slow, us(spent), f"{before:,}"))
            targets += [
                Target(f"window {window}: seconds beyond the first delivery", again - first, 1.0, True, " s"),
                Target(f"window {window}: p99 of the calls", p99(calls), 5.0, True, " ms"),
            ]
    return Table(
        "expiry-masses",
        f"{count:,} leases of one shard key that end at once, one of another 5 ms later; batches of {BATCH:,}",
        place.described("one run"),
        ("", "first delivery", "all again", "calls p99", "longest", "server CPU each", "messages before the other one"),
        rows,
        targets,
        data,
    )


def measured(place: Place, raw: Any, count: int, window: int) -> tuple[float, float, list[float], float, int]:
    """Seconds of both deliveries, the calls' ms in order, server CPU in µs, how many came before the other one."""
    chosen = place.settings
    with Client.from_url(place.url) as client:
        name = f"masses-{uuid.uuid4().hex[:8]}"
        queue = client.queue(name, streams=chosen.streams, streams_per_shard=chosen.per_shard, window=window)
        body = bytes(chosen.payload)
        for start in range(0, count, BATCH):
            queue.write_many([(body, "flood")] * min(BATCH, count - start))
        first, _ = delivered(queue)
        queue.write(body, shard_key="other")
        time.sleep(0.005)
        queue.read(visibility_timeout=LASTS)
        end_all(raw, queue)
        raw.config_set("slowlog-log-slower-than", SLOW)
        raw.slowlog_reset()
        spent = server_cpu(raw)
        again, before = delivered(queue)
        spent = server_cpu(raw) - spent
        raw.config_set("slowlog-log-slower-than", -1)
        calls = sorted(row["duration"] / 1e3 for row in raw.slowlog_get(count) if row["command"].startswith(b"EVALSHA"))
        raw.delete(*(queue.state.keys.fixed), *map(queue.state.keys.stream, range(chosen.streams)))
        return first, again, calls, spent / count * 1e6, before


def p99(calls: list[float]) -> float:
    """The 99th percentile; the longest of hundreds is one that the machine interrupted, as often as not."""
    return calls[len(calls) * 99 // 100]


def delivered(queue: Queue) -> tuple[float, int]:
    """Read all; the seconds that took, and how many came before the other shard key's."""
    started, found, before = time.perf_counter(), 0, -1
    while batch := queue.read_many(BATCH, visibility_timeout=LASTS):
        keys = [each.shard_key for each in batch]
        before = found + keys.index("other") if "other" in keys else before
        found += len(batch)
    return time.perf_counter() - started, before


def server_cpu(raw: Any) -> float:
    """Seconds of CPU that the server has used."""
    told = raw.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def end_all(raw: Any, queue: Queue) -> None:
    """Let the time of all leases pass: to the scripts moving deadlines is the same as waiting."""
    for key in (queue.state.keys.leases, queue.state.keys.due):
        with raw.pipeline(transaction=False) as pipe:
            for member in raw.zrange(key, 0, -1):
                if member:
                    pipe.zadd(key, {member: -LASTS * 1000 - 1000}, xx=True, incr=True)
            pipe.execute()

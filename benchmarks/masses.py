"""Leases of one or many shard keys that end at once: how long until all are delivered again, and how long are calls?"""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from typing import Any, Final, NamedTuple

import redis

from benchmarks.report import Table, Target, us
from benchmarks.settings import Place
from shardq import Client, Delivery, Queue

TIMES: Final = 20
"""So many leases for each message that other benchmarks take."""

BATCH: Final = 1000
LASTS: Final = 600.0
SLOW: Final = 500
"""µs: the server logs calls that take longer (its slow log, which is made large enough for all of them)."""


class Mass(NamedTuple):
    """Seconds that deliveries of all took: the first, after all leases ended, and after all were given back.

    Of the second one also the calls' ms in order, server CPU per message in µs, and how many came before the other one.
    """

    first: float
    ended: float
    returned: float
    calls: list[float]
    cpu: float
    before: int


def table(place: Place) -> Table:
    """Without a window and with one; beside it the same messages read when their holder gave them back."""
    count = place.settings.messages * TIMES
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    data: dict[str, Any] = {}
    with contextlib.closing(redis.Redis.from_url(place.url, protocol=2)) as raw:
        raw.config_set("slowlog-max-len", count)
        for window, keys in itertools.product((0, 1), (1, place.settings.tenants)):
            mass = measured(place, raw, count, window, keys)
            name = f"window {window}, {keys:,} shard key{'s' * (keys > 1)}"
            data[name] = mass._asdict()
            seconds = (f"{mass.first:.2f} s", f"{mass.returned:.2f} s", f"{mass.ended:.2f} s")
            slow = (f"{p99(mass.calls):.1f} ms", f"{mass.calls[-1]:.1f} ms")
            rows.append((name, *seconds, *slow, us(mass.cpu), f"{mass.before:,}"))
            targets += [
                Target(
                    f"{name}: seconds beyond reading what was given back", mass.ended - mass.returned, 1.0, True, " s"
                ),
                Target(f"{name}: p99 of the calls", p99(mass.calls), 5.0, True, " ms"),
                Target(f"{name}: share of the calls above 5 ms", above(mass.calls), 0.0, True, " %"),
            ]
    return Table(
        "expiry-masses",
        f"{count:,} leases that end at once, one of another shard key 5 ms later; batches of {BATCH:,}",
        place.described("one run"),
        (
            "",
            "first read",
            "given back, read",
            "ended, read",
            "calls p99",
            "longest",
            "server CPU each",
            "before the other",
        ),
        rows,
        targets,
        data,
    )


def measured(place: Place, raw: Any, count: int, window: int, keys: int) -> Mass:
    """All deliveries of *count* messages of so many shard keys, and of one message of another."""
    chosen = place.settings
    with Client.from_url(place.url) as client:
        name = f"masses-{uuid.uuid4().hex[:8]}"
        queue = client.queue(name, streams=chosen.streams, streams_per_shard=chosen.per_shard, window=window)
        body = bytes(chosen.payload)
        for start in range(0, count, BATCH):
            queue.write_many([(body, f"flood-{each % keys}") for each in range(start, min(start + BATCH, count))])
        first, _ = delivered(queue)
        queue.write(body, shard_key="other")
        time.sleep(0.005)
        queue.read(visibility_timeout=LASTS)
        end_all(raw, queue)
        raw.config_set("slowlog-log-slower-than", SLOW)
        raw.slowlog_reset()
        spent = server_cpu(raw)
        ended, found = delivered(queue)
        spent = server_cpu(raw) - spent
        raw.config_set("slowlog-log-slower-than", -1)
        calls = sorted(row["duration"] / 1e3 for row in raw.slowlog_get(count) if row["command"].startswith(b"FCALL"))
        queue.nack_many(found)
        returned, _ = delivered(queue)
        raw.delete(*(queue.state.keys.fixed), *map(queue.state.keys.stream, range(chosen.streams)))
        before = [each.shard_key for each in found].index("other")
        return Mass(first, ended, returned, calls, spent / count * 1e6, before)


def p99(calls: list[float]) -> float:
    """The 99th percentile. The longest of hundreds of calls is often one that the machine interrupted."""
    return calls[len(calls) * 99 // 100]


def above(calls: list[float], most: float = 5.0) -> float:
    """How many percent of the calls took more than so many ms."""
    return 100 * sum(1 for each in calls if each > most) / len(calls)


def delivered(queue: Queue) -> tuple[float, list[Delivery]]:
    """Read all messages; how many seconds that took, and the deliveries."""
    started, found = time.perf_counter(), list[Delivery]()
    while batch := queue.read_many(BATCH, visibility_timeout=LASTS):
        found += batch
    return time.perf_counter() - started, found


def server_cpu(raw: Any) -> float:
    """Seconds of CPU that the server has used."""
    told = raw.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def end_all(raw: Any, queue: Queue) -> None:
    """End all leases by moving their deadlines, which to a call is the same as waiting."""
    keys, by = queue.state.keys, -round(LASTS * 1000) - 1000
    with raw.pipeline(transaction=False) as pipe:
        for member in filter(None, raw.zrange(keys.leases, 0, -1)):
            pipe.zadd(keys.leases, {member: by}, xx=True, incr=True)
        pipe.hincrbyfloat(keys.meta, "lease_at", by)
        pipe.execute()

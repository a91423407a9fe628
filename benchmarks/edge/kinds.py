"""Kinds of data that producers at the edge send: log lines, rows of sensors, metrics, snapshots. All from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from random import Random
from typing import Any, Final

from benchmarks.edge.metrics import Site

BEGIN: Final = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
_SERVICES: Final = ("checkout", "search", "feed", "auth", "media", "billing", "geo", "mail")
_PATHS: Final = (
    "/v1/cart",
    "/v1/items/{}",
    "/v1/users/{}/orders",
    "/v2/search",
    "/v1/session",
    "/healthz",
    "/v1/img/{}",
)
_ERRORS: Final = (
    "upstream timed out after 3000 ms", "connection reset by peer", "retrying, the lock is held by pid {}",
    "slow query on orders_{}, no index", "payload of {} bytes exceeds the soft limit",
)  # fmt: skip


def log_lines(seed: int) -> Iterator[tuple[str, bytes]]:
    """Lines of the log of a few services, about 124 B: times, words that repeat, and numbers that do not."""
    rng, now = Random(seed), BEGIN
    pods = [f"{rng.choice(_SERVICES)}-{rng.randrange(16**5):05x}" for _ in range(24)]
    while True:
        now += timedelta(milliseconds=rng.expovariate(1 / 7))
        stamp, pod = now.isoformat(timespec="milliseconds"), rng.choice(pods)
        user, took = int(rng.paretovariate(0.6)) % 90_000, int(rng.lognormvariate(3, 1))
        if rng.random() < 0.93:
            path = rng.choice(_PATHS).format(int(rng.paretovariate(0.4)) % 50_000)
            status = rng.choices((200, 201, 204, 304, 404, 500), (80, 6, 4, 6, 3, 1))[0]
            method = "POST" if status == 201 else "GET"
            what = f"method={method} path={path} status={status} user={user} took_ms={took}"
            text = f"INFO  [{pod}] http request done {what}"
        else:
            text = f"WARN  [{pod}] {rng.choice(_ERRORS).format(rng.randrange(60_000))} user={user} took_ms={took}"
        yield pod, f"{stamp} {text}".encode()


def rows(seed: int) -> Iterator[tuple[str, bytes]]:
    """Rows of CSV, about 199 B: a device, where it is, how it is, and measurements that walk."""
    rng, now = Random(seed), BEGIN
    devices = [_Device(rng, number) for number in range(150)]
    while True:
        now += timedelta(seconds=rng.expovariate(20))
        device = rng.choice(devices)
        yield device.name, f"{now:%Y-%m-%dT%H:%M:%SZ},{device.row(rng)}".encode()


class _Device:
    """A device that measures twelve things, of which some change from one row to the next."""

    def __init__(self, rng: Random, number: int) -> None:
        self.name = f"dev-{rng.randrange(10**6):06}"
        self._place = f"hall-{number % 7},{rng.uniform(45, 55):.5f},{rng.uniform(5, 15):.5f}"
        self._about = f"{rng.choice(('PX-200', 'PX-210', 'QM-7'))},{rng.choice(('4.18.2', '4.19.0'))}"
        self._values = [rng.uniform(10, 900) for _ in range(12)]
        self._battery, self._rows = rng.uniform(20, 100), rng.randrange(10**5)

    def row(self, rng: Random) -> str:
        self._rows += 1
        self._battery = self._battery - rng.random() / 50 if self._battery > 5 else 100.0
        for at, value in enumerate(self._values):
            if rng.random() < 0.5:
                self._values[at] = value * (1 + rng.gauss(0, 0.002))
        state = rng.choices(("OK", "OK,CALIBRATING", "DEGRADED"), (95, 3, 2))[0]
        values = ",".join(f"{each:.2f}" for each in self._values)
        return (
            f"{self.name},{self._place},{self._about},{self._rows},{values},{self._battery:.1f},"
            f"{rng.randrange(-88, -70)},{state},celsius,hPa,percent,0,0,false"
        )


def snapshots(seed: int) -> Iterator[tuple[str, bytes]]:
    """The state of machines as JSON, about 25 KB: in each, some fields have changed since the one before."""
    rng = Random(seed)
    machines = [(f"machine-{number}", [_part(rng, at) for at in range(115)]) for number in range(4)]
    for turn in count():
        name, parts = machines[turn % len(machines)]
        for part in parts:
            for field in ("temperature", "load", "energy", "state"):
                if rng.random() < 0.15:
                    part[field] = _part(rng, 0)[field]
        yield name, json.dumps({"machine": name, "turn": turn, "parts": parts}).encode()


def _part(rng: Random, number: int) -> dict[str, Any]:
    return {
        "part": f"unit-{number:03}", "serial": f"{rng.randrange(16**16):016x}",
        "state": rng.choice(("ok", "ok", "warm")), "temperature": rng.gauss(60, 9), "load": round(rng.random(), 4),
        "energy": rng.uniform(0, 10**6), "limits": {"temperature": 95.0, "load": 0.98},
        "firmware": rng.choice(("4.18.2", "4.19.0")),
    }  # fmt: skip


def metrics(seed: int) -> Iterator[tuple[str, bytes]]:
    """The metrics of a site, about 17 KB."""
    return Site(seed=seed).messages(2**62)


KINDS: Final[dict[str, Callable[[int], Iterator[tuple[str, bytes]]]]] = {
    "log lines": log_lines, "CSV rows": rows, "metrics": metrics, "snapshots": snapshots,
}  # fmt: skip


def messages(kind: str, seed: int, total: int) -> list[tuple[str, bytes]]:
    """Return (shard key, payload) pairs of about *total* bytes in all."""
    some = KINDS[kind](seed)
    found = [next(some)]
    size = len(found[0][1])
    while size < total:
        found.append(next(some))
        size += len(found[-1][1])
    return found


def sample(kind: str, seed: int, many: int) -> list[bytes]:
    """Return the payloads of the first *many* messages."""
    return [payload for _, payload in islice(KINDS[kind](seed), many)]

"""What the table of jobs says that handlers ran, by tenant, beside their own clocks: a bill is made of it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pytest

from shardq import Client, Delivery, Worker
from shardq.clock import SystemClock
from shardq.jobs.folder import TableFolder
from shardq.jobs.making import LiveQueue, make, settings_if_there
from tests.servers import Server

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.once]

SHARE: Final = 0.01
"""A bill is right within this share."""
ROUNDED: Final = 0.0001
"""Seconds to which the journal has how long a job ran."""


class ReadingClock:
    """The machine's clock, which knows what it showed a thread last.

    So a handler knows when its worker saw it begin, and hears when its worker sees it end, however busy the machine is.
    """

    def __init__(self) -> None:
        self._shown = threading.local()
        self._lock = threading.Lock()
        self.seen: defaultdict[str, float] = defaultdict(float)

    def wall(self) -> float:
        return SystemClock.wall()

    def monotonic(self) -> float:
        now = SystemClock.monotonic()
        key, began = getattr(self._shown, "ending", None) or ("", now)
        with self._lock:
            self.seen[key] += now - began
        self._shown.last, self._shown.ending = now, None
        return now

    @property
    def last(self) -> float:
        """What it showed this thread last."""
        return float(self._shown.last)

    def ends(self, key: str, began: float) -> None:
        """When it is asked in this thread again, a handler of *key* has ended that *began* then."""
        self._shown.ending = key, began


@pytest.mark.parametrize("slots", [4, 32])
def test_each_tenant_is_billed_what_its_handlers_ran(server: Server, tmp_path: Path, slots: int) -> None:
    clock, dice, lock = ReadingClock(), random.Random(slots), threading.Lock()
    own: defaultdict[str, float] = defaultdict(float)

    def handle(delivery: Delivery) -> None:
        seen, began, key = clock.last, time.monotonic(), str(delivery.shard_key)
        time.sleep(delivery.payload)
        with lock:
            own[key] += time.monotonic() - began
        clock.ends(key, seen)

    with Client.from_url(server.url, clock=clock) as client:
        queue = client.queue(f"bill-{slots}", journal=10_000)
        queue.declare()
        for number in range(40 + 6 * slots):
            queue.write(dice.uniform(0.02, 0.2), shard_key=f"t{number % 4}")
        Worker(queue, handle, concurrency=slots, signals=False, until="empty").run()
        make(LiveQueue(client, [queue.name]), tmp_path, lambda *of: settings_if_there(client, *of))
    billed: defaultdict[str, float] = defaultdict(float)
    attempts: Counter[str] = Counter()
    for row in TableFolder(tmp_path).table("jobs").to_pylist():
        billed[row["shard_key"]] += row["ran_s"]
        attempts[row["shard_key"]] += row["attempts"]
    assert attempts.total() >= 40 + 6 * slots  # some may have been read ahead, and given back
    assert billed.keys() == own.keys() == {f"t{number}" for number in range(4)}
    for key, seconds in billed.items():
        assert seconds == pytest.approx(clock.seen[key], rel=SHARE)
        assert seconds >= own[key] - ROUNDED * attempts[key]  # nobody is billed less than ran

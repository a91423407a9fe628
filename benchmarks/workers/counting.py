"""The job: it only counts itself. A job whose payload is MARK writes the count to the server.

One whose payload begins with EACH takes 1 to 9 ms, and notes on the server that it ran: that says how many were lost.
All others take TAKES seconds. One whose payload begins with SINCE notes there how many ns after that moment it began.

Runs in the environment of each contender, so it needs nothing but redis-py.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from functools import cache
from typing import Any

URL = os.environ.get("BENCH_URL", "")
MARK = "mark"
RAN = "bench:ran"
EACH = "each-"
SEEN = "bench:seen"
SINCE = "since-"
LATE = "bench:late"
TAKES = float(os.environ.get("BENCH_TAKES", "0"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "100"))
"""How many jobs run at once, if they take time."""

_calls = itertools.count()  # `next` is atomic, `+= 1` is not
_starts = itertools.count(1)
_lock = threading.Lock()
_told = 0


def work(payload: str) -> None:
    """The job."""
    if payload == MARK:
        _report()
    elif payload.startswith(EACH):
        time.sleep(_pause(payload))
        _server().sadd(SEEN, payload)
    else:
        if TAKES:
            time.sleep(_begun(payload))
        next(_calls)


async def work_async(payload: str) -> None:
    """The job of an event loop."""
    if payload.startswith(EACH):
        await asyncio.sleep(_pause(payload))
        _server().sadd(SEEN, payload)
    elif TAKES and payload != MARK:
        await asyncio.sleep(_begun(payload))
        next(_calls)
    else:
        work(payload)


def _pause(payload: str) -> float:
    """1 to 9 ms, so that jobs that began together do not end together."""
    return (1 + int(payload.removeprefix(EACH)) % 9) / 1000


def _begun(payload: str) -> float:
    """Note the start of a job; how many seconds it takes. The first ones take less, or all would end together."""
    if payload.startswith(SINCE):
        _server().rpush(LATE, time.monotonic_ns() - int(payload.removeprefix(SINCE)))
    return TAKES * min(SLOTS, next(_starts)) / SLOTS


def _report() -> None:
    global _told
    with _lock:
        _server().set(RAN, next(_calls) - _told)
        _told += 1


@cache
def _server() -> Any:
    import redis

    return redis.Redis.from_url(URL)

"""What every job does: nothing, but for being counted. A job whose payload is MARK tells the count to the server.

Runs in the environment of each contender, so it needs nothing but redis-py.
"""

from __future__ import annotations

import itertools
import os
import threading

URL = os.environ.get("BENCH_URL", "")
MARK = "mark"
RAN = "bench:ran"

_calls = itertools.count()  # `next` is atomic, `+= 1` is not
_lock = threading.Lock()
_told = 0


def work(payload: str) -> None:
    """The job."""
    if payload == MARK:
        _tell()
    else:
        next(_calls)


def _tell() -> None:
    global _told
    import redis

    with _lock, redis.Redis.from_url(URL) as server:
        server.set(RAN, next(_calls) - _told)
        _told += 1

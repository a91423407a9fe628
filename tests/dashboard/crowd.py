"""Tenants of a queue for tests: hostile names, and a worker that tells what it did for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardq import Queue
from shardq.protocol.beats import Beat, TaskCount, TenantCount, bucket_of, spell_row
from tests.servers import Server

HOSTILE: Final[tuple[str | bytes, ...]] = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "javascript:alert(1)", "a/b", "a%2fb", "%", "..", ".",
    "?order=dead#x", "&amp;", "\"'`", "\u202edlog", "\u05e9\u05dc\u05d5\u05dd", "x" * 400, "\U0001f642" * 200, " ",
    "\n", "a\x1b[31m", "\x00", "bytes:ff", b"\xff\xfe", b"\xff" * 1024, "__proto__", "constructor", "null", "0",
)  # fmt: skip
"""Shard keys that anybody may write."""


def tell(
    server: Server,
    queue: Queue,
    tenants: Mapping[str | bytes, tuple[int, float]] | None = None,
    *,
    slots: int = 8,
    busy: float = 8.0,
    done: int = 480,
    seconds: float = 1.0,
    name: str = "worker",
) -> None:
    """Let a worker tell, as of now, that it did so many jobs: for *tenants* as {key: (jobs, how long each waited)}."""
    heard = queue.stats().time
    beat = Beat(
        is_end=False, slots=slots, busy=busy, started=heard - 3600, pid=7, memory=2**28, memory_limit=None,
        version="0.1.0", host="host", longest_since=None, longest_message="", longest_task="",
        tasks={"work": TaskCount(done, 0, done * seconds, ())} if done else {},
        tenants={key: TenantCount(count, count * seconds, _counts(count, waited))
                 for key, (count, waited) in (tenants or {}).items()},
        others=[0] * 16,
    )  # fmt: skip
    with server.client() as raw:
        raw.hset(queue.state.keys.workers, name, f"{round(heard * 1000)}|{spell_row(beat)}")


def _counts(count: int, seconds: float) -> list[int]:
    found = [0] * 16
    found[bucket_of(seconds)] = count
    return found

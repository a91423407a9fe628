"""Tasks at the top of a module, which child processes can import."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardq import Nack
from shardq.backoff import Constant
from shardq.tasks import Tasks


@contextmanager
def resources() -> Iterator[str]:
    """Each process notes when it begins and ends."""
    log = Path(os.environ["SHARDQ_TEST_LOG"])
    note(log, f"open {os.getpid()}")
    yield "resources"
    note(log, f"close {os.getpid()}")


def note(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(f"{text}\n")


def report(delivery: Any, error: BaseException) -> None:
    """An error reporter, in whichever process it is called."""
    note(Path(os.environ["SHARDQ_TEST_LOG"]), f"told {os.getpid()} {delivery.task} {type(error).__name__}")


tasks = Tasks("jobs", lifespan=resources, result_ttl=60, on_error=report)


@tasks.task(name="pid")
def pid(width: int) -> tuple[int, str, int]:
    return os.getpid(), tasks.resources, tasks.delivery.count


@tasks.task(name="fails", retries=2, backoff=Constant(0))
def fails() -> None:
    raise ValueError("a part of the payload")


@tasks.task(name="dies", retries=1, backoff=Constant(0))
def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(name="hangs", retries=0, time_limit=0.2)
def hangs() -> None:
    signal.pause()


@tasks.task(name="nack")
def nack() -> int:
    if tasks.delivery.count == 1:
        raise Nack(0)
    return tasks.delivery.count  # type: ignore[no-any-return]


ticks = Tasks("ticks", streams=2, streams_per_shard=1, journal=100_000, result_ttl=600)


@ticks.every(seconds=1, shard_key="clock")
@ticks.task(name="tick")
def tick() -> str:
    return ticks.delivery.headers["slot"]  # type: ignore[no-any-return]

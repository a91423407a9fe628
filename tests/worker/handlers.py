"""Handlers for worker processes. What they did goes to the file that SHARDQ_TEST_LOG names, a line per message."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardq import Client, Nack, Reject
from shardq.model import DeliveryView
from shardq.telemetry import begin_tally
from shardq.telemetry.instruments import CONSUMED, QUEUE


def note(delivery: DeliveryView, what: str) -> None:
    """One line, whole even when several processes write."""
    file = os.open(os.environ["SHARDQ_TEST_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what} {delivery.payload} {delivery.count} {os.getpid()} {time.time():.6f}\n".encode())
    os.close(file)


def noted(log: Path) -> list[list[str]]:
    """The words of each line that is whole: who reads while another writes may get a part of the last one."""
    return [line.split() for line in log.read_text().split("\n")[:-1]] if log.exists() else []


def quick(delivery: DeliveryView) -> None:
    """A little work."""
    time.sleep(0.02)
    note(delivery, "done")


async def quick_async(delivery: DeliveryView) -> None:
    """A little work, awaited."""
    await asyncio.sleep(0.02)
    note(delivery, "done")


async def hold(delivery: DeliveryView) -> None:
    """Never done."""
    note(delivery, "began")
    await asyncio.sleep(3600)


def pause(delivery: DeliveryView) -> None:
    """Takes a moment."""
    note(delivery, "began")
    time.sleep(1)


def leaves(delivery: DeliveryView) -> None:
    """Starts a program that outlives the one that it began with, and one whose end it looks at."""
    subprocess.run(["sh", "-c", "sleep 0.01 & exit 0"], check=True)
    assert subprocess.run(["sh", "-c", "exit 7"], check=False).returncode == 7
    note(delivery, "done")


def forks(delivery: DeliveryView) -> None:
    """Leaves a process that it forked, and notes it."""
    if (pid := os.fork()) == 0:
        time.sleep(3600)
    note(delivery, str(pid))


def stdin(delivery: DeliveryView) -> None:
    """Tells what a program that it starts would read."""
    note(delivery, str(Path("/proc/self/fd/0").readlink()))


def deaf(delivery: DeliveryView) -> None:
    """Done long after everybody stopped waiting."""
    note(delivery, "began")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.1)


def varied(delivery: DeliveryView) -> Any:
    """What the payload says."""
    note(delivery, "began")
    match delivery.payload:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(7)
        case "hang" | "unwanted":
            time.sleep(60)
        case "fail":
            raise ValueError("boom")
        case "nack" if delivery.count == 1:
            raise Nack(0, "again")
        case "reject":
            raise Reject("never")
        case "big":
            return "x" * 1_000_000  # goes nowhere
    note(delivery, "done")
    return None


def measured(delivery: DeliveryView) -> None:
    """Measure one thing in this process, as a handler does with a client of its own; then do what the payload says."""
    begin_tally().add(CONSUMED, 1, ((QUEUE, "of a handler"),))
    if delivery.payload == "hang":
        time.sleep(60)


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise SystemExit(1)


class Bare(Nack):
    """One that leaves out what `Nack` sets."""

    def __init__(self) -> None:
        Exception.__init__(self)


AWKWARD: dict[str, Callable[[], BaseException]] = {
    "reject": lambda: Reject("not \udcff text\0"),
    "huge": lambda: Reject("x" * 20_000_000),
    "untold": lambda: Reject(Mute()),  # type: ignore[arg-type]
    "error": lambda: ValueError("\udcff"),
    "mute": Mute,
    "bare": Bare,
    "nack": lambda: Nack(0, Mute()),  # type: ignore[arg-type]
}
ENDS = {
    "reject": ("not ? text\0", "not ? text\0"),
    "huge": ("x" * 500, "x" * 500),
    "untold": ("rejected", "rejected"),
    "error": ("max deliveries", "ValueError: ?"),
    "mute": ("max deliveries", "Mute"),
    "bare": ("max deliveries", ""),
    "nack": ("max deliveries", ""),
}
"""The reason and the last error of their dead letters."""


def awkward(delivery: DeliveryView) -> None:
    """Raises what the payload says."""
    note(delivery, "began")
    if delivery.payload in AWKWARD:
        raise AWKWARD[delivery.payload]()
    note(delivery, "done")


def returning(delivery: DeliveryView) -> object:
    """Return what the payload says."""
    returned: dict[str, object] = {"fine": {"fine": [1, None]}, "none": None, "odd": object(), "long": "x" * 2000}
    return returned[delivery.payload]


def writes(delivery: DeliveryView) -> None:
    """Writes to another queue with a client of its own."""
    with Client.from_url(os.environ["SHARDQ_URL"]) as client:
        client.queue("written", streams=1).write(b"x", shard_key="t")
    note(delivery, "done")

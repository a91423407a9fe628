"""What runs in a process of some version: writers, callers, readers, a worker, or a producer of the edge.

python -m tests.upgrade.party ROLES URL QUEUE FOLDER NAME [ADDRESS SPOOL], with a + between roles. SIGTERM ends it. An
error that a caller is told ends it with that error.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

from shardq import Client, Delivery, Queue, Worker
from shardq.edge import Edge
from tests.soak import load
from tests.soak.load import Habits, Log

PATIENCE: Final = 120.0
"""Seconds within which each call has to succeed."""
LEASE: Final = 600.0
"""Seconds that a delivery is leased for: however busy the machine is, none ends, so nothing may come twice."""
PAUSE: Final = 0.002
"""Seconds between two calls of a caller: others need their turn, too."""
HABITS: Final = Habits(messages=1_000_000, lease=LEASE, late=0.0, batch=20, pause=0.01)


def produce(queue: Queue, log: Log, stop: threading.Event) -> None:
    """Write, one message at a time or several."""
    load.produce(queue, log, HABITS, stop)


def consume(queue: Queue, log: Log, stop: threading.Event) -> None:
    """Read, and ack or give back."""
    load.consume(queue, log, HABITS, stop)


def call(queue: Queue, log: Log, stop: threading.Event) -> None:
    """Write, and wait for what a worker returns."""
    for number in itertools.count():
        if stop.is_set():
            return
        value = f"{log.name}.{number}"
        log.add("try", values=[value])
        message_id = queue.write(value, shard_key=f"tenant-{number % 7}")
        log.add("wrote", values=[value], ids=[message_id])
        assert queue.result(message_id, timeout=PATIENCE) == value.upper()
        stop.wait(PAUSE)


def work(queue: Queue, log: Log, stop: threading.Event) -> None:
    """Answer calls, with a worker that drains at the end."""
    numbers = itertools.count()

    def handle(delivery: Delivery) -> str:
        at, number = time.monotonic(), next(numbers)
        log.add(
            "got", by=log.name, n=number, id=delivery.message_id, value=delivery.payload, count=delivery.count,
            asked=0.0, at=at, until=at + delivery.remaining, ends=at + LEASE, batch=number,
        )  # fmt: skip
        log.add("settling", by=log.name, n=number, verb="ack", at=time.monotonic())
        return str(delivery.payload).upper()

    worker = Worker(queue, handle, concurrency=4, signals=False)
    running = threading.Thread(target=worker.run)
    running.start()
    stop.wait()
    worker.stop()
    running.join()


def journal(queue: Queue, log: Log, _: threading.Event) -> None:
    """Log what the whole journal tells: how many events of each kind, and how many are lost."""
    told, after, lost = Counter[str](), 0, 0
    while (page := queue.journal(1000, after=after)).position > after:
        told.update(each.kind for each in page.events)
        lost, after = lost + page.lost, page.position
    log.add("journal", told=dict(told), lost=lost)


def workers(queue: Queue, log: Log, _: threading.Event) -> None:
    """Log how many workers are seen."""
    log.add("workers", seen=len(queue.workers()))


ROLES: Final[dict[str, tuple[str, Callable[[Queue, Log, threading.Event], None]]]] = {
    "produce": ("raw", produce),
    "consume": ("raw", consume),
    "journal": ("raw", journal),
    "call": ("calls", call),
    "work": ("calls", work),
    "workers": ("calls", workers),
}
"""What there is to do, and in which of the two queues."""


def run(roles: str, client: Client, queue: str, open_log: Callable[[str, str], Log], stop: threading.Event) -> None:
    """Do all of it, each in a thread, until told to stop, or until one fails."""
    with ThreadPoolExecutor() as pool:
        running = []
        for role in roles.split("+"):
            kind, do = ROLES[role]
            running.append(pool.submit(do, client.queue(f"{queue}-{kind}"), open_log(kind, role), stop))
        wait(running, return_when=FIRST_COMPLETED)
        stop.set()
    for each in running:
        each.result()


def send(log: Log, queue: str, address: str, spool: str, stop: threading.Event) -> None:
    """Give messages to a spool, which sends them. Those that are not sent at the end stay in it."""
    with Edge(address, spool=spool) as edge:
        for number in itertools.count():
            if stop.is_set():
                return
            value = f"{log.name}.{number}"
            log.add("try", values=[value])
            edge.send(value, queue=f"{queue}-raw", shard_key=f"tenant-{number % 7}")
            log.add("wrote", values=[value], ids=["?"])  # the gateway's id is not told
            stop.wait(PAUSE)


def flush(log: Log, address: str, spool: str) -> None:
    """Send what lies in a spool, and log its counts."""
    with Edge(address, spool=spool) as edge:
        edge.flush(PATIENCE)
        counts = edge.status().spool
        log.add("flushed", accepted=counts.accepted, acked=counts.acked, refused=counts.refused)


def main(roles: str, url: str, queue: str, folder: str, name: str, *words: str) -> None:
    """Run one process."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def open_log(kind: str, role: str) -> Log:
        return Log(Path(folder) / kind, f"{name}-{role}")

    if words:
        log, (address, spool) = open_log("raw", roles), words
        send(log, queue, address, spool, stop) if roles == "send" else flush(log, address, spool)
    else:
        with Client.from_url(url, timeout=PATIENCE) as client:
            run(roles, client, queue, open_log, stop)


if __name__ == "__main__":
    main(*sys.argv[1:])

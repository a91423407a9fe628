"""The picture of README.md: how long quiet tenants' jobs wait while another tenant floods, on a stream and on shardq.

`python -m benchmarks.flood` runs both on one embedded server, one after the other, in half a minute: 8 handlers, jobs
of 10 ms. 20 quiet tenants write 40 jobs a second between them; after two seconds one tenant writes 4,000 at once.
`python -m benchmarks.flood docs/pictures/flood.svg` also draws the picture.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from benchmarks.plots import GREYS, INK, OURS, STYLE
from benchmarks.report import percentile
from shardq import Client, Worker
from shardq.embedded import EmbeddedServer

HANDLERS, JOB, TENANTS, RATE = 8, 0.01, 20, 40
FLOOD, FLOODS_AT, LASTS = 4000, 2.0, 10.0
Write = Callable[[str, list[float]], object]
Waits = list[tuple[float, float]]
"""When a quiet tenant's job was written, in seconds from the start, and for how long it waited."""


def loaded(write: Write) -> None:
    """Write what quiet tenants and the flood write, at its time. A payload is when its job was written."""
    began, rng, flooded = time.time(), random.Random(5), False
    due = began
    while (now := time.time()) < began + LASTS:
        if not flooded and now >= began + FLOODS_AT:
            flooded = True
            write("flood", [-1.0] * FLOOD)
        if now >= due:
            write(f"tenant-{rng.randrange(TENANTS)}", [time.time()])
            due += rng.expovariate(RATE)
        time.sleep(0.001)


def worked(written: float, waits: Waits) -> None:
    """Do one job."""
    if written >= 0:
        waits.append((written, time.time() - written))
    time.sleep(JOB)


def stream(url: str) -> Waits:
    """One Redis stream with a consumer group, and a consumer for each handler."""
    waits: Waits = []
    over = threading.Event()
    with redis.from_url(url) as writer:
        writer.xgroup_create("plain", "workers", mkstream=True)

        def consume(name: str) -> None:
            with redis.from_url(url) as reader:
                while not over.is_set():
                    found: Any = reader.xreadgroup("workers", name, {"plain": ">"}, count=1, block=100)
                    for entry, fields in found[0][1] if found else ():
                        worked(float(fields[b"at"]), waits)
                        reader.xack("plain", "workers", entry)

        def write(_: str, jobs: list[float]) -> None:
            pipe = writer.pipeline(transaction=False)
            for at in jobs:
                pipe.xadd("plain", {"at": at})
            pipe.execute()

        threads = [threading.Thread(target=consume, args=(f"c{n}",)) for n in range(HANDLERS)]
        for thread in threads:
            thread.start()
        loaded(write)
        over.set()
        for thread in threads:
            thread.join()
    return waits


def shardq(url: str) -> Waits:
    """A queue with the default settings, and a Worker."""
    waits: Waits = []
    with Client.from_url(url) as client:
        jobs = client.queue("jobs", create=True)
        worker = Worker(jobs, lambda delivery: worked(delivery.payload, waits), concurrency=HANDLERS, signals=False)
        running = threading.Thread(target=worker.run)
        running.start()
        loaded(lambda tenant, payloads: jobs.write_many([(at, tenant) for at in payloads]))
        worker.stop()
        running.join()
    return waits


def draw(path: Path, found: dict[str, Waits], context: str) -> None:
    """Draw the waits over the time of writing."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with mpl.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(8, 3.2))
        for (name, waits), colour in zip(found.items(), (GREYS[0], OURS), strict=True):
            start = min(at for at, _ in waits)
            label = f"{name}: p50 {tell(waits, 0.5)}, p99 {tell(waits, 0.99)}"
            axes.plot([at - start for at, _ in waits], [wait for _, wait in waits], ".", color=colour, label=label)
        axes.axvline(FLOODS_AT, color=INK, linewidth=0.8)
        axes.annotate(f" one tenant writes {FLOOD:,} jobs", (FLOODS_AT, 0.12), xycoords=("data", "axes fraction"))
        axes.set(xlabel="when a quiet tenant's job was written (s)", ylabel="its wait (s)", ylim=(0, None))
        axes.legend(loc="upper right")
        figure.supxlabel(context, x=0.01, ha="left", fontsize=7, color=GREYS[0])
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def tell(waits: Waits, share: float) -> str:
    """A percentile of the waits after the flood began, as text."""
    start = min(at for at, _ in waits)
    value = percentile([wait for at, wait in waits if at - start >= FLOODS_AT], share)
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def main(words: Sequence[str] | None = None) -> None:
    """Run both, and print how long the quiet tenants waited."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("picture", nargs="?", type=Path, help="draw it in this file (needs the extra `bench`)")
    asked = parser.parse_args(words)
    with EmbeddedServer() as server:
        found = {"a Redis stream": stream(server.url), "shardq": shardq(server.url)}
        context = f"{server.name}, Python {platform.python_version()}, {os.cpu_count()} cores; benchmarks/flood.py"
    for name, waits in found.items():
        waits.sort()
        print(f"{name}: {len(waits)} jobs, p50 {tell(waits, 0.5)}, p99 {tell(waits, 0.99)}")
    if asked.picture:
        draw(asked.picture, found, context)


if __name__ == "__main__":
    main()

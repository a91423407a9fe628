"""The API server of the demo: enqueues a job for each source file, in small batches in which the tenants are mixed.

One tenant floods: all its jobs come at once, before those of the others. The jobs of the others come at a steady rate,
which is about half of what the workers can do on this machine at the moment.
"""

import ast
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import islice

from examples.demo.files import COPIES, Source, flooding, sources
from examples.demo.records import Records
from shardq import Client, Message

FLOOD_BATCH, BATCH = 500, 20
SHORTEST, LONGEST = 4.0, 35.0  # seconds for the others' jobs
SAMPLE = 0.02  # of all bytes: so much is parsed to learn how fast it goes here


def message(source: Source, copy: int) -> Message:
    """The message of a job, which is to parse this file."""
    return Message({"path": source.path, "copy": copy}, source.tenant, headers={"source": "demo"})


def batches(messages: Iterator[Message], size: int) -> Iterator[list[Message]]:
    """The items in lists of at most *size*."""
    while batch := list(islice(messages, size)):
        yield batch


def pace(files: list[Source], workers: int) -> float:
    """Seconds in which to enqueue *files*, so that parsing them takes about half of the workers' time.

    They are at work on the flood meanwhile, so this process has the same share of the machine as each of them.
    """
    total, parsed, started = sum(file.size for file in files), 0, time.monotonic()
    for file in files:
        if parsed > SAMPLE * total:
            break
        parse(file.path)
        parsed += file.size
    speed = workers * parsed / (time.monotonic() - started)
    return min(LONGEST, max(SHORTEST, 2 * total / speed))


def parse(path: str) -> str:
    """The work of a job: whether the file is good Python."""
    try:
        with open(path, "rb") as file, warnings.catch_warnings():  # noqa: PTH123 (the fastest, and this is all we do)
            warnings.simplefilter("ignore")
            ast.parse(file.read())
    except (SyntaxError, ValueError, RecursionError):
        return "not good Python"
    return "parsed"


def main(url: str, path: str, limit: int | None, workers: int) -> None:
    files, records = sources(limit), Records(path)
    noisy = flooding(files)
    quiet = [file for file in files if file.tenant != noisy]
    flood = (message(file, copy) for copy in range(COPIES) for file in files if file.tenant == noisy)
    steady = (message(file, 0) for file in quiet)
    with Client.from_url(url) as client:
        jobs = client.queue("jobs")

        def write(batch: list[Message]) -> None:
            for message_id, each in zip(jobs.write_many(batch), batch, strict=True):
                records.note("wrote", id=message_id, tenant=each.shard_key, **each.payload)

        for batch in batches(flood, FLOOD_BATCH):
            write(batch)
        pause = pace(quiet, workers) * BATCH / max(1, len(quiet))
        due = time.monotonic()
        for batch in batches(steady, BATCH):
            write(batch)
            due += pause
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) or None, int(sys.argv[4]))

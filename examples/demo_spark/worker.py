"""A worker of the demo on Spark: it compresses the file that a job names, and acks. SIGTERM ends it after a batch."""

import signal
import sys
import time
import zlib
from pathlib import Path

from shardq import Client

ELSEWHERE = 0.002
"""Seconds that a job sleeps, as if it waited for another service; so the flood lasts for a while on a fast machine."""


def main(url: str, queue: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    with Client.from_url(url) as client:
        jobs = client.queue(queue)
        while not stopping:
            taken = jobs.read_many(20, block=0.5)
            for each in taken:
                zlib.compress(Path(each.payload["path"]).read_bytes())
                time.sleep(ELSEWHERE)
            jobs.ack_many(taken)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

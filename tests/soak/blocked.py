"""A reader that blocks for a short or a long time, again and again, and acks what it gets, until it is killed.

python -m tests.soak.blocked URL QUEUE LEASE SEED
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress

from shardq import Client, LeaseLost

BLOCKS = (0.3, 1.0, 3.0, 30.0)


def main(url: str, name: str, lease: str, seed: str) -> None:
    """Read one message after the other."""
    rng = random.Random(seed)
    with Client.from_url(url, timeout=60.0) as client:
        queue = client.queue(name)
        while True:
            for delivery in queue.read_many(1, block=rng.choice(BLOCKS), visibility_timeout=float(lease)):
                with suppress(LeaseLost):  # it was stopped meanwhile
                    delivery.ack()


if __name__ == "__main__":
    main(*sys.argv[1:])

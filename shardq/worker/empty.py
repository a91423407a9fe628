"""Whether a queue is done with, for a worker that shall work until it is empty."""

from __future__ import annotations

from shardq.client import Queue
from shardq.errors import QueueMissing
from shardq.worker.trouble import CALL_TIMEOUT

WAIT_SECONDS = 0.1
"""Seconds that one read of such a worker waits, before it looks again."""


def is_empty(queue: Queue) -> bool:
    """Return whether nothing can be delivered, nothing is in flight, and nothing waits for its next try.

    A message that was never tried may be delayed; and one that was given back uncounted, as a call of an unknown task.
    It takes one call, however many are delayed.
    """
    try:
        found = queue.stats(timeout=CALL_TIMEOUT)
    except QueueMissing:
        return True
    return not (found.runnable or found.in_flight or (found.delayed and found.retrying))

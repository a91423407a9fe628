"""Reading a stream in pages of a bounded size in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardq.client import Client
from shardq.ops.queue.state import QueueState
from shardq.spark.ops import scan

FIRST_PAGE_ROWS = 100
PAGE_BYTES = 8 * 1024 * 1024
SAMPLE = 10


def pages(client: Client, state: QueueState, key: str, after: str, until: str, most: int) -> Iterator[list[Any]]:
    """The entries of *key* after one id up to another, in pages of at most *most*, fewer if the entries are large."""
    count = min(most, FIRST_PAGE_ROWS)
    while rows := client.run(scan.page(state, key, after, until, count)):
        yield rows
        if len(rows) < count:
            return
        after = rows[-1][0].decode()
        size = sum(len(word) for row in rows[-SAMPLE:] for word in row[1]) // min(SAMPLE, len(rows))
        count = max(1, min(most, PAGE_BYTES // max(1, size)))

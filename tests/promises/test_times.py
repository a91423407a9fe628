"""Times that a queue tells are the server's, however many messages were written or replaced in an instant."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from shardq import Queue
from tests.promises.conftest import OpenClient, OpenQueue, lone

REPLACEMENTS = 6_000
WRITERS = 4


@lone
@pytest.mark.runs_in("test-all")
def test_replacements_without_end_do_not_run_the_queues_clock_ahead(
    open_queue: OpenQueue, open_client: OpenClient
) -> None:
    """However many there are in a second: what is written next was written now."""
    queue = open_queue(streams=4)
    queue.write("first", shard_key="t", unique_key="k", delay=600)
    began = queue.stats().time

    def replace(writer: Queue) -> None:
        for number in range(REPLACEMENTS // WRITERS):
            writer.write(number, shard_key="t", unique_key="k", on_conflict="replace", delay=600)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(replace, [open_client().queue(queue.name) for _ in range(WRITERS)]))
    took = queue.stats().time - began
    later = queue.write("later", shard_key="other")
    written_at, now = queue.status(later).written_at, queue.stats().time
    assert written_at is not None
    assert written_at <= now + 0.01, f"{written_at - now:.2f} s ahead after {took:.1f} s"


def test_a_batch_of_writes_does_not_run_the_queues_clock_ahead(open_queue: OpenQueue) -> None:
    queue = open_queue(streams=4)
    queue.write_many([(number, f"t{number % 50}") for number in range(5_000)])
    later = queue.write("later", shard_key="other")
    written_at = queue.status(later).written_at
    assert written_at is not None
    assert written_at <= queue.stats().time + 0.01

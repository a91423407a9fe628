"""Results and notes of progress have an end, whatever becomes of the settings."""

from __future__ import annotations

import pytest

from shardq import Queue
from tests.promises.conftest import OpenQueue
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")
TTL = 1.0


def work_goes_on(queue: Queue) -> None:
    """What sweeps does it while others work."""
    queue.write("work", shard_key="other")
    queue.read().ack()


def kept(queue: Queue, what: str) -> None:
    """Keep a result, or a note of progress, for `TTL` seconds."""
    queue.write("work", shard_key="t")
    delivery = queue.read()
    if what == "a result":
        delivery.ack(result="done")
    else:
        assert delivery.progress(1, 2)
        delivery.ack(result="done")
    assert queue.stats().result_count >= 1


@pytest.mark.parametrize("what", ["a result", "progress"])
def test_what_was_kept_ends_in_its_time_when_results_are_switched_off(open_queue: OpenQueue, what: str) -> None:
    queue = open_queue(streams=4, result_ttl=TTL)
    kept(queue, what)
    queue.configure(result_ttl=None)

    def is_gone() -> bool:
        work_goes_on(queue)
        stats = queue.stats()
        return (stats.result_count, stats.result_bytes) == (0, 0)

    eventually(is_gone, 15, every=0.05, what="the end of what was kept")


def test_a_note_of_progress_ends_when_results_are_switched_off_while_its_message_is_in_flight(
    open_queue: OpenQueue,
) -> None:
    """Its message is acked afterwards, when nothing is kept any more."""
    queue = open_queue(streams=4, result_ttl=TTL)
    queue.write("work", shard_key="t")
    delivery = queue.read()
    assert delivery.progress(1, 2)
    queue.configure(result_ttl=None)
    delivery.ack()

    def is_gone() -> bool:
        work_goes_on(queue)
        return queue.stats().result_count == 0

    eventually(is_gone, 15, every=0.05, what="the end of the note")

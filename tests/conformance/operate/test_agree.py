"""A change that its caller agreed to by what it saw: whoever was faster is not overwritten."""

from __future__ import annotations

import pytest

from shardq import Queue
from shardq.ops.operate import limits
from shardq.ops.operate.controls import controls
from shardq.ops.queue.change import Changed
from shardq.ops.queue.opening import require_queue
from shardq.ops.queue.steps import Op
from tests.conformance.conftest import OpenQueue


@pytest.mark.parametrize("looks_up", [False, True], ids=["nobody looks it up", "others look it up"])
def test_what_changes_after_the_look_is_seen(open_queue: OpenQueue, looks_up: bool) -> None:
    """Also where other calls of the same client learn the queue's new epoch meanwhile."""
    queue: Queue = open_queue(streams=4, streams_per_shard=2)
    queue.declare()
    state = queue.state
    looks = 0

    def agree() -> Op[bool]:
        nonlocal looks
        looks += 1
        is_free = not (yield from controls(state, "t")).paused
        if is_free:
            yield from limits.pause(state, "t", 600.0)  # somebody else is faster
            if looks_up:
                yield from require_queue(state, state.until())
        return is_free

    with pytest.raises(Changed):
        queue.client.run(limits.pause(state, "t", 5.0, agree=agree))
    assert looks == 2
    found = queue.controls()
    assert found.paused["t"].until > found.time + 500

"""What a process knows of partitions."""

from __future__ import annotations

import os

from shardq.partitions import parts


def test_a_child_that_is_forked_while_a_thread_opens_a_queue_can_open_one() -> None:
    with parts._opening:
        child = os.fork()
        if child == 0:
            os._exit(not parts._opening.acquire(blocking=False))
    assert os.waitpid(child, 0)[1] == 0

"""What a process knows of partitions."""

from __future__ import annotations

import os

from shardq import Client
from shardq.partitions import parts
from shardq.partitions.map import PartitionMap
from shardq.partitions.parts import Parts, known_beside


def test_a_child_that_is_forked_while_a_thread_opens_a_queue_can_open_one() -> None:
    with parts._opening:
        child = os.fork()
        if child == 0:
            os._exit(not parts._opening.acquire(blocking=False))
    assert os.waitpid(child, 0)[1] == 0


def test_a_delivery_that_was_read_before_a_resize_does_not_bring_its_map_back() -> None:
    with Client.from_url("redis://localhost:1") as reader, Client.from_url("redis://localhost:1") as other:
        whole, head = reader.queue("jobs").state, other.queue("jobs").state
        old, new = (
            Parts(whole, PartitionMap.parse(text), reader.state_of_part, reader.codecs) for text in ("3:a,b", "2:a")
        )
        known = known_beside(head, new, other.state_of_part, other.codecs)
        assert known_beside(head, old, other.state_of_part, other.codecs) is head.parts is known
        assert known.map == new.map
        assert known.at(2).keys == old.states[2].keys, "where that delivery is settled"
        newest = Parts(whole, PartitionMap.parse("4:a,b,c"), reader.state_of_part, reader.codecs)
        assert known_beside(head, newest, other.state_of_part, other.codecs).map == newest.map == head.parts.map

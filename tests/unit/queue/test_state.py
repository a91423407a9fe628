"""What two clients of a process know of a queue: what one of them looked up, the other does not ask for."""

from __future__ import annotations

import gc
from dataclasses import replace
from weakref import ref

from shardq import AsyncClient, Client


def test_what_one_client_knows_of_a_queue_a_client_beside_it_knows() -> None:
    with Client.from_url("redis://localhost:1") as client:
        mine = client.queue("jobs", streams=8).state
        theirs = AsyncClient.beside(client).state_beside(mine)
        assert theirs.requested == mine.requested
        mine.know(replace(mine.view, epoch="7", streams=8))
        assert (theirs.epoch, theirs.streams) == ("7", 8)
        theirs.forget()
        assert mine.epoch == ""


def test_a_client_that_is_gone_leaves_nothing_behind() -> None:
    with Client.from_url("redis://localhost:1") as client:
        mine = client.queue("jobs", streams=8).state
        theirs = [ref(AsyncClient.beside(client).state_beside(mine)) for _ in range(3)]
        gc.collect()
        assert [each() for each in theirs] == [None] * 3
        client.state_beside(mine)
        assert len(mine.siblings) == 2


def test_they_share_no_calls_and_are_different_producers() -> None:
    with Client.from_url("redis://localhost:1") as client:
        mine = client.queue("jobs", streams=8).state
        theirs = AsyncClient.beside(client).state_beside(mine)
        mine.coalescers["write"] = mine.waiting["read"] = object()
        mine.unsure.add("token")
        assert (theirs.coalescers, theirs.waiting, theirs.unsure) == ({}, {}, set())
        assert theirs.producer != mine.producer
        mine.names["l"] = "learnt"
        assert theirs.names["l"] == "learnt"  # which key the legacy stream has is of the queue

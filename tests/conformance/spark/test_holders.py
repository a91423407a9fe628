"""Who has an overflow is found in each form that an account is stored in."""

from __future__ import annotations

from shardq import Client, Limits
from shardq.spark.ops.sweep import SCAN_START, holders
from tests.conformance.spark.test_unnumbered import made


def test_those_of_whom_something_waits_beside_the_streams_are_found(client: Client, queue_name: str) -> None:
    """One has limits of its own; of another the only message lies in a stream."""
    queue = made(client, queue_name)
    queue.write_many([(number, key) for key in ("flood", "limited") for number in range(3)])
    queue.write("alone", shard_key="quiet")
    queue.set_limits({"limited": Limits(max_in_flight=10)})
    _, found = client.run(holders(queue.state, SCAN_START, ()))
    assert {each.shard_key for each in found} == {b"flood", b"limited"}

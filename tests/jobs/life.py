"""A queue in which messages end in each way, on a real server."""

from __future__ import annotations

from shardq import Limits
from shardq.client import Queue


def live(queue: Queue, count: int = 120) -> int:
    """Write messages and end most of them, in all ways; how many were written."""
    names = [f"acct-{number % 7}/user" for number in range(count)]
    ids = queue.write_many([(b"x", name) for name in names])
    late = [queue.write(b"late", shard_key="late", delay=3600) for _ in range(3)]
    debounced = [queue.write(b"once", shard_key="late", unique_key="u", on_conflict="replace") for _ in range(4)]
    queue.write(b"dies", shard_key="acct-1/user", deadline=0.001)
    queue.set_limits({"acct-2/user": Limits(max_in_flight=1), "acct-3/user": Limits(rate=100, burst=1)})
    queue.pause("acct-4/user", by="jonas", note="ticket 1")
    queue.cancel(late[0])
    queue.cancel(ids[-1])
    while found := queue.read_many(20):
        for at, each in enumerate(found):
            if each.message_id in ids[:10] and each.count == 1:
                each.nack()
            elif each.message_id in ids[10:20]:
                each.reject("no")
            elif at % 5 == 4:
                each.ack(cost=0.25)
            else:
                each.ack()
    letters = [*queue.dead(100)]
    queue.redrive(letters[:4])
    queue.delete_dead(letters[4:6])
    queue.resume("acct-4/user")
    for each in queue.read_many(10):
        each.ack()
    queue.read_many(2)
    return len({*ids, *late, *debounced}) + 1

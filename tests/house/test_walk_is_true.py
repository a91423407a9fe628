"""The walk in docs/internals/design.md is true: what it names is called as a message is written, read and acked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shardq import Client, Delivery, Worker
from shardq.embedded import EmbeddedServer
from shardq.protocol.scripts import load
from tests.house.doc_blocks import ROOT
from tests.house.test_paths import WALK, pairs

Called = set[tuple[str, str]]
LEFT_OUT = {("ops/read/give_back.py", "give_back"), ("ops/settle/settle.py", "Settled.check")}
"""Only called where a reader goes away while its message is on the way, and where a lease was lost."""


@contextmanager
def recorded(called: Called) -> Iterator[None]:
    """Note in *called* each function of shardq that any thread calls, by its file and its name."""
    package = f"{ROOT / 'shardq'}/"

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(package):
            called.add((file.removeprefix(package), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def follow_a_message(client: Client) -> None:
    """What the walk tells: a write, the work of a worker, a read that waits, a lease that ends, an ack with a read."""
    jobs = client.queue("walk", streams=128, visibility_timeout=1.0)  # more than a read declares that knows of none
    jobs.write("hello", shard_key="tenant-42")
    extended = threading.Event()

    def handle(delivery: Delivery) -> None:
        """Run until the lease was extended. If it was lost, since this machine stood still, the message comes again."""
        lease_end = delivery.received.deadline
        while delivery.received.deadline == lease_end and not delivery.lost:
            extended.wait(0.01)
        if not delivery.lost:
            extended.set()

    def stop_at_the_end() -> None:
        extended.wait(60)
        worker.stop()

    worker = Worker(jobs, handle, concurrency=2, signals=False)
    threading.Thread(target=stop_at_the_end, daemon=True).start()
    worker.run()
    assert extended.is_set()
    assert jobs.len() == 0

    jobs.write("soon", shard_key="tenant-42", delay=0.05)
    first = jobs.read(block=60, visibility_timeout=0.05)
    again = jobs.read(block=60, visibility_timeout=60)
    assert (first.message_id, again.count, again.last_error) == (again.message_id, 2, "lease ended")
    jobs.write_many([("next", "tenant-42"), ("last", "tenant-42")])
    jobs.read_many(1, ack=[again, jobs.read()])[0].ack()


def test_each_function_of_the_walk_is_called() -> None:
    called: Called = set()
    load.cache_clear()  # or it would not be called
    with EmbeddedServer() as server, Client.from_url(server.url) as client, recorded(called):
        follow_a_message(client)
    named = {(path.removeprefix("shardq/"), name) for path, name in pairs(WALK) if path.endswith(".py")}
    assert named - called - LEFT_OUT == set()
    assert named >= LEFT_OUT
